"""The list-scheduling solver: the answer that is always there."""

from __future__ import annotations

import time

from planner.bounds import best_bound
from planner.problem import Problem
from solver_models import work
from solver_models.clock import Clock
from solver_models.list_scheduling.routing import balanced_routing
from solver_models.list_scheduling.search import ListRun, ListSearch, best_timed
from solver_models.result import SolveOptions, SolveResult

NAME = "list_scheduling"


def solve(problem: Problem, options: SolveOptions, clock: Clock | None = None) -> SolveResult:
    """Solve by the portfolio of list schedules.

    The first schedule is built whatever the deadline. The clock is a new one by default.

    Raises
    ------
    NoPlanError
        If a slot has no live worker or memory does not hold one microbatch.
    """
    started = time.monotonic()
    deadline = options.deadline(clock)
    problem.require_plannable()
    bound = best_bound(problem).value_ns
    target = int(bound * (1 + options.target_gap))
    deadline.clock.charge(work.bounds_s(problem.num_operations))
    run = ListRun(ListSearch(problem, balanced_routing(problem), target, deadline.clock))
    schedule, period = best_timed(problem, run.until(deadline), deadline.clock)
    return SolveResult.found(NAME, schedule, period, bound, time.monotonic() - started)
