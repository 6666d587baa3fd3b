"""The exhaustive search against brute force over all orders."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from planner.operation import Worker
from planner.problem import Optimizer, Problem
from tests.brute_force import TooManyOrdersError, brute_force_period_ns
from tests.exhaustive import exhaustive_period_ns
from tests.problems import tiny_problem, tiny_problem_without_length


def _same_transfers(problem: Problem, rng: random.Random) -> Problem:
    """Transfers of one length, since the search knows nothing of the order on links."""
    transfer_ns = rng.choice((0, 1, 2))
    return replace(problem, stages=tuple(replace(stage, transfer_ns=transfer_ns) for stage in problem.stages))


def _any(rng: random.Random) -> Problem:
    return _same_transfers(tiny_problem(rng), rng)


def _without_length(rng: random.Random) -> Problem:
    return _same_transfers(tiny_problem_without_length(rng), rng)


def _slow_and_global(rng: random.Random) -> Problem:
    """F without length, the slots' windows tied together and one worker at half the speed."""
    problem = _any(rng)
    stages = tuple(replace(stage, forward_ns=rng.choice((0, 0, stage.forward_ns))) for stage in problem.stages)
    live = [Worker(k, s) for s in range(problem.num_slots) for k in problem.live_pipelines(s)]
    return replace(problem, stages=stages, speeds_ppm={rng.choice(live): 500_000}, optimizer=Optimizer.GLOBAL)


DRAWS = (_any, _without_length, _slow_and_global)


def _count_agreeing(draw: Callable[[random.Random], Problem], seeds: range, most_orders: int) -> int:
    """Compare the two on every problem small enough; returns how many were."""
    compared = 0
    for seed in seeds:
        problem = draw(random.Random(seed))
        try:
            period_ns = brute_force_period_ns(problem, most_orders=most_orders)
        except TooManyOrdersError:
            continue
        assert exhaustive_period_ns(problem) == period_ns, problem
        compared += 1
    return compared


@pytest.mark.parametrize("draw", DRAWS)
def test_the_search_finds_what_brute_force_finds(draw: Callable[[random.Random], Problem]) -> None:
    """Both have the same optimum on problems of every kind."""
    assert _count_agreeing(draw, range(80), 60) >= 10


@pytest.mark.slow
@pytest.mark.parametrize("draw", DRAWS)
def test_the_search_finds_what_brute_force_finds_in_many(draw: Callable[[random.Random], Problem]) -> None:
    """The same for a few hundred more and larger problems."""
    assert _count_agreeing(draw, range(1000, 1200), 900) >= 45
