"""A template: what a plan of a canonical problem has to be remembered by to answer a failure within moments.

The schedule itself is only needed once programs are made.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.failure_key import FailureKey
from planner.matching import reroutes_of
from planner.peer_pairs import schedule_pairs
from planner.plan import Plan, PlanStatus
from planner.problem import Problem
from planner.schedule import IntColumn


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Template:
    """Facts of a plan of a canonical problem.

    Parameters
    ----------
    plan_id, job_sha256
        Identity of the plan, and of the job that it is for.
    problem, failure_key
        The canonical problem and its key.
    period_ns, bound_ns, bound_name, bound_slot, status, fault_free_ns, solver
        As in :class:`planner.plan.Plan`.
    reroutes
        Shape ``(R, 4)``: rerouted microbatches, rows ``(home, slot, helper, count)``.
    pairs
        Shape ``(n, 2)``: canonical workers that send each other messages, see :mod:`planner.peer_pairs`.
    """

    plan_id: str
    job_sha256: str
    problem: Problem
    failure_key: FailureKey
    period_ns: int
    bound_ns: int
    bound_name: str
    bound_slot: int | None
    status: PlanStatus
    fault_free_ns: int
    solver: str
    reroutes: IntColumn
    pairs: IntColumn


def template_of(plan: Plan) -> Template:
    """What has to be remembered of a plan of a canonical problem."""
    return Template(
        plan_id=plan.plan_id,
        job_sha256=plan.job_sha256,
        problem=plan.problem,
        failure_key=plan.failure_key,
        period_ns=plan.period_ns,
        bound_ns=plan.bound_ns,
        bound_name=plan.bound_name,
        bound_slot=plan.bound_slot,
        status=plan.status,
        fault_free_ns=plan.fault_free_ns,
        solver=plan.solver,
        reroutes=reroutes_of(plan.schedule),
        pairs=schedule_pairs(plan.schedule),
    )
