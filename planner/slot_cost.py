"""What a number of dead workers costs a slot: the estimates migrations are chosen by."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from planner.bounds import slot_bounds
from planner.errors import ProblemError
from planner.failure_key import FailureKey, failure_key, problem_for_key
from planner.problem import FULL_SPEED_PPM, Problem, scaled_ns

SlotCost: TypeAlias = Callable[[int, int], int]
"""Estimate, in nanoseconds, of the period that ``(slot, number of dead workers in it)`` alone would force."""


def work_estimate(problem: Problem) -> SlotCost:
    """The work bound as a slot's estimate: its microbatches spread as evenly as integers and speeds allow, plus sync.

    With several stages in a slot each microbatch counts as a whole, although its stages may run on different workers.
    The slot's degraded workers are among its live ones. A slot whose workers are all dead is refused with
    :class:`~planner.errors.ProblemError`.

    Examples
    --------
    Three pipelines of 6 unit-cost microbatches: one dead worker leaves 18 for two workers, ``9 * (1 + 1 + 1) = 27``.
    """
    degraded = failure_key(problem).degraded

    def slot_cost_ns(slot: int, count: int) -> int:
        num_healthy = problem.num_pipelines - count - len(degraded[slot])
        if num_healthy < 0 or count >= problem.num_pipelines:
            raise _too_many(slot, count, problem.num_pipelines - max(1, len(degraded[slot])))
        speeds = (FULL_SPEED_PPM,) * num_healthy + degraded[slot]
        return _spread_ns(problem, slot, speeds) + problem.slots[slot].sync_ns

    return slot_cost_ns


def bound_estimate(problem: Problem) -> SlotCost:
    """The largest lower bound of a slot as its estimate, memory and dependencies between slots included.

    A slot's bounds depend on its own live workers and, through chains of operations, on the fastest live worker of
    the others; so each count is bounded for all slots at once, with as many dead in every other slot as leave one
    worker live there, and kept. A slot whose workers would all be dead is refused with
    :class:`~planner.errors.ProblemError`.

    Examples
    --------
    Three pipelines of 6 unit-cost microbatches in one slot: one dead worker leaves ``9 * (1 + 1 + 1) = 27``.
    """
    degraded = failure_key(problem).degraded
    most = [problem.num_pipelines - max(1, len(speeds)) for speeds in degraded]
    known: dict[int, dict[int, int]] = {}

    def slot_cost_ns(slot: int, count: int) -> int:
        if count > most[slot]:
            raise _too_many(slot, count, most[slot])
        if count not in known:
            key = FailureKey(dead=tuple(min(count, limit) for limit in most), degraded=degraded)
            values: dict[int, int] = {}
            for bound in slot_bounds(problem_for_key(problem, key)):
                assert bound.slot is not None, "every family bounds a slot"
                values[bound.slot] = max(values.get(bound.slot, 0), bound.value_ns)
            known[count] = values
        return known[count][slot]

    return slot_cost_ns


def _too_many(slot: int, count: int, most: int) -> ProblemError:
    return ProblemError(f"slot {slot} is to have {count} dead workers; expected at most {most}")


def _spread_ns(problem: Problem, slot: int, speeds: tuple[int, ...]) -> int:
    """Smallest time in which workers of these speeds get through all microbatches of a slot."""
    stages = [problem.stages[v] for v in problem.slots[slot].stages]
    costs = [c for stage in stages for c in (stage.forward_ns, stage.input_grad_ns, stage.weight_grad_ns)]
    each_ns = [sum(scaled_ns(cost, speed) for cost in costs) for speed in speeds]
    if min(each_ns) == 0:
        return 0
    low, high = 0, min(each_ns) * problem.num_microbatches
    while low < high:
        middle = (low + high) // 2
        if sum(middle // each for each in each_ns) >= problem.num_microbatches:
            high = middle
        else:
            low = middle + 1
    return low
