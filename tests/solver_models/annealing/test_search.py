"""Rounds and one long cooling, on a clock that counts work."""

from __future__ import annotations

import pytest

from planner.operation import Worker
from planner.validation import require_valid
from solver_models.annealing.search import Annealer, Order, timed_order
from solver_models.clock import Deadline, WorkClock
from solver_models.list_scheduling.routing import balanced_routing
from solver_models.list_scheduling.search import ListSearch
from tests.problems import tight_problem

PROBLEM = tight_problem(5, 4, 4, dead=[Worker(2, 1)])


def _start(target_ns: int = 0, workers: int = 1) -> tuple[Annealer, Order]:
    search = ListSearch(PROBLEM, balanced_routing(PROBLEM), target_ns)
    trial = search.by_rounds(0.0, 1.0, 1.0)
    order = timed_order(PROBLEM, trial.network, trial.order(PROBLEM), "list_scheduling")
    return Annealer(PROBLEM, trial.network, target_ns, workers), order


def _cooled(seed: int, workers: int = 1) -> tuple[Order, Deadline]:
    annealer, order = _start(workers=workers)
    deadline = Deadline.after(0.15, WorkClock())
    warmed = annealer.round(order, deadline.share(0.01), seed, 0, 0)
    return annealer.cool(warmed, deadline, seed), deadline


def test_cooling_takes_the_time_there_is_and_keeps_every_constraint() -> None:
    """It stops at the deadline, with an order that is no worse than the one it began with."""
    _, order = _start()
    found, deadline = _cooled(3)
    assert deadline.passed
    assert found.period_ns < order.period_ns
    require_valid(PROBLEM, found.schedule, found.period_ns)


@pytest.mark.parametrize("workers", [1, 3])
def test_a_cooling_that_counts_work_comes_out_the_same_again(workers: int) -> None:
    """Temperatures follow the clock, so the same work gives the same order, whichever lane is done first."""
    first, second = _cooled(5, workers)[0], _cooled(5, workers)[0]
    assert first.period_ns == second.period_ns
    assert first.schedule.microbatch.tolist() == second.schedule.microbatch.tolist()


def test_cooling_a_small_order_is_over_in_time() -> None:
    """A slice would hold more moves than there is time for; the pace is known from a round."""
    annealer, order = _start()
    clock = WorkClock()
    annealer.round(order, Deadline.after(1.0, clock), 0, 0, 0)
    before = clock.now()
    annealer.cool(order, Deadline.after(0.05, clock), 0)
    assert 0.05 <= clock.now() - before < 0.075


def test_cooling_ends_where_the_target_is_met() -> None:
    """No more work is done than the slice in which that happens."""
    _, order = _start()
    annealer, _ = _start(target_ns=order.period_ns)
    deadline = Deadline.after(1e6, WorkClock())
    assert annealer.cool(order, deadline, 1).period_ns <= order.period_ns
    assert not deadline.passed


def test_moves_that_there_is_time_for_follow_from_the_pace() -> None:
    """Unknown before the first move; then in proportion to the time left."""
    annealer, order = _start()
    clock = WorkClock()
    assert annealer.moves_left(Deadline.after(1.0, clock)) == 0
    annealer.round(order, Deadline.after(1.0, clock), 0, 0, 0)
    once, twice = (annealer.moves_left(Deadline.after(seconds, clock)) for seconds in (1.0, 2.0))
    assert once > 0
    assert twice == pytest.approx(2 * once)
