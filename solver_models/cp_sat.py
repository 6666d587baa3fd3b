"""CP-SAT over the whole problem: exact, with bounds, for small and middling instances."""

from __future__ import annotations

import time

from planner.problem import Problem
from planner.schedule import Schedule
from solver_models.cp_sat_search import search
from solver_models.finish import finish, known_bound_ns
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
        A valid schedule to start from; the answer is never worse.

    Raises
    ------
    NoPlanError
        If a slot has no live worker or not even one microbatch fits.
    """
    started, deadline = time.monotonic(), options.deadline()
    floor = known_bound_ns(problem)
    given = SearchInput(
        solver="cp_sat",
        problem=problem,
        options=options,
        floor_ns=floor,
        deadline=deadline,
        hint=hint,
    )
    found = search(given, ignore_report)
    return finish(problem, "cp_sat", found, floor_ns=floor, started=started, hint=hint)
