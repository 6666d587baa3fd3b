"""Bound across slots: what a late slot's busiest worker leaves for an early one (docs/model.md, equations (32) and (45))."""

from __future__ import annotations

from planner.bounds.bound import Bound
from planner.bounds.chunks import chunk_idle, most_credit_ns, most_owed_ns, splits_warm_up_from_tail
from planner.bounds.idle import stage_workers
from planner.bounds.spread import spread, spread_stages
from planner.bounds.view import ProblemView, SlotView
from planner.bounds.work import slot_work_ns


def last_backward_ns(view: ProblemView, slot: SlotView) -> int:
    """Least time from a slot's start to the end of the last backward on its busiest worker.

    Its work and idling, less the most W it may still owe then. With several stages a slot, the work is counted
    either whole or without any W, whichever leaves more.
    """
    if len(slot.stages) == 1:
        return spread(slot.counts, [worker.last_backward_ns for worker in stage_workers(view, slot)], view.total)
    chains = [
        [
            f + i + (0 if splittable else w)
            for f, i, w, splittable in zip(
                group.forward_ns, group.input_grad_ns, group.weight_grad_ns, slot.splittable, strict=True
            )
        ]
        for group in slot.classes
    ]
    bare = spread_stages(slot.counts, chains, view.total)
    limits = [most_credit_ns(view, slot, group) for group in slot.classes]
    owed = [most_owed_ns(slot, group) for group in slot.classes]
    credit, most_owed = _largest(limits), _largest(owed)
    if credit is None or most_owed is None:
        return bare
    work, idle = slot_work_ns(view, slot), chunk_idle(view, slot)
    before = idle.waiting_ns
    if splits_warm_up_from_tail(slot, work):
        before = max(before, idle.warm_up_ns)
    return max(bare, work + before - credit, work + idle.warm_up_ns - most_owed)


def _largest(values: list[int | None]) -> int | None:
    """The largest of some numbers; ``None``, which stands for no limit, if it is among them."""
    known = [value for value in values if value is not None]
    return max(known) if len(known) == len(values) else None


def across_slots_bound(view: ProblemView, slot: SlotView) -> Bound | None:
    """``T >= fwd(a..b) + q (F+I+W) + warm - V + bwd(b..a) + W_a + sync_a`` for the earlier slot ``a`` where it is largest.

    ``None`` for a slot ``b`` before whose first stage no other slot starts.
    """
    first = slot.first_stage
    earlier = [other for other in view.slots if other.first_stage < first]
    if not earlier:
        return None

    def around(other: SlotView) -> tuple[int, int]:
        forward = view.forward_ns(other.first_stage, first)
        back = view.backward_ns(first, other.first_stage) + view.least_weight_ns(other.first_stage)
        return forward, back

    best = max(earlier, key=lambda other: sum(around(other)) + other.sync_ns)
    forward, back = around(best)
    inside = last_backward_ns(view, slot)
    return Bound(
        name="across_slots",
        value_ns=forward + inside + back + best.sync_ns,
        slot=slot.index,
        detail=f"slot {best.index} starts {forward} ns before; {inside} ns to the last backward of the busiest worker; "
        f"{back} ns back to slot {best.index} and its W + {best.sync_ns} ns sync",
    )
