"""Repairs that begin anew where much time is left."""

from __future__ import annotations

import pytest

from planner.operation import Worker
from planner.validation import require_valid
from solver_models import portfolio
from solver_models.annealing.search import Order
from solver_models.cells import MOST_IDLE_ROUNDS
from solver_models.clock import Deadline, WorkClock
from solver_models.list_scheduling.routing import balanced_routing
from solver_models.list_scheduling.search import ListRun, ListSearch
from solver_models.repair import repair
from solver_models.result import SolveOptions
from tests.problems import tight_problem

PROBLEM = tight_problem(4, 3, 4, dead=[Worker(0, 1)], capacity=30)


def _mended(least_s: float, monkeypatch: pytest.MonkeyPatch) -> tuple[Order, list[tuple[int, int]]]:
    """What comes of 1.5 work seconds, and the seed and idle rounds of each repair."""
    calls = []

    def told(lists: ListRun, options: SolveOptions, deadline: Deadline, idle_rounds: int) -> Order | None:
        calls.append((options.seed, idle_rounds))
        return repair(lists, options, deadline, idle_rounds)

    monkeypatch.setattr(portfolio, "repair", told)
    monkeypatch.setattr(portfolio, "_LEAST_MENDING_S", least_s)
    clock = WorkClock()
    lists = ListRun(ListSearch(PROBLEM, balanced_routing(PROBLEM), 0, clock))
    found = portfolio._mend(lists, SolveOptions(seed=7), Deadline.after(1.5, clock))
    assert found is not None
    require_valid(PROBLEM, found.schedule, found.period_ns)
    return found, calls


def test_with_little_time_there_is_one_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has all the idle rounds there are."""
    _, calls = _mended(10.0, monkeypatch)
    assert calls == [(7, MOST_IDLE_ROUNDS)]


def test_with_much_time_repairs_follow_each_other_and_the_best_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a seed of its own and fewer idle rounds; what comes out is no worse than the first alone."""
    found, calls = _mended(0.2, monkeypatch)
    assert len(calls) > 1
    assert len({seed for seed, _ in calls}) == len(calls)
    assert calls[0][1] < MOST_IDLE_ROUNDS
    clock = WorkClock()
    lists = ListRun(ListSearch(PROBLEM, balanced_routing(PROBLEM), 0, clock))
    first = repair(lists, SolveOptions(seed=7), Deadline.after(1.5, clock), calls[0][1])
    assert first is not None
    assert found.period_ns <= first.period_ns
