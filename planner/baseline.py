"""Fault-free 1F1B, what every plan is compared with.

One stage a slot: PipeDream-Flush's 1F1B as in Megatron-LM, ``P - s`` forwards ahead of slot ``s``'s first backward, then one
backward to one forward. Loop placement: Megatron-LM's interleaved 1F1B, microbatches in groups of ``P`` through the chunks in
turn. Any other placement, and orders that memory does not hold: backward before forward, forwards as memory admits.
Backwards are fused (B).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from planner.errors import InvalidScheduleError
from planner.operation import Kind, Operation, Worker
from planner.problem import Problem
from planner.schedule import Schedule, TimedOperation, schedule_from_orders
from planner.timing import time_schedule

_Step = tuple[Kind, int, int]
"""Kind, stage and microbatch."""


def fault_free(problem: Problem) -> Problem:
    """The same problem with every worker live and at full speed."""
    return replace(problem, dead=frozenset(), speeds_ppm={})


def one_f_one_b(problem: Problem) -> Schedule:
    """1F1B of the fault-free problem, timed.

    Raises
    ------
    MemoryTooSmallError
        If a slot does not hold one microbatch.
    """
    healthy = fault_free(problem)
    healthy.require_plannable()
    by_count = {count: _orders(healthy, count) for count in set(healthy.microbatches) if count}
    orders: dict[Worker, list[TimedOperation]] = {}
    for k, count in enumerate(healthy.microbatches):
        for s in range(healthy.num_slots):
            steps = by_count[count][s] if count else ()
            orders[Worker(k, s)] = [TimedOperation(Operation(kind, v, k, j), 0, 0) for kind, v, j in steps]
    return time_schedule(healthy, schedule_from_orders(healthy.num_pipelines, healthy.num_slots, orders))[0]


def baseline_period_ns(problem: Problem) -> int:
    """Period of fault-free 1F1B, which every plannable problem has: its forwards wait where memory is short.

    Raises
    ------
    MemoryTooSmallError
        If a slot does not hold one microbatch.
    """
    # Pipelines with as many microbatches do the same at the same time, so one of each kind has the same period.
    kinds = tuple(sorted(set(problem.microbatches) - {0}))
    healthy = replace(fault_free(problem), microbatches=kinds)
    return time_schedule(healthy, one_f_one_b(healthy))[1]


def _orders(problem: Problem, count: int) -> Sequence[Sequence[_Step]]:
    """Each slot's order for a pipeline of ``count`` microbatches."""
    chunks = len(problem.slots[0].stages)
    is_loop = all(
        slot.stages == tuple(s + c * problem.num_slots for c in range(chunks)) for s, slot in enumerate(problem.slots)
    )
    if chunks == 1 and is_loop:
        return [_plain(problem, s, count) for s in range(problem.num_slots)]
    if is_loop:
        orders = [_interleaved(problem, s, count) for s in range(problem.num_slots)]
        if all(_fits(problem, s, order) for s, order in enumerate(orders)) and _runs(problem, orders, count):
            return orders
    return _backward_first(problem, count)


def _plain(problem: Problem, slot: int, count: int) -> list[_Step]:
    stage = problem.slots[slot].stages[0]
    ahead = _forwards_ahead(problem, slot, count)
    steps: list[_Step] = [(Kind.F, stage, j) for j in range(ahead)]
    for j in range(count):
        steps.append((Kind.B, stage, j))
        if j + ahead < count:
            steps.append((Kind.F, stage, j + ahead))
    return steps


def _forwards_ahead(problem: Problem, slot: int, count: int) -> int:
    """Forwards ahead of the first backward: ``P - s``, or what memory holds in this slot and in every slot before.

    A slot further ahead than the one before it would wait for a forward that comes after the backward it owes.
    """
    ahead = min(count, problem.num_slots - slot)
    for before in problem.slots[: slot + 1]:
        held = problem.stages[before.stages[0]].activation_bytes
        if before.capacity_bytes is not None and held:
            ahead = min(ahead, before.capacity_bytes // held)
    return ahead


def _interleaved(problem: Problem, slot: int, count: int) -> list[_Step]:
    """Megatron-LM's interleaved order: ``2 (P - s - 1) + (chunks - 1) P`` forwards ahead."""
    stages, slots = problem.slots[slot].stages, problem.num_slots
    groups = [range(first, min(first + slots, count)) for first in range(0, count, slots)]
    forwards: list[_Step] = [(Kind.F, v, j) for group in groups for v in stages for j in group]
    backwards: list[_Step] = [(Kind.B, v, j) for group in groups for v in reversed(stages) for j in group]
    ahead = min(len(forwards), 2 * (slots - slot - 1) + (len(stages) - 1) * slots + 1)
    steps = forwards[:ahead]
    for number, backward in enumerate(backwards):
        steps.append(backward)
        if number + ahead < len(forwards):
            steps.append(forwards[number + ahead])
    return steps


def _fits(problem: Problem, slot: int, steps: Sequence[_Step]) -> bool:
    capacity, held = problem.slots[slot].capacity_bytes, 0
    if capacity is None:
        return True
    for kind, stage, _ in steps:
        held += problem.stages[stage].activation_bytes * (1 if kind is Kind.F else -1)
        if held > capacity:
            return False
    return True


def _runs(problem: Problem, orders: Sequence[Sequence[_Step]], count: int) -> bool:
    """Whether the orders of one pipeline do not wait for themselves."""
    one = replace(problem, microbatches=(count,))
    timed = {
        Worker(0, s): [TimedOperation(Operation(kind, v, 0, j), 0, 0) for kind, v, j in steps]
        for s, steps in enumerate(orders)
    }
    try:
        time_schedule(one, schedule_from_orders(1, problem.num_slots, timed))
    except InvalidScheduleError:
        return False
    return True


def _backward_first(problem: Problem, count: int) -> list[list[_Step]]:
    """Run one pipeline step by step in time: a slot takes a ready backward, else the forward furthest along that fits.

    A forward is admitted only if the later stages of its slot still fit after it for one microbatch, so that microbatches
    in flight can always finish.
    """
    stages, last = problem.stages, problem.num_stages - 1
    orders: list[list[_Step]] = [[] for _ in problem.slots]
    free_at = [0] * problem.num_slots
    held = [0] * problem.num_slots
    ready: list[dict[_Step, int]] = [{} for _ in problem.slots]
    for j in range(count):
        ready[problem.slot_of_stage[0]][Kind.F, 0, j] = 0

    def admitted(slot: int, step: _Step) -> bool:
        capacity = problem.slots[slot].capacity_bytes
        need = sum(stages[v].activation_bytes for v in problem.slots[slot].stages if v >= step[1])
        return step[0] is Kind.B or capacity is None or held[slot] + need <= capacity

    def urgency(step: _Step, arrival: int, now: int) -> tuple[int, bool, int, int]:
        return (max(arrival, now), step[0] is Kind.F, step[2] if step[0] is Kind.B else -step[1], step[2])

    for _ in range(2 * problem.num_stages * count):
        start, slot, step = min(
            (urgency(step, arrival, free_at[s]), s, step)
            for s in range(problem.num_slots)
            for step, arrival in ready[s].items()
            if admitted(s, step)
        )
        kind, stage, j = step
        del ready[slot][step]
        orders[slot].append(step)
        end = start[0] + problem.duration_ns(kind, stage, Worker(0, slot))
        free_at[slot] = end
        held[slot] += stages[stage].activation_bytes * (1 if kind is Kind.F else -1)
        if kind is Kind.F and stage == last:
            ready[slot][Kind.B, stage, j] = end
        elif kind is Kind.F or stage > 0:
            after, boundary = (stage + 1, stage) if kind is Kind.F else (stage - 1, stage - 1)
            target = problem.slot_of_stage[after]
            arrival = end + problem.transfer_ns(boundary, Worker(0, slot), Worker(0, target))
            ready[target][kind, after, j] = arrival
    return orders
