"""Lower bounds on the period: planner-independent, cheap, always reported. Derived in ``docs/model.md``, section 6."""

from planner.bounds.bound import Bound
from planner.bounds.families import best_bound, lower_bounds, slot_bounds

__all__ = ["Bound", "best_bound", "lower_bounds", "slot_bounds"]
