"""Work bound: the busiest worker of a slot, and the slot's sync (docs/model.md, equation (25))."""

from __future__ import annotations

from planner.bounds.bound import Bound
from planner.bounds.spread import spread_stages
from planner.bounds.view import ProblemView, SlotView


def slot_work_ns(view: ProblemView, slot: SlotView) -> int:
    """Least F + I + W that the busiest worker of a slot carries, however microbatches are routed."""
    return spread_stages(slot.counts, [group.microbatch_ns for group in slot.classes], view.total)


def work_bound(view: ProblemView, slot: SlotView) -> Bound:
    """``T >= q (F + I + W) + sync``: no worker runs two operations at once, and some worker carries ``q``."""
    work = slot_work_ns(view, slot)
    return Bound(
        name="work",
        value_ns=work + slot.sync_ns,
        slot=slot.index,
        detail=f"{view.total} microbatches on {sum(slot.counts)} live workers: {work} ns of work on the busiest "
        f"+ {slot.sync_ns} ns sync",
    )
