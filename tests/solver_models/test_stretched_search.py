"""Trying schedules of stretched pipelines on cells."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from planner.bounds import best_bound
from planner.operation import Worker
from planner.problem import Problem
from planner.timing import time_schedule
from planner.validation import require_valid
from solver_models.cells import Cell, find_cells
from solver_models.clock import Deadline, WorkClock
from solver_models.list_scheduling.routing import balanced_routing
from solver_models.result import SolveOptions
from solver_models.stretched_search import try_stretched
from tests.problems import tight_problem

PROBLEM = tight_problem(20, 4, 8, dead=[Worker(0, 1), Worker(10, 3)], capacity=30)


def _cells(problem: Problem, target_ns: int, clock: WorkClock) -> list[Cell]:
    """Its cells, whose first schedules run one microbatch after the other."""
    routing = balanced_routing(problem)
    cells = [Cell(problem, routing, pipelines, target_ns, clock) for pipelines in find_cells(problem, routing)]
    for cell in cells:
        starts = np.arange(3 * cell.problem.num_stages * sum(cell.problem.microbatches), dtype=np.int64)
        cell.take_starts(starts, (0.8,))
        while cell.advance():
            pass
    return cells


@pytest.mark.parametrize("workers", [1, 2])
def test_every_cell_gets_a_better_schedule_that_is_valid(workers: int) -> None:
    """Two failures in different slots are two kinds of cells; both gain, and the same seed gives the same again."""

    def run() -> list[int]:
        clock = WorkClock()
        cells = _cells(PROBLEM, 0, clock)
        assert len(cells) == 2
        before = [cell.window_ns for cell in cells]
        try_stretched(cells, SolveOptions(workers=workers), Deadline.after(0.3, clock))
        for cell, window_ns in zip(cells, before, strict=True):
            assert cell.window_ns < window_ns
            schedule, period_ns = time_schedule(cell.problem, cell.order())
            require_valid(cell.problem, schedule, period_ns)
            assert best_bound(cell.problem).value_ns <= period_ns <= cell.window_ns
        return [cell.window_ns for cell in cells]

    assert run() == run()


def test_searches_end_once_they_find_nothing_more() -> None:
    """With all the time there is, the last draws in a row gain nothing, and the rest of it is not taken."""
    clock = WorkClock()
    deadline = Deadline.after(3600, clock)
    try_stretched(_cells(PROBLEM, 0, clock), SolveOptions(), deadline)
    assert not deadline.passed


def test_cells_at_their_target_are_left_alone() -> None:
    """Nothing is searched, so no work is counted."""
    clock = WorkClock()
    cells = _cells(PROBLEM, 2**60, clock)
    before = clock.now()
    try_stretched(cells, SolveOptions(), Deadline.after(1, clock))
    assert clock.now() == before


def test_what_is_drawn_for_one_cell_is_tried_on_those_like_it() -> None:
    """Time for a single draw: with failures in one slot it waits for both cells, in different slots for the worst alone."""
    waiting = []
    for slot in (1, 3):
        clock = WorkClock()
        cells = _cells(replace(PROBLEM, dead=frozenset({Worker(0, 1), Worker(10, slot)})), 0, clock)
        try_stretched(cells, SolveOptions(), Deadline.after(1e-6, clock))
        waiting.append([cell.advance() for cell in cells])
    assert waiting[0] == [True, True]
    assert sorted(waiting[1]) == [False, True]
