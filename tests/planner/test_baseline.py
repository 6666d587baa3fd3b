"""Fault-free 1F1B and interleaved 1F1B."""

from __future__ import annotations

import random

import pytest

from planner.baseline import fault_free, one_f_one_b
from planner.operation import Worker
from planner.problem import Problem, Slot, Stage
from planner.replay import replay
from planner.timing import time_schedule
from planner.validation import require_valid
from tests.problems import tiny_problem

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


def test_order_is_1f1b() -> None:
    """Slot s runs P - s forwards, then a backward to a forward; fused backwards throughout."""
    orders = one_f_one_b(_problem(((0,), (1,)), (3,))).to_text()
    assert orders == (
        "0/0: 0F0.0 0F0.1 0B0.0 0F0.2 0B0.1 0B0.2\n"
        "0/1: 1F0.0 1B0.0 1F0.1 1B0.1 1F0.2 1B0.2\n"
    )  # fmt: skip


def test_interleaved_order_is_megatrons() -> None:
    """Two slots, two chunks each, four microbatches: groups of two; 2 (P - s - 1) + (chunks - 1) P + 1 forwards ahead.

    Slot 0 runs 2 * 1 + 1 * 2 + 1 = 5 of them, slot 1 runs 3.
    """
    orders = one_f_one_b(_problem(((0, 2), (1, 3)), (4,))).to_text()
    assert orders == (
        "0/0: 0F0.0 0F0.1 2F0.0 2F0.1 0F0.2 2B0.0 0F0.3 2B0.1 2F0.2 0B0.0 2F0.3 0B0.1 2B0.2 2B0.3 0B0.2 0B0.3\n"
        "0/1: 1F0.0 1F0.1 3F0.0 3B0.0 3F0.1 3B0.1 1F0.2 1B0.0 1F0.3 1B0.1 3F0.2 3B0.2 3F0.3 3B0.3 1B0.2 1B0.3\n"
    )


def test_failures_are_forgotten() -> None:
    """The baseline is the job's without dead or slow workers."""
    problem = _problem(((0,), (1,)), (2, 2))
    slow = Problem(
        stages=problem.stages,
        slots=problem.slots,
        microbatches=(2, 2),
        dead=problem.dead,
        speeds_ppm={Worker(1, 1): 500_000},
    )
    assert fault_free(slow) == fault_free(problem)
    assert one_f_one_b(slow) == one_f_one_b(fault_free(problem))


@pytest.mark.parametrize("capacities", [(2, 8, 8, 8), (8, 2, 8, 8), (4, 2, 8, 2), (6, 4, 8, 8)])
def test_memory_short_in_one_slot_holds_back_those_behind(capacities: tuple[int, ...]) -> None:
    """Uneven memory leaves an order that runs: no slot has more forwards ahead than the one before it.

    Each microbatch holds 2 bytes, so the peaks are 2 bytes times ``min(P - t, capacity / 2)`` over slots ``t <= s``.
    """
    problem = Problem(
        stages=(UNIT,) * 4,
        slots=tuple(Slot(stages=(s,), capacity_bytes=c) for s, c in enumerate(capacities)),
        microbatches=(6,),
    )
    schedule = one_f_one_b(problem)
    require_valid(problem, schedule, time_schedule(problem, schedule)[1])
    expected = tuple(2 * min(min(4 - t, capacities[t] // 2) for t in range(s + 1)) for s in range(4))
    assert replay(problem, schedule).peak_bytes == expected


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


def test_every_plannable_problem_has_one() -> None:
    """However tight the memory and whatever takes no time, the fault-free order keeps every constraint."""
    for seed in range(200):
        healthy = fault_free(tiny_problem(random.Random(seed)))
        schedule, period_ns = time_schedule(healthy, one_f_one_b(healthy))
        require_valid(healthy, schedule, period_ns)
