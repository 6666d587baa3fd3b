"""Dealing out the stages of a slot that lost a worker."""

from __future__ import annotations

import numpy as np

from planner.job import Placement, place_stages
from planner.operation import Worker
from planner.problem import Problem, Slot, Stage
from planner.schedule import IntColumn
from planner.timing import time_schedule
from planner.validation import require_valid
from solver_models.list_scheduling.routing import balanced_routing
from solver_models.list_scheduling.search import ListSearch

STAGE = Stage(forward_ns=10, input_grad_ns=9, weight_grad_ns=7, transfer_ns=1, activation_bytes=2, weight_grad_bytes=1)


def _problem(pipelines: int, count: int) -> Problem:
    """A V of three slots; worker 0/1 failed."""
    return Problem(
        stages=(STAGE,) * 6,
        slots=tuple(Slot(stages=held, capacity_bytes=12) for held in place_stages(Placement.V, 3, 6)),
        microbatches=(count,) * pipelines,
        dead=frozenset({Worker(0, 1)}),
    )


def _loads(problem: Problem, routing: IntColumn) -> list[list[int]]:
    """How often each live worker of slot 1 runs each of its stages."""
    return [np.bincount(routing[:, v], minlength=problem.num_pipelines)[1:].tolist() for v in problem.slots[1].stages]


def test_a_stage_moves_on_where_whole_microbatches_leave_one_worker_busiest() -> None:
    """Sixteen microbatches over three workers are 22, 21 and 21 of 64; half a one moves from the first to another."""
    problem = _problem(4, 16)
    routing = balanced_routing(problem)
    first, second = _loads(problem, routing)
    assert sorted(first) == [21, 21, 22]
    assert max(a + b for a, b in zip(first, second, strict=True)) == 43
    assert np.count_nonzero(routing[:, 1] != routing[:, 4]) == 1


def test_stages_go_together_where_twice_as_many_helpers_would_be_needed() -> None:
    """Four of eight peers take one microbatch each: halving each would take in the other four."""
    problem = _problem(9, 4)
    routing = balanced_routing(problem)
    assert (routing[:, 1] == routing[:, 4]).all()


def test_orders_under_a_split_routing_are_schedules() -> None:
    """A microbatch whose stages of one slot run on different workers passes between them."""
    problem = _problem(4, 16)
    search = ListSearch(problem, balanced_routing(problem), 0)
    trials = [search.by_rounds(1.0, None, 0.5), *search.passes(search.by_rounds(1.0, None, 0.5).start, 0.5)]
    for trial in trials:
        require_valid(problem, *time_schedule(problem, trial.order(problem)))
