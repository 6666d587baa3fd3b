"""A cell's own problem, and what is done to its orders."""

from __future__ import annotations

import numpy as np
import pytest

from planner.operation import Worker
from planner.timing import time_schedule
from planner.validation import require_valid
from solver_models.cells import Cell, find_cells
from solver_models.clock import Deadline, WorkClock
from solver_models.list_scheduling.routing import balanced_routing
from solver_models.list_scheduling.search import ListSearch
from solver_models.result import SolveOptions
from tests.problems import tight_problem

PROBLEM = tight_problem(12, 4, 4, dead=[Worker(6, 1)])


def _cell() -> Cell:
    routing = balanced_routing(PROBLEM)
    (pipelines,) = find_cells(PROBLEM, routing)
    return Cell(PROBLEM, routing, pipelines, 0)


def _passes(cell: Cell) -> int:
    """How many passes wait; afterwards none does."""
    return sum(1 for _ in iter(cell.advance, False))


def test_a_cell_is_a_problem_of_its_own() -> None:
    """Worker 6/1 and its four helpers, numbered from 0: as many microbatches, the same worker dead, nobody else's routing."""
    cell = _cell()
    assert cell.problem.microbatches == (4,) * 5
    (dead,) = cell.problem.dead
    assert cell.pipelines[dead.pipeline] == 6
    assert dead.slot == 1
    assert cell.routing.shape == (20, 4)
    assert cell.routing.min() == 0
    assert cell.routing.max() == 4


def test_passes_come_from_starts_and_end() -> None:
    """Two patience shares; at each a forward pass and two there and back."""
    cell = _cell()
    assert not cell.advance()
    cell.take_starts(np.zeros(3 * 4 * 20, dtype=np.int64), (0.8, 0.3))
    assert _passes(cell) == 2 * (1 + 2)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_best_starts_get_the_patience_they_have_not_had(place: int) -> None:
    """Of three starts two are kept, each with six more patience shares, but not the worst, which had two; nothing gets worse."""
    cell = _cell()
    came_out = []
    for seed in np.insert([3, 4], place, 5).tolist():
        starts, shares = np.random.default_rng(seed).permutation(3 * 4 * 20), (0.3, 0.8) if seed == 5 else (0.3,)
        alone = _cell()
        for one in (alone, cell):
            one.take_starts(starts, shares)
            assert _passes(one) == len(shares) * (1 + 2)
        came_out.append(alone.window_ns)
    before = cell.window_ns
    assert came_out[place] > sorted(came_out)[1] >= before
    cell.take_best_again()
    assert _passes(cell) == 6 * 2 * (1 + 2)
    assert cell.window_ns <= before


def test_starts_that_come_together_are_all_tried_before_any_is_given_up() -> None:
    """The worst comes twice, second and last: the others get six more patience shares each."""
    cell = _cell()
    for seed in (3, 5, 4, 5):
        starts = np.random.default_rng(seed).permutation(3 * 4 * 20)
        cell.take_starts(starts, (0.3, 0.8) if seed == 5 else (0.3,))
    cell.take_best_again()
    assert _passes(cell) == (1 + 2 + 1 + 2) * (1 + 2) + 6 * 2 * (1 + 2)


def test_only_a_better_schedule_is_taken() -> None:
    """Without waiting the rules by rounds find one schedule, waiting for everything another: the better one stays."""
    cell = _cell()
    search = ListSearch(cell.problem, cell.routing, 0)
    trials = sorted((search.by_rounds(0.0, None, 0.0), search.by_rounds(0.0, 1.0, 1.0)), key=lambda t: t.window_ns)
    cell.offer(trials[1])
    assert cell.window_ns == trials[1].window_ns
    cell.offer(trials[0])
    cell.offer(trials[1])
    assert cell.window_ns == trials[0].window_ns


def test_annealing_keeps_the_best_and_every_constraint() -> None:
    """From one microbatch after the other to something shorter; the period told is that of the order."""
    cell = _cell()
    cell.take_starts(np.arange(3 * 4 * 20, dtype=np.int64), (0.8,))
    cell.advance()
    before = cell.window_ns
    cell.anneal(Deadline.after(60, WorkClock()), SolveOptions(seed=1))
    assert cell.window_ns < before
    schedule, period = time_schedule(cell.problem, cell.order())
    assert period == cell.window_ns
    require_valid(cell.problem, schedule, period)


def test_a_cell_alone_cools_once_where_time_is_neither_short_nor_long() -> None:
    """After two rounds, whose pace tells how many moves there is time for."""
    clock = WorkClock()
    cell = _cell()
    cell.take_starts(np.arange(3 * 4 * 20, dtype=np.int64), (0.8,))
    cell.advance()
    for _ in range(2):
        cell.anneal(Deadline.after(60, clock), SolveOptions(seed=1), alone=True)
    before, deadline = cell.window_ns, Deadline.after(0.1, clock)
    cell.anneal(deadline, SolveOptions(seed=1), alone=True)
    assert deadline.passed
    assert cell.window_ns <= before
