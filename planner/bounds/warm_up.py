"""Warm-up bound: idling before a slot's first backward (docs/model.md, equations (26), (33) and (44))."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

from planner.bounds.bound import Bound
from planner.bounds.chunks import chunk_idle, waiting_ns
from planner.bounds.idle import stage_workers
from planner.bounds.spread import spread, spread_stages
from planner.bounds.view import ProblemView, SlotView
from planner.bounds.work import slot_work_ns


def warm_up_bound(view: ProblemView, slot: SlotView) -> Bound:
    """``T >= q (F + I + W) + max(0, R - min(cap, q) F) + sync``."""
    if len(slot.stages) == 1:
        workers = stage_workers(view, slot)
        value = spread(slot.counts, [worker.until_warm_ns for worker in workers], view.total)
        first = workers[0].forward_ns + workers[0].round_trip_ns
        detail = f"first backward {first} ns after the first F at the earliest"
    else:
        idle = chunk_idle(view, slot)
        backwards = [
            [i + w for i, w in zip(group.input_grad_ns, group.weight_grad_ns, strict=True)] for group in slot.classes
        ]
        even = Fraction(view.total * sum(slot.classes[0].microbatch_ns), sum(slot.counts))
        value = max(
            slot_work_ns(view, slot) + idle.warm_up_ns,
            ceil(even + waiting_ns(view, slot)),
            idle.first_backward_ns + spread_stages(slot.counts, backwards, view.total),
            idle.chain_ns,
        )
        detail = f"first backward of the slot {idle.first_backward_ns} ns after its first F at the earliest"
    return Bound(
        name="warm_up",
        value_ns=value + slot.sync_ns,
        slot=slot.index,
        detail=f"{detail}; work and idling {value} ns + {slot.sync_ns} ns sync",
    )
