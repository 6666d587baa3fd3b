"""Repair: start from the schedule that every pipeline would run if nothing had failed, and mend it where something did.

A pipeline that lost no worker and takes in no microbatch of another one goes on as it was. The others fall into cells
(:mod:`solver_models.cells`), each far smaller than the whole. A fault-free pipeline is small enough to be solved well, and so
are the stretched ones (:mod:`solver_models.stretched_search`) that have a cell's rates; their schedules tell each rerouted
microbatch when its neighbours expect it. So few passes reach what many from constructed schedules do not. Then the worst cell
is annealed.
"""

from __future__ import annotations

import numpy as np

from planner.bounds import best_bound
from planner.problem import Problem
from planner.schedule import IntColumn, Schedule
from planner.timing import time_schedule
from solver_models import work
from solver_models.annealing.search import Order
from solver_models.annealing.solve import MOST_ANNEALED_OPERATIONS, anneal_problem
from solver_models.cells import MOST_IDLE_ROUNDS, Cell, find_cells
from solver_models.clock import Deadline
from solver_models.list_scheduling.routing import balanced_routing
from solver_models.list_scheduling.search import ListRun, ListSearch
from solver_models.result import SolveOptions
from solver_models.stretch import starts_in_step
from solver_models.stretched_search import try_stretched
from solver_models.symmetry import one_pipeline, repeat_pipeline

NAME = "repair"

MOST_KINDS = 3
"""Pipelines of more different numbers of microbatches are not repaired: each number is a problem of its own."""

_FAULT_FREE_SHARE = 0.05
_STRETCHED_SHARE = 0.45
_PASSES_SHARE = 0.55
"""Shares of the time after which the fault-free pipelines, the stretched ones, and passes hand on to the next."""

_SOUND_PATIENCE_SHARES = (0.8, 0.3)
"""Tried with the fault-free schedule before a pipeline is stretched."""


def repair(
    lists: ListRun, options: SolveOptions, deadline: Deadline, idle_rounds: int = MOST_IDLE_ROUNDS
) -> Order | None:
    """Mend the fault-free schedule.

    Parameters
    ----------
    lists
        Schedules of the whole instance, under the routing and with the target that are meant here too. A single cell that has all
        pipelines starts from the best of them too.
    options
        The seed.
    deadline
        When to stop at the latest, but for the first schedules.
    idle_rounds
        Rounds of annealing in a row without a gain, at least 1, after which the worst cell is left as it is, and so all are.

    Returns
    -------
    Order or None
        The best found; ``None`` where pipelines are of too many kinds.
    """
    search = lists.search
    problem, routing, target_ns = search.problem, search.routing, search.target_ns
    kinds = sorted(set(problem.microbatches) - {0})
    if len(kinds) > MOST_KINDS:
        return None
    span, clock = deadline.rest(), deadline.clock
    # As good as it gets, not as the target asks: what is left of it is what mending may cost.
    alone = [one_pipeline(problem, kind) for kind in kinds]
    bounds_ns = [best_bound(one).value_ns for one in alone]
    clock.charge(sum(work.bounds_s(one.num_operations) for one in alone))
    # So many trials cost no more than one construction of the whole.
    until, trials = span.share(_FAULT_FREE_SHARE), problem.num_pipelines
    fault_free = {
        kind: _solve_one(one, bound_ns, options, until, trials)
        for kind, one, bound_ns in zip(kinds, alone, bounds_ns, strict=True)
    }
    cells = [Cell(problem, routing, pipelines, target_ns, clock) for pipelines in find_cells(problem, routing)]
    for cell in cells:
        kind = max(cell.problem.microbatches)
        sound = starts_in_step(cell.problem, one_pipeline(problem, kind), fault_free[kind])
        cell.take_starts(sound, _SOUND_PATIENCE_SHARES)
        cell.advance()
        if len(cell.pipelines) == problem.num_pipelines and lists.best:
            cell.offer(lists.best[0])
    try_stretched(cells, options, span.share(_STRETCHED_SHARE))
    for cell in cells:
        cell.take_best_again()
    _work_on_worst(cells, target_ns, options, span.share(_PASSES_SHARE), deadline, idle_rounds)
    schedule, period_ns = time_schedule(problem, _complete(problem, cells, fault_free))
    clock.charge(work.timing_s(schedule.num_operations))
    return Order(network=search.network, schedule=schedule, period_ns=period_ns, solver=NAME)


def _solve_one(one: Problem, target_ns: int, options: SolveOptions, deadline: Deadline, trials: int) -> Schedule:
    """Schedule of a problem of one pipeline, from so many list schedules whatever the deadline."""
    run = ListRun(ListSearch(one, balanced_routing(one), target_ns, deadline.clock))
    run.until(deadline.share(0.0), at_least=trials)
    return anneal_problem(one, options, target_ns, deadline, lists=run).schedule


def _work_on_worst(
    cells: list[Cell],
    target_ns: int,
    options: SolveOptions,
    passes_until: Deadline,
    deadline: Deadline,
    idle_rounds: int,
) -> None:
    """Improve whatever cell has the largest window, since it makes the period: passes first, then annealing."""
    while cells and (worst := max(cells, key=lambda cell: cell.window_ns)).window_ns > target_ns:
        if passes_until.passed or not worst.advance():
            break
    while cells and (worst := max(cells, key=lambda cell: cell.window_ns)).window_ns > target_ns:
        if worst.problem.num_operations > MOST_ANNEALED_OPERATIONS or deadline.passed:
            break
        if not worst.anneal(deadline, options, alone=len(cells) == 1, idle_rounds=idle_rounds):
            break


def _complete(problem: Problem, cells: list[Cell], fault_free: dict[int, Schedule]) -> Schedule:
    """Order of the whole problem: the cells', and for each other pipeline the one of its number of microbatches."""
    parts = [_rows(cell.order(), cell.pipelines) for cell in cells]
    others = np.setdiff1d(np.arange(problem.num_pipelines), [k for cell in cells for k in cell.pipelines.tolist()])
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
