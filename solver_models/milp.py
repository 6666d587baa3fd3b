"""The paper's integer program: the reference, for small instances and the benchmark suite."""

from __future__ import annotations

import time

from planner.errors import OptionError
from planner.problem import Problem
from solver_models.finish import finish, known_bound_ns
from solver_models.milp_search import search
from solver_models.result import SolveOptions, SolveResult
from solver_models.search import SEARCH_MODULES, SearchInput, ignore_report


def solve(problem: Problem, options: SolveOptions, *, solver: str = "milp_highs") -> SolveResult:
    """Search in this process; :func:`solver_models.registry.solve` does so in a child with a hard deadline.

    Parameters
    ----------
    problem
        The instance, small: see :data:`solver_models.milp_search.MAX_PAIRS`.
    options
        Limits; a backend may overrun its deadline here.
    solver
        ``milp_cbc``, ``milp_highs`` or ``milp_scip``.

    Raises
    ------
    OptionError
        If there is no such backend or the problem is too large.
    SolverMissingError
        If the backend is not installed.
    NoPlanError
        If a slot has no live worker.
    """
    if SEARCH_MODULES.get(solver) != "solver_models.milp_search":
        raise OptionError(f"{solver!r} does not solve integer programs; expected milp_cbc, milp_highs or milp_scip")
    started, deadline = time.monotonic(), options.deadline()
    floor = known_bound_ns(problem)
    given = SearchInput(solver=solver, problem=problem, options=options, floor_ns=floor, deadline=deadline)
    return finish(problem, solver, search(given, ignore_report), floor_ns=floor, started=started)
