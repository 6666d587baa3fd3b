"""Annealing on order strings: one move shifts one operation of one worker by a few places."""

from solver_models.annealing.solve import solve

__all__ = ["solve"]
