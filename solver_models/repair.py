"""Repair: start from the schedule that every pipeline would run if nothing had failed, and mend it where something did.

A pipeline that lost no worker and takes in no microbatch of another one goes on as it was. The others fall into *cells*:
a broken pipeline with those that help it, and whatever shares a helper with them. Microbatches never leave their cell, so
each cell is a problem of its own, far smaller than the whole. It is scheduled by forward-backward passes whose first
priorities are the fault-free schedule's times. A fault-free pipeline is small enough to be solved well, and its schedule tells
each rerouted microbatch when its neighbours expect it; so few passes reach what many from constructed schedules do not.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from planner.bounds import best_bound
from planner.operation import Worker
from planner.problem import Problem
from planner.schedule import IntColumn, Schedule
from planner.timing import time_schedule
from solver_models.annealing.search import Order
from solver_models.annealing.solve import anneal_problem
from solver_models.list_scheduling.network import nodes_of
from solver_models.list_scheduling.routing import balanced_routing
from solver_models.list_scheduling.search import ListRun, ListSearch, Trial
from solver_models.result import SolveOptions
from solver_models.symmetry import repeat_pipeline

NAME = "repair"

MOST_KINDS = 3
"""Pipelines of more different numbers of microbatches are not repaired: each number is a problem of its own."""

_PATIENCE_SHARES = (0.8, 0.3, 1.0, 0.6, 0.5, 0.7, 0.9)
_FAULT_FREE_SHARE = 0.15
"""Share of the time for solving the fault-free pipelines."""


def repair(search: ListSearch, options: SolveOptions, deadline: float) -> Order | None:
    """Mend the fault-free schedule.

    Parameters
    ----------
    search
        The instance, who runs what, and the period at which to stop.
    options
        Limits of the search; ``deadline`` is a value of ``time.monotonic()``.

    Returns
    -------
    Order or None
        The best found; ``None`` where pipelines are of too many kinds, or a cell has no pass that ends in a schedule.
    """
    problem, routing, target_ns = search.problem, search.routing, search.target_ns
    kinds = sorted(set(problem.microbatches) - {0})
    if len(kinds) > MOST_KINDS:
        return None
    begun = time.monotonic()
    each = _FAULT_FREE_SHARE * (deadline - begun) / len(kinds)
    fault_free = {}
    for number, kind in enumerate(kinds, start=1):
        one = _one_pipeline(problem, kind)
        # As good as it gets, not as the target asks: what is left of it is what mending may cost.
        bound_ns = best_bound(one).value_ns
        lists = ListRun(ListSearch(one, balanced_routing(one), bound_ns))
        # So many cost no more than one construction of the whole.
        lists.until(begun, at_least=problem.num_pipelines)
        fault_free[kind] = anneal_problem(one, options, bound_ns, begun + each * number, lists=lists).schedule
    cells = [_Cell(problem, routing, pipelines, fault_free, target_ns) for pipelines in find_cells(problem, routing)]
    for cell in cells:
        cell.advance()
    # The period is the worst cell's, so that one is worked on.
    while (worst := max(cells, key=lambda cell: cell.window_ns)).window_ns > target_ns:
        if time.monotonic() >= deadline or not worst.advance():
            break
    orders = [cell.order() for cell in cells]
    found = [order for order in orders if order is not None]
    if len(found) < len(orders):
        return None
    schedule, period_ns = time_schedule(problem, _complete(problem, cells, found, fault_free))
    return Order(network=search.network, schedule=schedule, period_ns=period_ns, solver=NAME)


def find_cells(problem: Problem, routing: IntColumn) -> list[IntColumn]:
    """Pipelines that something failed in or is rerouted from or to, by who shares microbatches with whom.

    Returns
    -------
    list of arrays of int64
        Pipelines of each cell, ascending; cells by their first pipeline.
    """
    home = np.repeat(np.arange(problem.num_pipelines, dtype=np.int64), problem.microbatches)
    away = routing != home[:, None]
    pairs = np.stack([np.broadcast_to(home[:, None], routing.shape)[away], routing[away]], axis=1)
    cell_of = np.arange(problem.num_pipelines, dtype=np.int64)
    for a, b in np.unique(pairs, axis=0).tolist():
        low, high = sorted((int(cell_of[a]), int(cell_of[b])))
        cell_of[cell_of == high] = low
    touched = np.union1d(pairs, [worker.pipeline for worker in (*problem.dead, *problem.speeds_ppm)]).astype(np.int64)
    return [touched[cell_of[touched] == cell] for cell in np.unique(cell_of[touched])]


def _one_pipeline(problem: Problem, microbatches: int) -> Problem:
    return replace(problem, microbatches=(microbatches,), dead=frozenset(), speeds_ppm={})


def _starts(problem: Problem, schedule: Schedule, microbatches: int) -> IntColumn:
    """Start of each network node of one fault-free pipeline, shape ``(3 * V * M,)``; 0 for nodes it does not have."""
    starts = np.zeros(3 * problem.num_stages * microbatches, dtype=np.int64)
    starts[nodes_of(_one_pipeline(problem, microbatches), schedule)] = schedule.start_ns
    return starts


class _Cell:
    """The problem of one cell's pipelines alone, renumbered from 0, and the best pass so far."""

    def __init__(
        self,
        problem: Problem,
        routing: IntColumn,
        pipelines: IntColumn,
        fault_free: dict[int, Schedule],
        target_ns: int,
    ) -> None:
        self.pipelines = pipelines
        number = np.full(problem.num_pipelines, -1, dtype=np.int64)
        number[pipelines] = np.arange(len(pipelines))
        home = np.repeat(np.arange(problem.num_pipelines, dtype=np.int64), problem.microbatches)
        self._problem = replace(
            problem,
            microbatches=tuple(problem.microbatches[k] for k in pipelines.tolist()),
            dead=frozenset(Worker(int(number[w.pipeline]), w.slot) for w in problem.dead if number[w.pipeline] >= 0),
            speeds_ppm={
                Worker(int(number[w.pipeline]), w.slot): ppm
                for w, ppm in problem.speeds_ppm.items()
                if number[w.pipeline] >= 0
            },
        )
        self._search = ListSearch(self._problem, number[routing[number[home] >= 0]], target_ns)
        self._origin = np.concatenate([_starts(problem, fault_free[m], m) for m in self._problem.microbatches if m])
        self._more = self._passes()
        self._best: Trial | None = None

    @property
    def window_ns(self) -> int:
        """Largest window of the best pass; 0 where there is none yet."""
        return 0 if self._best is None else self._best.window_ns

    def advance(self) -> bool:
        """Try one more pass; say whether there was one."""
        trial = next(self._more, None)
        if trial is not None and (self._best is None or trial.window_ns < self._best.window_ns):
            self._best = trial
        return trial is not None

    def order(self) -> Schedule | None:
        """Order of the best pass, in the cell's own numbers of pipelines."""
        return None if self._best is None else self._best.order(self._problem)

    def _passes(self) -> Iterator[Trial]:
        for share in _PATIENCE_SHARES:
            yield from self._search.passes(self._origin, share)


def _complete(
    problem: Problem, cells: list[_Cell], orders: list[Schedule], fault_free: dict[int, Schedule]
) -> Schedule:
    """Order of the whole problem: the cells', and for each other pipeline the one of its number of microbatches."""
    parts = [_rows(order, cell.pipelines) for cell, order in zip(cells, orders, strict=True)]
    others = np.setdiff1d(
        np.arange(problem.num_pipelines), np.concatenate([cell.pipelines for cell in cells], dtype=np.int64)
    )
    microbatches = np.array(problem.microbatches, dtype=np.int64)
    for kind, order in fault_free.items():
        same = others[microbatches[others] == kind]
        parts.append(_rows(repeat_pipeline(order, len(same)), same))
    worker, *columns = np.concatenate(parts, axis=1)
    # A worker's rows all come from one part, where they stand in their order.
    by_worker = np.argsort(worker, kind="stable")
    counts = np.bincount(worker, minlength=problem.num_pipelines * problem.num_slots)
    kind_of, stage, pipeline, microbatch = (column[by_worker] for column in columns)
    zero = np.zeros(len(worker), dtype=np.int64)
    return Schedule(
        num_pipelines=problem.num_pipelines,
        num_slots=problem.num_slots,
        offsets=np.concatenate([[0], np.cumsum(counts)]),
        kind=kind_of,
        stage=stage,
        pipeline=pipeline,
        microbatch=microbatch,
        start_ns=zero,
        end_ns=zero,
    )


def _rows(order: Schedule, pipelines: IntColumn) -> IntColumn:
    """Worker, kind, stage, home pipeline and microbatch of each row, shape ``(5, rows)``, in the whole problem's numbers."""
    own = order.worker_of_row()
    worker = pipelines[own // order.num_slots] * order.num_slots + own % order.num_slots
    return np.stack([worker, order.kind, order.stage, pipelines[order.pipeline], order.microbatch])
