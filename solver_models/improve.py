"""Large-neighbourhood search with CP-SAT, for instances beyond the exact model."""

from __future__ import annotations

import time

from planner.problem import Problem
from planner.schedule import Schedule
from solver_models import list_scheduling
from solver_models.finish import finish, known_bound_ns
from solver_models.improve_search import search
from solver_models.result import SolveOptions, SolveResult
from solver_models.search import SearchInput, ignore_report


def solve(problem: Problem, options: SolveOptions, *, hint: Schedule | None = None) -> SolveResult:
    """Search in this process; :func:`solver_models.registry.solve` does so in a child with a hard deadline.

    Parameters
    ----------
    problem
        The instance.
    options
        Limits.
    hint
        A valid, timed schedule to start from; ``None`` for the list schedule. The answer is never worse.

    Raises
    ------
    OptionError
        If the schedule has more than :data:`solver_models.improve_search.MAX_OPERATIONS` operations.
    NoPlanError
        If a slot has no live worker or not even one microbatch fits.
    """
    started = time.monotonic()
    deadline = options.deadline()
    start = hint if hint is not None else list_scheduling.solve(problem, options, deadline.clock).schedule
    floor = known_bound_ns(problem)
    given = SearchInput(
        solver="improve",
        problem=problem,
        options=options,
        floor_ns=floor,
        deadline=deadline,
        hint=start,
    )
    return finish(problem, "improve", search(given, ignore_report), floor_ns=floor, started=started, hint=start)
