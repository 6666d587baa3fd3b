"""Turns what a search found into a result: exact times, the period, and what is proved by it."""

from __future__ import annotations

import time

from planner.bounds import best_bound
from planner.errors import InvalidScheduleError, MemoryTooSmallError
from planner.problem import Problem
from planner.schedule import Schedule
from planner.timing import time_schedule
from solver_models.result import SolveResult, Status
from solver_models.search import Found


def finish(
    problem: Problem, solver: str, found: Found, *, floor_ns: int, started: float, hint: Schedule | None = None
) -> SolveResult:
    """Time the best order at full resolution and decide the status by its period.

    ``OPTIMAL`` is claimed exactly where the recomputed period equals the proved bound, whatever the model said: a
    model may be coarser than a nanosecond and knows nothing of (12), the FIFO links.

    Parameters
    ----------
    problem
        The instance.
    solver
        Name for the result.
    found
        What the search found.
    floor_ns
        Lower bound that was known before.
    started
        ``time.monotonic()`` value from which ``wall_s`` counts.
    hint
        The schedule the search started from: the answer is never worse than it.
    """
    detail, status = found.detail, found.status
    best: Schedule | None = None
    period: int | None = None
    for candidate in (found.schedule, hint):
        if candidate is None:
            continue
        try:
            timed, candidate_period = time_schedule(problem, candidate)
        except InvalidScheduleError as error:
            status, detail = Status.INVALID_MODEL, f"the order cannot run: {error.message}"
            continue
        if period is None or candidate_period < period:
            best, period = timed, candidate_period
    bound = max(found.bound_ns, floor_ns)
    if period is not None and status is not Status.INVALID_MODEL and status is not Status.CRASHED:
        status = Status.OPTIMAL if period <= bound else Status.FEASIBLE
    return SolveResult(
        status=status,
        solver=solver,
        schedule=best,
        period_ns=period,
        bound_ns=bound,
        wall_s=time.monotonic() - started,
        detail=detail,
    )


def known_bound_ns(problem: Problem) -> int:
    """Best lower bound that needs no search, in nanoseconds.

    Raises
    ------
    StageLostError
        If a slot has no live worker.
    """
    try:
        return best_bound(problem).value_ns
    except MemoryTooSmallError:
        # Where a slot holds several stages its peers might still share them: whether they can is for the search to prove.
        return 0
