"""Makespan bound for a global optimizer (docs/model.md, equation (35))."""

from __future__ import annotations

from planner.bounds.across_slots import last_backward_ns
from planner.bounds.bound import Bound
from planner.bounds.tail import tail_bound
from planner.bounds.view import ProblemView, SlotView
from planner.bounds.warm_up import warm_up_bound
from planner.problem import Optimizer


def makespan_bound(view: ProblemView, slot: SlotView) -> Bound | None:
    """``T >= head + window + slowest sync``, and with the last gradient's way back to stage 0; ``None`` when staggered."""
    if view.optimizer is not Optimizer.GLOBAL:
        return None
    first = slot.first_stage
    head = view.forward_ns(0, first)
    window = max(tail_bound(view, slot).value_ns, warm_up_bound(view, slot).value_ns) - slot.sync_ns
    back = max((view.backward_ns(first, u) + view.least_weight_ns(u) for u in range(first)), default=0)
    inside = max(window, last_backward_ns(view, slot) + back)
    return Bound(
        name="makespan",
        value_ns=head + inside + slot.sync_ns,
        slot=slot.index,
        detail=f"{head} ns of forwards before the slot; {inside} ns for its work, its idling and what follows "
        f"+ {slot.sync_ns} ns slowest sync",
    )
