"""Compiled list scheduling: event-driven construction, forward-backward passes and a portfolio of rules."""

from solver_models.list_scheduling.solve import solve

__all__ = ["solve"]
