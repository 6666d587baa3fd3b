"""CP-SAT's statuses as ours: total and distinct."""

from __future__ import annotations

from ortools.sat.python import cp_model

from solver_models.result import Status

STATUSES: dict[object, Status] = {
    cp_model.OPTIMAL: Status.OPTIMAL,
    cp_model.FEASIBLE: Status.FEASIBLE,
    cp_model.INFEASIBLE: Status.INFEASIBLE,
    cp_model.UNKNOWN: Status.NO_PLAN_BY_DEADLINE,
    cp_model.MODEL_INVALID: Status.INVALID_MODEL,
}
"""Every status CP-SAT has. ``UNKNOWN`` is a limit that was reached; only ``INFEASIBLE`` is a proof."""
