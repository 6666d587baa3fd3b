"""The annealing solver: the best list schedule, annealed under a few routings."""

from __future__ import annotations

import time

import numpy as np

from planner.bounds import best_bound
from planner.problem import Problem
from solver_models import work
from solver_models.annealing.search import NAME, Annealer, Order, timed_order
from solver_models.clock import Clock, Deadline
from solver_models.list_scheduling.routing import balanced_routing
from solver_models.list_scheduling.search import ListRun, ListSearch, Trial
from solver_models.list_scheduling.solve import NAME as LIST_SCHEDULING
from solver_models.result import SolveOptions, SolveResult

LIST_SHARE = 0.3
"""Most of the time that list schedules may take before annealing starts."""

MOST_ANNEALED_OPERATIONS = 40_000
"""A larger problem is left to list schedules: a move that times the whole order costs too much."""
_ROUTINGS = 4
_LEAST_RESTARTS = 12
_RESTARTS_PER_OPERATION = 0.05


def anneal_problem(
    problem: Problem,
    options: SolveOptions,
    target_ns: int,
    deadline: Deadline,
    *,
    lists: ListRun | None = None,
    found: Order | None = None,
) -> Order:
    """Climb from list schedules to annealed orders, until the target, the deadline or the last restart.

    Parameters
    ----------
    problem, options
        The instance and the seed.
    target_ns
        Period at which to stop.
    deadline
        When to stop at the latest, but for a first list schedule.
    lists
        List schedules tried before; they are gone on with. By default they begin here, under the balanced routing.
    found
        An order from elsewhere to start from too.

    Returns
    -------
    Order
        The best one found.
    """
    large = problem.num_operations > MOST_ANNEALED_OPERATIONS
    clock, listing = deadline.clock, deadline if large else deadline.rest().share(LIST_SHARE)
    rng = np.random.default_rng(options.seed)
    lists = lists or ListRun(ListSearch(problem, balanced_routing(problem), target_ns, clock))
    starts = [_best_order(problem, lists.until(listing), clock)] + ([found] if found is not None else [])
    best = min(starts, key=lambda order: order.period_ns)
    if large or best.period_ns <= target_ns or deadline.passed:
        return best
    if lists.search.network.chunks > 1:
        # Where slots hold several stages annealing ends in different valleys, by the rule whose schedule it starts from.
        others = [trial for trial in lists.best_of_rule.values() if trial is not lists.best[0]]
        starts.extend(_best_order(problem, [trial], clock) for trial in others)
    for _ in range(_ROUTINGS if problem.dead or problem.speeds_ppm else 0):
        if listing.passed:
            break
        other = ListRun(ListSearch(problem, balanced_routing(problem, rng), target_ns, clock))
        starts.append(_best_order(problem, other.until(listing), clock))
    starts.sort(key=lambda order: order.period_ns)
    best = starts[0]
    restarts = max(_LEAST_RESTARTS, int(_RESTARTS_PER_OPERATION * len(starts[0].schedule.kind)))
    for restart in range(restarts):
        if best.period_ns <= target_ns or deadline.passed:
            break
        # Every other restart goes on from the best so far, the rest from the other starts in turn.
        origin = best if restart % 2 == 0 else starts[(restart // 2 + 1) % len(starts)]
        annealer = Annealer(problem, origin.network, target_ns, options.workers)
        improved = annealer.improve(origin, deadline=deadline, seed=options.seed + 104_729 * restart)
        best = min(best, improved, key=lambda order: order.period_ns)
    return best


def solve(problem: Problem, options: SolveOptions, clock: Clock | None = None) -> SolveResult:
    """Solve by annealing from list schedules; the clock is a new one by default.

    Raises
    ------
    NoPlanError
        If a slot has no live worker or memory does not hold one microbatch.
    """
    started = time.monotonic()
    deadline = options.deadline(clock)
    problem.require_plannable()
    bound = best_bound(problem).value_ns
    deadline.clock.charge(work.bounds_s(problem.num_operations))
    best = anneal_problem(problem, options, int(bound * (1 + options.target_gap)), deadline)
    return SolveResult.found(NAME, best.schedule, best.period_ns, bound, time.monotonic() - started)


def _best_order(problem: Problem, trials: list[Trial], clock: Clock) -> Order:
    timed = [timed_order(problem, trial.network, trial.order(problem), LIST_SCHEDULING, clock) for trial in trials[:3]]
    return min(timed, key=lambda order: order.period_ns)
