"""Searches for schedules of cells' stretched pipelines, each of which tells when a cell may run what.

How good a cell's schedule comes out of a stretched one is seen only when it is made: the period of the stretched one tells
little. So there are many short searches, of pipelines stretched in several ways and from several list schedules in turn, and
each is tried on the cell (docs/decisions/repair.md).
"""

from __future__ import annotations

from functools import partial

from planner.bounds import best_bound
from planner.problem import Problem
from solver_models import work
from solver_models.annealing.search import Annealer, Order, timed_order
from solver_models.cells import Cell
from solver_models.clock import Deadline
from solver_models.lanes import run_lanes
from solver_models.list_scheduling.routing import balanced_routing
from solver_models.list_scheduling.search import ListRun, ListSearch
from solver_models.list_scheduling.solve import NAME as LIST_SCHEDULING
from solver_models.result import SolveOptions
from solver_models.stretch import Stretch, starts_in_step, stretched_pipeline

_STRETCHES = (Stretch(busiest=False), Stretch(busiest=False, time_share=0.5), Stretch(busiest=True))
_LIST_TRIALS = 12
_LIST_STARTS = 8
_LIST_SHARE = 0.05
"""List schedules that each stretched pipeline gets whatever the deadline, how many of the best are annealed, and the share of the
time that is left after which there are no more."""

_SEARCHES = 24
"""Of each stretched pipeline in each lane."""

_MOST_IDLE_DRAWS = 14
"""So many draws in a row may leave the worst cell no better and still be followed by another."""

_PATIENCE_SHARES = (0.3,)
"""Tried with each schedule that was drawn."""

_SEED_STEP = 104_729
"""Between the seeds of two searches."""


def try_stretched(cells: list[Cell], options: SolveOptions, deadline: Deadline) -> None:
    """Make schedules of cells from those of their stretched pipelines, always for the worst cell and those that are like it.

    Parameters
    ----------
    cells
        Of one problem; each has a schedule.
    options
        The seed, and the number of searches side by side.
    deadline
        When to stop, but for the first list schedules of one stretched pipeline.
    """
    kinds: list[_Kind] = []
    for cell in cells:
        problems = [stretched_pipeline(cell.problem, cell.routing, stretch) for stretch in _STRETCHES]
        known = next((kind for kind in kinds if kind.problems == problems), None)
        if known is None:
            kinds.append(_Kind(problems, cell, options))
        else:
            known.cells.append(cell)
    while kinds and not deadline.passed:
        kind = max(kinds, key=lambda kind: kind.worst_cell.window_ns)
        cell = kind.worst_cell
        if cell.window_ns <= cell.target_ns or not (cell.advance() or kind.draw(deadline)):
            break


class _Kind:
    """Cells whose stretched pipelines are the same, and the searches of these."""

    def __init__(self, problems: list[Problem], cell: Cell, options: SolveOptions) -> None:
        self.problems, self.cells = problems, [cell]
        self._options = options
        self._turn, self._idle, self._window_ns = 0, 0, 2**62
        self._distinct = [one for i, one in enumerate(problems) if one not in problems[:i]]
        self._searches: list[_Search] = []

    @property
    def worst_cell(self) -> Cell:
        """The cell with the largest window."""
        return max(self.cells, key=lambda cell: cell.window_ns)

    def draw(self, deadline: Deadline) -> bool:
        """Search the next stretched pipeline and let all cells try what comes out; say whether that may still help."""
        window_ns = self.worst_cell.window_ns
        self._idle, self._window_ns = (0 if window_ns < self._window_ns else self._idle + 1), window_ns
        while self._idle <= _MOST_IDLE_DRAWS and self._turn < _SEARCHES * len(self._distinct):
            number, which = divmod(self._turn, len(self._distinct))
            self._turn += 1
            if number == 0:
                self._searches.append(_Search(self._distinct[which], self._options, deadline))
            search = self._searches[which]
            drawn = search.draw(number, deadline)
            for order in drawn:
                for cell in self.cells:
                    starts = starts_in_step(cell.problem, search.problem, order.schedule)
                    cell.take_starts(starts, _PATIENCE_SHARES)
            if drawn:
                return True
        return False


class _Search:
    """Short searches of one stretched pipeline."""

    def __init__(self, one: Problem, options: SolveOptions, deadline: Deadline) -> None:
        clock = deadline.clock
        self.problem, self._options = one, options
        self._target_ns = best_bound(one).value_ns
        clock.charge(work.bounds_s(one.num_operations))
        run = ListRun(ListSearch(one, balanced_routing(one), self._target_ns, clock))
        trials = run.until(deadline.rest().share(_LIST_SHARE), at_least=_LIST_TRIALS)[:_LIST_STARTS]
        orders = [timed_order(one, trial.network, trial.order(one), LIST_SCHEDULING, clock) for trial in trials]
        self._orders = sorted(orders, key=lambda order: order.period_ns)
        network = run.search.network
        self._annealers = [Annealer(one, network, self._target_ns) for _ in range(options.workers)]

    def draw(self, number: int, deadline: Deadline) -> list[Order]:
        """What one search in each lane comes to. None is made again from a list schedule that is optimal."""
        numbers = [number * len(self._annealers) + lane for lane in range(len(self._annealers))]
        numbers = [n for n in numbers if n < len(self._orders) or self._from(n).period_ns > self._target_ns]
        clocks = [deadline.clock.fork() for _ in numbers]
        searches = [
            partial(
                annealer.improve,
                self._from(n),
                deadline=deadline.by(clock),
                seed=self._options.seed + _SEED_STEP * n,
                stagnation=1,
            )
            for annealer, clock, n in zip(self._annealers, clocks, numbers, strict=False)
        ]
        if not searches:
            return []
        found = run_lanes(searches)
        deadline.clock.join(clocks)
        return found

    def _from(self, number: int) -> Order:
        return self._orders[number % len(self._orders)]
