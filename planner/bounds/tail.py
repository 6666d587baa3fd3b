"""Tail bound: idling after a worker's last forward, beside the warm-up (docs/model.md, equations (28), (29) and (34))."""

from __future__ import annotations

from planner.bounds.bound import Bound
from planner.bounds.chunks import chunk_idle, splits_warm_up_from_tail
from planner.bounds.idle import stage_workers
from planner.bounds.spread import spread
from planner.bounds.view import ProblemView, SlotView
from planner.bounds.work import slot_work_ns


def tail_bound(view: ProblemView, slot: SlotView) -> Bound:
    """``T >= q (F + I + W) + idle + sync``, with warm-up and tail added where they must lie apart, else the larger."""
    if len(slot.stages) == 1:
        workers = stage_workers(view, slot)
        value = spread(slot.counts, [worker.window_ns for worker in workers], view.total)
        load = -(-view.total // sum(slot.counts))
        tail, warm_up = workers[0].tail_ns(load), workers[0].warm_up_ns(load)
        detail = f"at load {load}: {warm_up} ns idle before the first backward, {tail} ns after the last F"
    else:
        idle, work = chunk_idle(view, slot), slot_work_ns(view, slot)
        apart = splits_warm_up_from_tail(slot, work)
        before = max(idle.warm_up_ns, idle.waiting_ns) if apart else idle.waiting_ns
        value = work + max(idle.warm_up_ns, before + idle.tail_ns)
        joint = "and" if apart else "or"
        detail = f"{idle.warm_up_ns} ns idle before the first backward {joint} {idle.tail_ns} ns after the last F"
    return Bound(
        name="tail",
        value_ns=value + slot.sync_ns,
        slot=slot.index,
        detail=f"{detail}; work and idling {value} ns + {slot.sync_ns} ns sync",
    )
