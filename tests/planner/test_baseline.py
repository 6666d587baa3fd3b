"""Fault-free 1F1B and interleaved 1F1B."""

from __future__ import annotations

import pytest

from planner.baseline import one_f_one_b
from planner.operation import Worker
from planner.problem import Problem, Slot, Stage
from planner.timing import time_schedule
from planner.validation import require_valid

UNIT = Stage(forward_ns=1, input_grad_ns=1, weight_grad_ns=1, activation_bytes=2, weight_grad_bytes=1)


def _problem(slots: tuple[tuple[int, ...], ...], microbatches: tuple[int, ...], capacity: int | None = None) -> Problem:
    num_stages = sum(len(stages) for stages in slots)
    return Problem(
        stages=(UNIT,) * num_stages,
        slots=tuple(Slot(stages=stages, capacity_bytes=capacity) for stages in slots),
        microbatches=microbatches,
        dead=frozenset({Worker(0, 0)}) if len(microbatches) > 1 else frozenset(),
    )


def test_recycle_fault_free_makespan_is_27() -> None:
    """Four slots, six microbatches, unit costs: (P - 1 + M) * (F + I + W) = 9 * 3 = 27."""
    schedule = one_f_one_b(_problem(((0,), (1,), (2,), (3,)), (6, 6, 6)))
    assert int(schedule.end_ns.max()) == 27


@pytest.mark.parametrize(
    "slots",
    [
        ((0,), (1,), (2,)),
        ((0, 2), (1, 3)),
        ((0, 3, 6), (1, 4, 7), (2, 5, 8)),
        ((0, 5), (1, 4), (2, 3)),
        ((0, 1), (2,), (3, 4)),
    ],
)
@pytest.mark.parametrize("microbatches", [(1,), (2, 5), (6, 6)])
@pytest.mark.parametrize("capacity", [None, 12, 6])
def test_every_placement_gives_a_valid_schedule(
    slots: tuple[tuple[int, ...], ...], microbatches: tuple[int, ...], capacity: int | None
) -> None:
    """Plain, loop, V and explicit placement keep memory and precedence; 6 bytes hold three chunks of one microbatch."""
    problem = _problem(slots, microbatches, capacity)
    healthy = Problem(stages=problem.stages, slots=problem.slots, microbatches=microbatches)
    schedule = one_f_one_b(problem)
    require_valid(healthy, schedule, time_schedule(healthy, schedule)[1])
