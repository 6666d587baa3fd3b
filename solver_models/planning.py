"""From a job and what failed to a plan: normalise, solve, put onto the real workers, check, compare.

Nothing leaves here unchecked: every schedule has passed :mod:`planner.validation` on the real problem, a replay that
confirms its period to the tick, and the deadlock proof of its lowered programs.
"""

from __future__ import annotations

import time
from dataclasses import replace

from planner.baseline import baseline_period_ns
from planner.bounds import Bound, lower_bounds
from planner.claims import SEARCH
from planner.errors import InvalidScheduleError, SolverError
from planner.failure_key import canonical_problem
from planner.failures import FailureSet
from planner.job import Job
from planner.ladder import migration_advice
from planner.migration import Migration, apply_migrations, bound_estimate, worthwhile
from planner.normalization import relabel, relabelling
from planner.optimizer_state import replica_notes, require_optimizer_state, why_nobody_moves
from planner.plan import Plan
from planner.plan_check import check_schedule
from planner.problem import Problem
from solver_models import portfolio
from solver_models.compilation import watched_compilation
from solver_models.plan_assembly import Reference, Solved, assemble_plan
from solver_models.result import SolveOptions, SolveResult

__all__ = ["Reference", "make_plan", "make_reference"]

REFERENCE_SHARE = 0.25
"""Share of the deadline that the fault-free plan, which a plan is compared with, may take."""

OVERRUN_S = 1.0
"""Seconds past its deadline after which a whole search, the comparison included, is said to have overrun it."""


def make_plan(
    job: Job,
    failures: FailureSet,
    options: SolveOptions,
    *,
    migrate: bool | None = None,
    shards_restored: bool = False,
    reference: Reference | None = None,
) -> Plan:
    """Plan a job around what failed.

    Parameters
    ----------
    job
        The job.
    failures
        What is down and what is slow.
    options
        Limits of the whole call; the deadline covers the comparison with the fault-free plan too.
    migrate
        True: apply the migrations that shorten the period most and plan what is left. False: do not look at
        migrations. ``None``: plan in place, and advise migrations where their time pays back.
    shards_restored
        Whether optimizer shards that the failures took have been restored already.
    reference
        The job's, where the caller has it from before.

    Raises
    ------
    StageLostError, MemoryTooSmallError
        If no plan can exist.
    OptimizerShardLostError
        If a failure took the only copy of optimizer state.
    InvalidScheduleError, DeadlockError
        If a solver's schedule fails the checks: a bug of ours, and nothing is returned.
    """
    began = time.perf_counter()
    real = job.problem(failures.dead, failures.speeds_ppm)
    real.require_plannable()
    if not shards_restored:
        require_optimizer_state(job, failures.dead)
    notes: list[str] = []
    moves = _migrations(job, real, migrate, notes)
    planned = apply_migrations(real, moves) if migrate else real
    notes += replica_notes(job, failures.dead | {move.source for move in moves} if migrate else failures.dead)
    failed: list[str] = []
    with watched_compilation() as compilation:
        if reference is None and (planned.dead or planned.speeds_ppm):
            share = replace(options, deadline_s=REFERENCE_SHARE * options.deadline_s)
            reference = make_reference(job, share)
            if reference.failure:
                failed.append(f"the fault-free plan may be better than was found: {reference.failure}")
        spent = time.perf_counter() - began
        left = replace(options, deadline_s=max(options.deadline_s - spent, 0.05 * options.deadline_s))
        found = _solve(planned, left)
        if reference is None:
            assert found.period_ns is not None
            reference = Reference(fault_free_ns=found.period_ns, baseline_1f1b_ns=baseline_period_ns(planned))
    failed += [found.failure] if found.failure else []
    if compilation:
        failed.append(
            "code was compiled during the search, as in the first run after an installation: it had less time"
        )
    elif not failed and time.perf_counter() - began > options.deadline_s + OVERRUN_S:
        failed.append(f"the search overran its deadline; {found.solver} had the best schedule by then")
    solved = _put_on_workers(job, planned, found)
    return assemble_plan(
        job,
        failures,
        options,
        solved,
        reference=reference,
        migrations=moves if migrate else (),
        advised_migrations=() if migrate else moves,
        notes=(*notes, *failed),
        hindered=bool(failed),
        began=began,
    )


def make_reference(job: Job, options: SolveOptions) -> Reference:
    """Plan the job with every worker live and at full speed, and time 1F1B."""
    problem = job.problem()
    problem.require_plannable()
    baseline_ns = baseline_period_ns(problem)
    found = _solve(problem, options)
    assert found.period_ns is not None
    return Reference(
        fault_free_ns=min(found.period_ns, baseline_ns), baseline_1f1b_ns=baseline_ns, failure=found.failure
    )


def _solve(problem: Problem, options: SolveOptions) -> SolveResult:
    """Best schedule of the canonical problem."""
    result = portfolio.solve(canonical_problem(problem), options)
    if result.schedule is None or result.period_ns is None:
        raise SolverError(f"solver {result.solver} ended with {result.status} and no schedule: {result.detail}")
    return result


def _put_on_workers(job: Job, problem: Problem, result: SolveResult) -> Solved:
    """Put the canonical problem's schedule onto the real workers and check it there."""
    assert result.schedule is not None
    assert result.period_ns is not None
    racks = job.worker_racks().reshape(job.num_pipelines, job.num_slots)
    seats = relabelling(problem, racks, schedule=result.schedule)
    schedule = relabel(result.schedule, seats)
    replayed = check_schedule(problem, schedule, result.period_ns)
    bounds = tuple(lower_bounds(problem))
    return Solved(
        problem=problem,
        schedule=schedule,
        period_ns=result.period_ns,
        replayed=replayed,
        seats=seats,
        bounds=bounds,
        bound=_best_bound(bounds, result, result.period_ns),
        solver=result.solver,
    )


def _best_bound(bounds: tuple[Bound, ...], result: SolveResult, period_ns: int) -> Bound:
    best = max(bounds, key=lambda bound: bound.value_ns)
    if result.bound_ns > best.value_ns:
        best = Bound(name=SEARCH, value_ns=result.bound_ns, slot=None, detail="proved by a solver's search")
    if best.value_ns > period_ns:
        raise InvalidScheduleError(
            f"the bound {best.name} says that no period is below {best.value_ns} ns, but a plan has {period_ns} ns"
        )
    return best


def _migrations(job: Job, problem: Problem, migrate: bool | None, notes: list[str]) -> tuple[Migration, ...]:
    """Migrations to apply (``migrate`` true) or to advise."""
    if migrate is False or not problem.dead:
        return ()
    if migrate and (reason := why_nobody_moves(job)) is not None:
        notes.append(f"nobody is moved: {reason}")
        return ()
    advice = migration_advice(job, problem, bound_estimate(problem))
    if migrate:
        if advice.migrations and any(job.state_bytes(slot) is None for slot in range(job.num_slots)):
            notes.append(
                "the bytes that migrations copy are not known: parameter_bytes or optimizer_state_bytes is missing"
            )
        return advice.migrations
    pays = advice.seconds is not None and worthwhile(
        advice,
        next_failure_s=job.recovery.mean_time_between_failures_s,
        next_repair_s=job.recovery.repair_s or None,
    )
    return advice.migrations if pays else ()
