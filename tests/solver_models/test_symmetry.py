"""Intact pipelines solved once and repeated."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.operation import Worker
from planner.problem import Problem, Slot, Stage
from planner.timing import time_schedule
from planner.validation import require_valid
from solver_models import list_scheduling, portfolio
from solver_models.result import SolveOptions, Status
from solver_models.symmetry import (
    chain_problem,
    repeat_pipeline,
    single_pipeline,
    sound_chains,
    spread_over_chains,
)

COUNTED = SolveOptions(deadline_s=5, deterministic=True)
"""Work in place of seconds, so that no load of the machine keeps a search from its end."""
UNIT = Stage(forward_ns=10, input_grad_ns=10, weight_grad_ns=6, activation_bytes=2, weight_grad_bytes=1)


def _problem(pipelines: int, *dead: Worker, counts: tuple[int, ...] | None = None) -> Problem:
    return Problem(
        stages=(UNIT, UNIT),
        slots=(Slot(stages=(0,), capacity_bytes=4), Slot(stages=(1,), capacity_bytes=4)),
        microbatches=counts or (4,) * pipelines,
        dead=frozenset(dead),
    )


def test_fault_free_pipelines_are_copies() -> None:
    """Three pipelines run what one runs, in the same period."""
    problem = _problem(3)
    one = single_pipeline(problem)
    assert one is not None
    result = list_scheduling.solve(one, COUNTED)
    assert result.schedule is not None
    timed, period = time_schedule(problem, repeat_pipeline(result.schedule, 3))
    assert period == result.period_ns
    require_valid(problem, timed, period)


def test_failed_or_uneven_pipelines_are_not_copies() -> None:
    """A failure, or other counts, leave no single pipeline to repeat."""
    assert single_pipeline(_problem(3, Worker(0, 0))) is None
    assert single_pipeline(_problem(2, counts=(4, 3))) is None
    assert single_pipeline(_problem(1)) is None


@pytest.mark.parametrize("counts", [(4, 4, 4, 4), (1, 7, 3, 2), (0, 9, 0, 1)])
def test_chains_of_sound_workers_run_everything(counts: tuple[int, ...]) -> None:
    """Pipelines 1 and 2 lost a worker of other slots: together they make one more chain, and the schedule is valid."""
    problem = _problem(4, Worker(1, 0), Worker(2, 1), counts=counts)
    chains = sound_chains(problem)
    assert chains is not None
    assert (chains.own.tolist(), chains.parts.tolist()) == ([0, 1, 3], [[0, 0], [2, 1], [3, 3]])
    one = chain_problem(problem, chains)
    assert one.microbatches == (-(-sum(counts) // 3),)
    result = list_scheduling.solve(one, COUNTED)
    assert result.schedule is not None
    timed, period = time_schedule(problem, spread_over_chains(problem, chains, result.schedule))
    require_valid(problem, timed, period)


def test_whoever_is_in_no_chain_stops() -> None:
    """Two of four first workers are down: pipelines without one run nothing at all."""
    problem = _problem(4, Worker(1, 0), Worker(2, 0))
    chains = sound_chains(problem)
    assert chains is not None
    assert chains.parts.tolist() == [[0, 0], [3, 3]]
    result = list_scheduling.solve(chain_problem(problem, chains), COUNTED)
    assert result.schedule is not None
    spread = spread_over_chains(problem, chains, result.schedule)
    assert not spread.rows(Worker(1, 1))
    assert not spread.rows(Worker(2, 1))


def test_a_slot_may_have_no_sound_worker() -> None:
    """Where every worker of a slot is down or slow, there is no chain."""
    problem = replace(_problem(2, Worker(0, 0)), speeds_ppm={Worker(1, 0): 500_000})
    assert sound_chains(problem) is None


def test_a_failure_in_each_slot_costs_one_pipeline() -> None:
    """Failures of both slots in different pipelines, memory tight: two whole chains are left, and meet the bound."""
    problem = _problem(3, Worker(0, 0), Worker(1, 1))
    result = portfolio.solve(problem, COUNTED)
    assert result.status is Status.OPTIMAL


def test_dropping_broken_pipelines_reaches_the_bound_where_loads_allow() -> None:
    """Two of sixteen first-slot workers failed: 96 microbatches on 14 make 7, from end to end as good as in the slot alone.

    Rerouting in place leaves 6.7 % here; 7 microbatches on an intact pipeline meet the tail bound of 198000.
    """
    stage = Stage(
        forward_ns=10_000,
        input_grad_ns=9_800,
        weight_grad_ns=6_600,
        activation_bytes=1_000,
        weight_grad_bytes=440,
    )
    problem = Problem(
        stages=(stage, stage),
        slots=(Slot(stages=(0,), capacity_bytes=2_000), Slot(stages=(1,), capacity_bytes=2_000)),
        microbatches=(6,) * 16,
        dead=frozenset({Worker(3, 0), Worker(6, 0)}),
    )
    result = portfolio.solve(problem, COUNTED)
    assert (result.status, result.period_ns) == (Status.OPTIMAL, 198_000)
