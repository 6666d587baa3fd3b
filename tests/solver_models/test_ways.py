"""Tests of the ways to go on: which are planned, and that the best of them is taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.failure_key import failure_key
from planner.formats.job_file import load_job
from planner.job import Job
from planner.migration import apply_migrations
from planner.operation import Worker
from solver_models.result import SolveOptions
from solver_models.ways import solve_best, solve_canonical, ways_to_move

OPTIONS = SolveOptions(deadline_s=0.6, deterministic=True)
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def large() -> Job:
    """16 slots, 128 pipelines; the bound of a slot hardly grows with its failures."""
    return load_job(EXAMPLES / "llama3-405b.yaml")


def test_few_failures_have_one_way_beside_staying(large: Job) -> None:
    """Fewer dead workers than slots: what bounds advise, then nothing."""
    problem = large.problem(frozenset({Worker(3, 0), Worker(4, 15)}))
    ways = ways_to_move(large, problem)
    assert len(ways) == 2
    assert ways[0]
    assert ways[-1] == ()


def test_where_nothing_helps_staying_is_the_only_way(large: Job) -> None:
    """A failure in the slot that bears it best moves nowhere."""
    problem = large.problem(frozenset({Worker(3, 15)}))
    (best, _) = ways_to_move(large, problem)
    moved = apply_migrations(problem, best)
    assert ways_to_move(large, moved) == ((),)


def test_many_failures_may_leave_whole_pipelines_empty(large: Job) -> None:
    """48 dead workers of 16 slots: bounds would put dozens into few slots; three empty pipelines are far better."""
    # Three of slots 0 to 7 and three of 8 to 15, in pipelines of their own, and one slot with one more for another.
    dead = {Worker(8 * i + s, s) for i in range(3) for s in range(16)}
    dead = (dead - {Worker(0, 0)}) | {Worker(100, 5)}
    problem = large.problem(frozenset(dead))
    by_bounds, with_empty, in_place = ways = ways_to_move(large, problem)
    assert in_place == ()
    assert failure_key(apply_migrations(problem, with_empty)).dead == (3,) * 16
    assert len(with_empty) == 1
    assert max(failure_key(apply_migrations(problem, by_bounds)).dead) > 6
    found = solve_best(problem, ways, OPTIONS)
    piled = solve_canonical(apply_migrations(problem, by_bounds), OPTIONS)
    assert piled.period_ns is not None
    assert found.result.period_ns is not None
    assert found.result.period_ns < 0.98 * piled.period_ns
    assert found.problem == apply_migrations(problem, found.moves)
