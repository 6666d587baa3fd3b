"""What a plan says beside its schedule, compared with what its problem and schedule say themselves.

A plan file's hash only tells that nothing was damaged: whoever edits a file may hash it again. So all that can be worked out
again is, here; :func:`unproved_claims` names what cannot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from planner.baseline import baseline_period_ns, fault_free
from planner.bounds import Bound, best_bound
from planner.errors import InvalidScheduleError, ProblemError
from planner.failure_key import failure_key
from planner.migration import Migration, apply_migrations
from planner.operation import Worker
from planner.plan import Plan, SlotSummary
from planner.problem import Problem

SEARCH = "search"
"""Name of a bound that a solver's search proved, and no formula."""


def check_claims(plan: Plan, bounds: Sequence[Bound], slots: Sequence[SlotSummary]) -> None:
    """Compare a plan's claims with what follows from its problem and schedule.

    Parameters
    ----------
    plan
        A plan whose schedule is valid and has the period that it claims.
    bounds
        Lower bounds of its problem.
    slots
        Summaries worked out from its schedule.

    Raises
    ------
    InvalidScheduleError
        Naming the first claim that does not hold.
    """
    _check_failures(plan)
    _check_bound(plan, bounds)
    _check_slots(plan.slots, slots)
    _check_comparison(plan)
    for seat in plan.relabelling:
        if (
            seat.worker.slot != seat.part.slot
            or not _exists(plan.problem, seat.worker)
            or not _exists(plan.problem, seat.part)
        ):
            raise InvalidScheduleError(
                f"the plan has worker {seat.worker} play the part of {seat.part}; expected another of its slot"
            )


def unproved_claims(plan: Plan) -> tuple[str, ...]:
    """What of a checked plan rests on whoever made it, for people; names, notes and provenance always do."""
    claims = []
    if plan.bound_name == SEARCH:
        best_ns = best_bound(plan.problem).value_ns
        if plan.bound_ns > best_ns:
            claims.append(f"a solver's search proved the bound of {plan.bound_ns} ns; formulas prove {best_ns} ns")
    healthy_ns = best_bound(fault_free(plan.problem)).value_ns
    if plan.fault_free_ns not in (healthy_ns, plan.period_ns, plan.baseline_1f1b_ns):
        claims.append(
            f"a plan without failures reached {plan.fault_free_ns} ns; no schedule is faster than {healthy_ns} ns"
        )
    return tuple(claims)


def _check_failures(plan: Plan) -> None:
    problem = plan.problem
    if plan.degraded != tuple(sorted(problem.speeds_ppm.items())):
        raise InvalidScheduleError("the plan's degraded workers are not its problem's slow ones")
    if plan.failure_key != failure_key(problem):
        raise InvalidScheduleError(
            f"the plan claims the failure key {plan.failure_key}; its problem has {failure_key(problem)}"
        )
    try:
        before = replace(problem, dead=frozenset(plan.failed_workers))
        after = apply_migrations(before, plan.migrations)
        apply_migrations(problem, plan.advised_migrations)
    except ProblemError as error:
        raise InvalidScheduleError(f"the plan's failures and migrations do not fit: {error.message}") from error
    if after.dead != problem.dead or len(set(plan.failed_workers)) != len(plan.failed_workers):
        raise InvalidScheduleError(
            f"the plan names {_some(plan.failed_workers)} as failed, with {len(plan.migrations)} migrations; "
            f"its problem's dead workers are {_some(sorted(problem.dead))}"
        )
    for base, moves in ((before, plan.migrations), (problem, plan.advised_migrations)):
        for move in moves:
            _check_copy(base, move)


def _check_copy(before: Problem, move: Migration) -> None:
    if (
        move.copy_from.slot != move.target.slot
        or not _exists(before, move.copy_from)
        or not before.is_live(move.copy_from)
    ):
        raise InvalidScheduleError(
            f"the migration into {move.target} copies from {move.copy_from}; expected a live worker of slot {move.target.slot}"
        )


def _check_bound(plan: Plan, bounds: Sequence[Bound]) -> None:
    names = {bound.name for bound in bounds}
    if plan.bound_name == SEARCH:
        # What a search proved cannot be proved again here: unproved_claims says so.
        if plan.bound_slot is not None:
            raise InvalidScheduleError(
                f"a search proved the plan's bound, for slot {plan.bound_slot}; expected no slot"
            )
        return
    if plan.bound_name not in names:
        raise InvalidScheduleError(
            f"the plan's bound is of the kind {plan.bound_name[:40]!r}; expected one of {', '.join(sorted({*names, SEARCH}))}"
        )
    proved = [bound.value_ns for bound in bounds if (bound.name, bound.slot) == (plan.bound_name, plan.bound_slot)]
    if plan.bound_ns > max(proved, default=0):
        where = "no slot" if plan.bound_slot is None else f"slot {plan.bound_slot}"
        raise InvalidScheduleError(
            f"the plan claims the {plan.bound_name} bound {plan.bound_ns} ns of {where}; its problem proves "
            f"{max(proved, default=0)} ns"
        )


def _check_slots(claimed: Sequence[SlotSummary], found: Sequence[SlotSummary]) -> None:
    for s, (claim, fact) in enumerate(zip(claimed, found, strict=True)):
        for name in SlotSummary.__slots__:
            said, is_so = getattr(claim, name), getattr(fact, name)
            # A weaker bound than today's formulas prove is one all the same.
            if said > is_so if name == "bound_ns" else said != is_so:
                raise InvalidScheduleError(f"the plan claims {name} {said} for slot {s}; its schedule has {is_so}")


def _check_comparison(plan: Plan) -> None:
    healthy_ns = best_bound(fault_free(plan.problem)).value_ns
    if not healthy_ns <= plan.fault_free_ns <= plan.period_ns:
        raise InvalidScheduleError(
            f"the plan claims the fault-free period {plan.fault_free_ns} ns; expected at least {healthy_ns} ns, the bound "
            f"without failures, and at most its own period {plan.period_ns} ns"
        )
    if plan.baseline_1f1b_ns is not None and plan.baseline_1f1b_ns != (found := baseline_period_ns(plan.problem)):
        raise InvalidScheduleError(
            f"the plan claims the fault-free 1F1B period {plan.baseline_1f1b_ns} ns; it is {found} ns"
        )


def _exists(problem: Problem, worker: Worker) -> bool:
    return 0 <= worker.pipeline < problem.num_pipelines and 0 <= worker.slot < problem.num_slots


def _some(workers: Sequence[object]) -> str:
    shown = " ".join(map(str, workers[:8])) or "none"
    return shown + (f" and {len(workers) - 8} more" if len(workers) > 8 else "")
