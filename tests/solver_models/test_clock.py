"""Clocks, deadlines, and searches whose work is counted."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from planner.errors import OptionError
from planner.failures import parse_failures
from planner.formats.job_file import job_from_document
from planner.operation import Worker
from planner.plan_content import plan_json
from planner.problem import Problem
from planner.validation import require_valid
from solver_models import portfolio, registry
from solver_models.clock import WALL_CLOCK, Deadline, WorkClock, new_clock
from solver_models.planning import make_plan
from solver_models.result import SolveOptions
from tests.problems import unit_problem

COUNTED = SolveOptions(deadline_s=1.0, seed=3, deterministic=True)
WITH_OWN_CLOCKS = ("list_scheduling", "annealing", "portfolio")


def hard_problem(pipelines: int, slots: int, microbatches: int, capacity: int | None = None) -> Problem:
    """One with a failure and uneven stages, whose bound no search meets at once."""
    problem = unit_problem(
        pipelines, slots, microbatches, dead=[(0, 1), (pipelines - 1, 2)], capacity=capacity or slots
    )
    stages = tuple(
        replace(stage, forward_ns=1000 + 37 * v, input_grad_ns=1100 + 53 * v, weight_grad_ns=900 + 29 * v)
        for v, stage in enumerate(problem.stages)
    )
    return replace(problem, stages=stages)


@pytest.fixture
def wild(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Switches on clocks that jump forwards by up to ten seconds whenever they are read."""

    def switch_on() -> None:
        rng, at = random.Random(1), [0.0]

        def jump() -> float:
            at[0] += rng.uniform(0.0, 10.0)
            return at[0]

        monkeypatch.setattr(time, "monotonic", jump)
        monkeypatch.setattr(time, "perf_counter", jump)

    return switch_on


def test_work_is_what_was_charged() -> None:
    """The work clock stands still otherwise; the wall clock does not care."""
    clock = WorkClock()
    deadline = Deadline.after(2.0, clock)
    clock.charge(0.5)
    assert (clock.now(), deadline.left_s, deadline.spent_s, deadline.passed) == (0.5, 1.5, 0.5, False)
    clock.charge(1.5)
    assert (deadline.left_s, deadline.passed) == (0.0, True)
    wall = Deadline.after(60.0)
    WALL_CLOCK.charge(1000.0)
    assert not wall.passed
    assert new_clock(deterministic=False) is WALL_CLOCK
    assert new_clock(deterministic=True) is not new_clock(deterministic=True)


def test_a_share_counts_from_the_beginning_and_the_rest_from_now() -> None:
    """Of 8 s, 2 are spent: a quarter is over, half has 2 left, half of the rest 3."""
    clock = WorkClock()
    deadline = Deadline.after(8.0, clock)
    clock.charge(2.0)
    assert deadline.share(0.25).passed
    assert deadline.share(0.5).left_s == 2.0
    assert deadline.rest().share(0.5).left_s == 3.0


@pytest.mark.parametrize("name", WITH_OWN_CLOCKS)
@pytest.mark.parametrize(
    ("problem", "deadline_s"),
    [
        (hard_problem(4, 4, 8), 0.4),
        pytest.param(hard_problem(6, 8, 48), 1.5, marks=pytest.mark.slow),
        pytest.param(hard_problem(16, 16, 128, 11), 1.5, marks=pytest.mark.slow),
    ],
    ids=["384 operations", "6,912 operations", "98,304 operations"],
)
def test_no_wall_clock_has_a_part_in_it(
    name: str, problem: Problem, deadline_s: float, wild: Callable[[], None]
) -> None:
    """Clocks that jump about change nothing; the search was cut, and it spent what it was given."""
    options, clock = replace(COUNTED, deadline_s=deadline_s), WorkClock()
    first = registry.solve(name, problem, options, clock=clock)
    assert first.schedule is not None
    assert first.period_ns is not None
    require_valid(problem, first.schedule, first.period_ns)
    assert name == "list_scheduling" or clock.now() > 0.55 * deadline_s
    wild()
    assert registry.solve(name, problem, options).schedule == first.schedule


@pytest.mark.parametrize("workers", [1, 2])
def test_a_middle_problem_comes_out_the_same_under_another_clock(workers: int, wild: Callable[[], None]) -> None:
    """6,912 operations, cut within annealing, in one lane or two."""
    problem, options = hard_problem(6, 8, 48), replace(COUNTED, deadline_s=0.6, workers=workers)
    first = portfolio.solve(problem, options)
    wild()
    assert portfolio.solve(problem, options).schedule == first.schedule


@pytest.mark.parametrize("name", ["cp_sat", pytest.param("improve", marks=pytest.mark.slow)])
def test_cp_sat_counts_its_own_work(name: str) -> None:
    """Cut in the middle, twice the same; most of its time goes to a search that neither proves nor stagnates."""
    problem = unit_problem(4, 4, 8, dead=[(1, 2)], capacity=4)
    hint = registry.solve("list_scheduling", problem, COUNTED).schedule
    clock = WorkClock()
    first = registry.solve(name, problem, replace(COUNTED, deadline_s=2.0), hint=hint, clock=clock)
    assert first.failure == ""
    assert clock.now() > 0.2
    again = registry.solve(name, problem, replace(COUNTED, deadline_s=2.0), hint=hint)
    assert (again.schedule, again.bound_ns, again.detail) == (first.schedule, first.bound_ns, first.detail)


def test_more_work_is_another_search() -> None:
    """A deadline counts: with next to none, annealing does not come as far."""
    problem = hard_problem(6, 8, 48)
    short, long = (
        registry.solve("annealing", problem, replace(COUNTED, deadline_s=seconds)).period_ns for seconds in (0.01, 1.5)
    )
    assert short is not None
    assert long is not None
    assert long < short


def test_a_plan_is_made_again_with_its_migrations(wild: Callable[[], None]) -> None:
    """Byte for byte, whatever the clock says and although another search ran in between."""
    document = {
        "schema_version": 1,
        "name": "again",
        "topology": {"nodes": "n[00-31]", "gpus_per_node": 1},
        "layout": {"pipeline_parallel": 4, "data_parallel": 8, "rank_order": "pp-dp"},
        "microbatches": 6,
        "stage_costs": {
            "forward_us": 31,
            "input_grad_us": 37,
            "weight_grad_us": 23,
            "transfer_us": 2,
            "activation_bytes": 2,
            "weight_grad_bytes": 1,
        },
        "capacity_bytes": 9,
    }
    job = job_from_document(document)
    failures = parse_failures(job, ["worker:0/1", "worker:1/1", "worker:2/1", "worker:3/2"], ())
    options = replace(COUNTED, deadline_s=0.6)
    first = make_plan(job, failures, options, migrate=True)
    assert first.migrations
    assert first.deterministic
    portfolio.solve(hard_problem(4, 4, 8), replace(options, deadline_s=0.1))
    wild()
    again = make_plan(job, failures, options, migrate=True)
    assert (again.plan_id, plan_json(again)) == (first.plan_id, plan_json(first))
    assert not again.hindered


def test_what_cannot_be_counted_is_refused() -> None:
    """The integer program, and several workers of CP-SAT."""
    with pytest.raises(OptionError, match="milp_highs cannot count its work"):
        registry.solve("milp_highs", unit_problem(1, 2, 2), COUNTED)
    with pytest.raises(OptionError, match="expected 1 for a deterministic search by cp_sat"):
        registry.solve("cp_sat", unit_problem(1, 2, 2), replace(COUNTED, workers=2))


def test_a_problem_is_hard() -> None:
    """The problems above leave something to search for."""
    problem = hard_problem(4, 4, 8)
    assert Worker(0, 1) in problem.dead
    found = portfolio.solve(problem, COUNTED)
    assert found.period_ns is not None
    assert found.period_ns > found.bound_ns
