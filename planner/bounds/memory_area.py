"""Memory area bound: what microbatches occupy, in bytes times nanoseconds (docs/model.md, equations (30) and (31))."""

from __future__ import annotations

from planner.bounds.bound import Bound
from planner.bounds.idle import stage_workers
from planner.bounds.spread import spread, spread_stages
from planner.bounds.view import ProblemView, SlotView


def memory_area_bound(view: ProblemView, slot: SlotView) -> Bound | None:
    """``T >= q (a (R + I) + w W) / cap + sync``; ``None`` where memory does not bind."""
    if slot.capacity_bytes is None or max(slot.activation_bytes) == 0:
        return None
    costs = []
    for group in slot.classes:
        row = []
        for at, v in enumerate(slot.stages):
            held = group.forward_ns[at] + view.round_trip_ns[v] + group.input_grad_ns[at]
            kept = slot.weight_grad_bytes[at] if slot.splittable[at] else slot.activation_bytes[at]
            row.append(slot.activation_bytes[at] * held + kept * group.weight_grad_ns[at])
        costs.append(row)
    value = -(-spread_stages(slot.counts, costs, view.total) // slot.capacity_bytes)
    if len(slot.stages) == 1:
        turnover = [worker.turnover_ns for worker in stage_workers(view, slot)]
        value = max(value, spread(slot.counts, turnover, view.total))
    return Bound(
        name="memory_area",
        value_ns=value + slot.sync_ns,
        slot=slot.index,
        detail=f"{view.total} microbatches on {sum(slot.counts)} live workers of {slot.capacity_bytes} bytes occupy them "
        f"for {value} ns + {slot.sync_ns} ns sync",
    )
