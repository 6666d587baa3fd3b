"""PuLP's solution statuses as ours: total and distinct.

What PuLP calls *status* says "Optimal" at a time limit; its *solution status* tells a proof from a solution.
"""

from __future__ import annotations

import pulp

from solver_models.result import Status

STATUSES: dict[int, Status] = {
    pulp.LpSolutionOptimal: Status.OPTIMAL,
    pulp.LpSolutionIntegerFeasible: Status.FEASIBLE,
    pulp.LpSolutionNoSolutionFound: Status.NO_PLAN_BY_DEADLINE,
    pulp.LpSolutionInfeasible: Status.INFEASIBLE,
    pulp.LpSolutionUnbounded: Status.INVALID_MODEL,
}
"""Every solution status PuLP has. Periods are bounded below, so an unbounded program is a wrong one."""
