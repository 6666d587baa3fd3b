"""The pipeline stretched to a cell's rates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.operation import Worker
from planner.problem import Problem, Slot, Stage
from planner.schedule import parse_schedule
from planner.timing import time_schedule
from solver_models.list_scheduling.routing import balanced_routing
from solver_models.stretch import Stretch, starts_in_step, stretched_pipeline

STAGE = Stage(forward_ns=10, input_grad_ns=8, weight_grad_ns=6, activation_bytes=10, weight_grad_bytes=4)


def _problem(capacity: int | None = 40) -> Problem:
    return Problem(
        stages=(STAGE,) * 2,
        slots=(Slot(stages=(0,), capacity_bytes=capacity), Slot(stages=(1,), capacity_bytes=capacity)),
        microbatches=(4, 4, 4),
        dead=frozenset({Worker(1, 1)}),
    )


def test_a_slot_is_stretched_by_its_load() -> None:
    """Two workers share twelve microbatches, six each and not four: half as long again, two thirds of the memory."""
    problem = _problem()
    one = stretched_pipeline(problem, balanced_routing(problem), Stretch(busiest=True))
    assert one.microbatches == (4,)
    assert not one.dead
    assert one.stages[0] == STAGE
    assert (one.stages[1].forward_ns, one.stages[1].input_grad_ns, one.stages[1].weight_grad_ns) == (15, 12, 9)
    assert [slot.capacity_bytes for slot in one.slots] == [40, 26]


def test_the_mean_leaves_out_who_runs_nothing() -> None:
    """Loads of seven and five: by the busiest 7/4 as long, by the mean of both 6/4, and the dead worker does not count."""
    problem = _problem()
    routing = np.repeat(np.arange(3), 4)[:, None].repeat(2, axis=1)
    routing[4:8, 1] = (0, 0, 0, 2)
    by_busiest, by_mean = (stretched_pipeline(problem, routing, Stretch(busiest=busiest)) for busiest in (True, False))
    assert [one.stages[1].input_grad_ns for one in (by_busiest, by_mean)] == [14, 12]
    assert [one.slots[1].capacity_bytes for one in (by_busiest, by_mean)] == [22, 26]


def test_half_the_time_is_not_half_the_memory() -> None:
    """Six microbatches and not four, half stretched: a quarter longer, but still two thirds of the memory."""
    problem = _problem()
    one = stretched_pipeline(problem, balanced_routing(problem), Stretch(time_share=0.5))
    # 12.5 and 7.5, rounded up.
    assert (one.stages[1].forward_ns, one.stages[1].input_grad_ns, one.stages[1].weight_grad_ns) == (13, 10, 8)
    assert one.slots[1].capacity_bytes == 26


def test_a_slow_worker_stretches_time_but_not_memory() -> None:
    """Worker 0/0 keeps its four microbatches at 0.9 of the speed: each takes longer, none needs more room."""
    problem = replace(_problem(), dead=frozenset(), speeds_ppm={Worker(0, 0): 900_000})
    routing = np.repeat(np.arange(3), 4)[:, None].repeat(2, axis=1)
    one = stretched_pipeline(problem, routing, Stretch(busiest=True))
    # 10 / 0.9 = 11.1, 8 / 0.9 = 8.9 and 6 / 0.9 = 6.7, rounded up.
    assert (one.stages[0].forward_ns, one.stages[0].input_grad_ns, one.stages[0].weight_grad_ns) == (12, 9, 7)
    assert [slot.capacity_bytes for slot in one.slots] == [40, 40]


def test_memory_for_one_microbatch_is_kept() -> None:
    """Ten bytes hold one microbatch; two thirds of them would hold none."""
    problem = _problem(capacity=10)
    assert [
        slot.capacity_bytes for slot in stretched_pipeline(problem, balanced_routing(problem), Stretch()).slots
    ] == [10, 10]


def test_without_memory_none_is_made_up() -> None:
    """A job that gives no memory has none stretched."""
    problem = _problem(capacity=None)
    assert [
        slot.capacity_bytes for slot in stretched_pipeline(problem, balanced_routing(problem), Stretch()).slots
    ] == [
        None,
        None,
    ]


def test_pipelines_in_step_have_the_same_starts() -> None:
    """One slot, F I W F I W of 10, 8 and 6 each: starts 0, 10, 18, 24, 34, 42; a pipeline of one microbatch takes the first."""
    one = Problem(stages=(STAGE,), slots=(Slot(stages=(0,)),), microbatches=(2,))
    schedule, _ = time_schedule(one, parse_schedule("0/0: 0F0.0 0I0.0 0W0.0 0F0.1 0I0.1 0W0.1", 1, 1))
    problem = replace(one, microbatches=(2, 0, 1))
    assert starts_in_step(problem, one, schedule).tolist() == [0, 10, 18, 24, 34, 42, 0, 10, 18]
