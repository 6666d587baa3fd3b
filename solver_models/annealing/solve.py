"""The annealing solver: the best list schedule, annealed under a few routings."""

from __future__ import annotations

import time

import numpy as np

from planner.bounds import best_bound
from planner.problem import Problem
from solver_models.annealing.search import Annealer, Order, timed_order
from solver_models.list_scheduling.routing import balanced_routing
from solver_models.list_scheduling.search import ListSearch, Trial, search_lists
from solver_models.result import SolveOptions, SolveResult, Status

NAME = "annealing"
LIST_SHARE = 0.3
"""Most of the time that list schedules may take before annealing starts."""

MOST_ANNEALED_OPERATIONS = 40_000
"""A larger problem is left to list schedules: a move that times the whole order costs too much."""
_ROUTINGS = 4
_RESTARTS = 12


def anneal_problem(problem: Problem, options: SolveOptions, target_ns: int, deadline: float) -> tuple[Order, str]:
    """Climb from list schedules to annealed orders, until the target, the deadline or the last restart.

    Parameters
    ----------
    problem, options
        The instance and its limits; ``deadline`` is a value of ``time.monotonic()``.
    target_ns
        Period at which to stop.

    Returns
    -------
    Order
        The best one found.
    str
        ``"list_scheduling"`` where no annealing improved on it, else ``"annealing"``.
    """
    begun = time.monotonic()
    large = 3 * problem.num_stages * problem.num_microbatches > MOST_ANNEALED_OPERATIONS
    list_deadline = deadline if large else begun + LIST_SHARE * (deadline - begun)
    rng = np.random.default_rng(options.seed)
    search = ListSearch(problem, balanced_routing(problem), target_ns)
    trials = search_lists(search, list_deadline)
    best = _best_order(problem, trials)
    if large or best.period_ns <= target_ns or time.monotonic() >= deadline:
        return best, "list_scheduling"
    starts = [best]
    for _ in range(_ROUTINGS if problem.dead or problem.speeds_ppm else 0):
        if time.monotonic() >= list_deadline:
            break
        other = ListSearch(problem, balanced_routing(problem, rng), target_ns)
        starts.append(_best_order(problem, search_lists(other, list_deadline)))
    starts.sort(key=lambda order: order.period_ns)
    best, listed_ns = starts[0], starts[0].period_ns
    for restart in range(_RESTARTS):
        if best.period_ns <= target_ns or time.monotonic() >= deadline:
            break
        # Every other restart goes on from the best so far, the rest from the other starts in turn.
        origin = best if restart % 2 == 0 else starts[(restart // 2 + 1) % len(starts)]
        annealer = Annealer(problem, origin.network, target_ns)
        found = annealer.improve(origin, deadline=deadline, seed=options.seed + 104_729 * restart)
        best = min(best, found, key=lambda order: order.period_ns)
    return best, "annealing" if best.period_ns < listed_ns else "list_scheduling"


def solve(problem: Problem, options: SolveOptions) -> SolveResult:
    """Solve by annealing from list schedules.

    Raises
    ------
    NoPlanError
        If a slot has no live worker or memory does not hold one microbatch.
    """
    started = time.monotonic()
    problem.require_plannable()
    bound = best_bound(problem).value_ns
    best, _ = anneal_problem(problem, options, int(bound * (1 + options.target_gap)), started + options.deadline_s)
    return SolveResult(
        status=Status.OPTIMAL if best.period_ns <= bound else Status.FEASIBLE,
        solver=NAME,
        schedule=best.schedule,
        period_ns=best.period_ns,
        bound_ns=bound,
        wall_s=time.monotonic() - started,
    )


def _best_order(problem: Problem, trials: list[Trial]) -> Order:
    timed = [timed_order(problem, trial.network, trial.order(problem)) for trial in trials[:3]]
    return min(timed, key=lambda order: order.period_ns)
