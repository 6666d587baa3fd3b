"""The one place that talks to PuLP's backends: CBC, HiGHS and SCIP."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulp
from pulp.apis.coin_api import pulp_cbc_path

from planner.errors import SolverCrashedError, SolverMissingError
from solver_models.milp_statuses import STATUSES
from solver_models.result import SolveOptions, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendAnswer:
    """What a backend said.

    Parameters
    ----------
    status
        How it ended; values are on the variables where it is ``OPTIMAL`` or ``FEASIBLE``.
    bound
        Lower bound on the objective it proved; ``None`` where it does not say.
    """

    status: Status
    bound: float | None


def run_backend(
    solver: str, lp: pulp.LpProblem, options: SolveOptions, *, limit_s: float, folder: Path
) -> BackendAnswer:
    """Solve a program.

    Parameters
    ----------
    solver
        ``milp_cbc``, ``milp_highs`` or ``milp_scip``.
    lp
        The program, minimising.
    options
        Seed, threads and target gap.
    limit_s
        Seconds the backend is told to take; it may not obey.
    folder
        Where a backend may leave files.

    Raises
    ------
    SolverMissingError
        If the backend is not installed.
    SolverCrashedError
        If it fails in its own way.
    """
    backend = _BACKENDS[solver](options, max(1e-2, limit_s))
    if not backend.available():
        raise SolverMissingError(f"solver {solver} is not installed")
    backend.tmpDir = str(folder)
    try:
        lp.solve(backend)
    except pulp.PulpError as error:
        raise SolverCrashedError(f"{solver} failed: {error}") from error
    status = STATUSES[lp.sol_status]
    if status is Status.FEASIBLE and any(variable.varValue is None for variable in lp.variables()):
        status = Status.NO_PLAN_BY_DEADLINE
    return BackendAnswer(status=status, bound=_bound(solver, lp, status, options))


def _bound(solver: str, lp: pulp.LpProblem, status: Status, options: SolveOptions) -> float | None:
    """Backend's own lower bound; CBC's is only known through the gap at which it calls a solution optimal."""
    bound = None
    if solver == "milp_highs":
        bound = float(lp.solverModel.getInfo().mip_dual_bound)
    elif solver == "milp_scip" and status is not Status.INFEASIBLE:
        bound = float(lp.solverModel.getDualbound())
    elif status is Status.OPTIMAL:
        bound = float(pulp.value(lp.objective)) * (1 - options.target_gap)
    return bound if bound is not None and math.isfinite(bound) and abs(bound) < 1e19 else None


def _cbc(options: SolveOptions, limit_s: float) -> Any:
    # The CBC that PuLP bundles, without the class that PuLP deprecates for it.
    return pulp.COIN_CMD(
        path=pulp_cbc_path,
        msg=False,
        timeLimit=limit_s,
        gapRel=options.target_gap,
        gapAbs=0,
        threads=options.workers,
        options=[f"randomSeed {options.seed}", f"randomCbcSeed {options.seed}"],
    )


def _highs(options: SolveOptions, limit_s: float) -> Any:
    return pulp.HiGHS(
        msg=False,
        timeLimit=limit_s,
        gapRel=options.target_gap,
        gapAbs=0.0,
        threads=options.workers,
        random_seed=options.seed,
    )


def _scip(options: SolveOptions, limit_s: float) -> Any:
    return pulp.SCIP_PY(
        msg=False,
        timeLimit=limit_s,
        gapRel=options.target_gap,
        options=[f"randomization/randomseedshift={options.seed}"],
    )


_BACKENDS: dict[str, Callable[[SolveOptions, float], Any]] = {
    "milp_cbc": _cbc,
    "milp_highs": _highs,
    "milp_scip": _scip,
}
