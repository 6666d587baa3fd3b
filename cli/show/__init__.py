"""``replan show``: a plan as a text grid, a Gantt chart or a trace."""

from cli.show.command import show

__all__ = ["show"]
