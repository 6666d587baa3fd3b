"""From a job and what failed to a plan: normalise, solve, put onto the real workers, check, compare.

Nothing leaves here unchecked: every schedule has passed :mod:`planner.validation` on the real problem, a replay that
confirms its period to the tick, and the deadlock proof of its lowered programs.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import metadata

import numpy as np

from planner.baseline import fault_free, one_f_one_b
from planner.bounds import Bound, lower_bounds
from planner.errors import InvalidScheduleError, OptimizerShardLostError, ReplanError, SolverError
from planner.failure_key import canonical_problem, failure_key
from planner.failures import FailureSet
from planner.job import Job, OptimizerState
from planner.job_hash import job_sha256
from planner.migration import MigrationAdvice, advise_migrations, apply_migrations, bound_estimate, worthwhile
from planner.normalization import Relabelling, relabel, relabelling
from planner.operation import Worker
from planner.plan import Plan, PlanStatus, Seat
from planner.plan_check import check_schedule, slot_summaries
from planner.problem import Problem
from planner.timing import time_schedule
from solver_models import portfolio
from solver_models.result import SolveOptions, SolveResult, Status

REFERENCE_SHARE = 0.25
"""Share of the deadline that the fault-free plan, which a plan is compared with, may take."""

OVERRUN_S = 1.0
"""Seconds past its deadline after which a search is said to have overrun it."""

_VERSIONED = ("numba", "numpy", "ortools", "pulp", "replan")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What a job's plans are compared with; the same for every failure set, so that a caller may keep it.

    ``fault_free_ns`` is the period of our own plan with every worker live, ``baseline_1f1b_ns`` that of 1F1B, ``None``
    where 1F1B does not fit the job's memory.
    """

    fault_free_ns: int
    baseline_1f1b_ns: int | None


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
    notes: list[str] = list(_replica_notes(job, failures.dead))
    advice = _migration_advice(job, real, migrate, notes)
    moves = advice.migrations if advice is not None and migrate else ()
    planned = apply_migrations(real, moves)
    if reference is None and (planned.dead or planned.speeds_ppm):
        share = replace(options, deadline_s=REFERENCE_SHARE * options.deadline_s)
        reference = make_reference(job, share)
    spent = time.perf_counter() - began
    result = _solve(
        planned, replace(options, deadline_s=max(options.deadline_s - spent, 0.05 * options.deadline_s)), notes
    )
    assert result.schedule is not None
    assert result.period_ns is not None
    seats = relabelling(planned, _racks(job), schedule=result.schedule)
    schedule, period_ns = relabel(result.schedule, seats), result.period_ns
    replayed = check_schedule(planned, schedule, period_ns)
    bounds = lower_bounds(planned)
    bound = _best_bound(bounds, result, period_ns)
    if reference is None:
        reference = Reference(fault_free_ns=period_ns, baseline_1f1b_ns=_baseline_ns(planned))
    return Plan(
        job_name=job.name,
        job_sha256=job_sha256(job),
        problem=planned,
        schedule=schedule,
        worker_ranks=tuple(_ranks_text(row) for row in job.layout.worker_gpus.tolist()),
        failed_nodes=failures.nodes,
        failed_workers=tuple(sorted(failures.dead)),
        degraded=tuple(sorted(failures.speeds_ppm.items())),
        failure_key=failure_key(planned),
        status=PlanStatus.OPTIMAL if period_ns == bound.value_ns else PlanStatus.FEASIBLE,
        period_ns=period_ns,
        bound_ns=bound.value_ns,
        bound_name=bound.name,
        bound_slot=bound.slot,
        # A schedule of fewer workers is one of all of them too, so the fault-free period is never the longer one.
        fault_free_ns=min(reference.fault_free_ns, period_ns),
        baseline_1f1b_ns=reference.baseline_1f1b_ns,
        slots=slot_summaries(planned, schedule, bounds, replayed.peak_bytes),
        migrations=moves,
        advised_migrations=advice.migrations if advice is not None and not migrate else (),
        relabelling=_seats(seats),
        notes=tuple(notes),
        solver=result.solver,
        seed=options.seed,
        deadline_s=options.deadline_s,
        target_gap=options.target_gap,
        solver_workers=options.workers,
        versions=_versions(),
        wall_s=time.perf_counter() - began,
    )


def make_reference(job: Job, options: SolveOptions) -> Reference:
    """Plan the job with every worker live and at full speed, and time 1F1B."""
    problem = job.problem()
    problem.require_plannable()
    baseline_ns = _baseline_ns(problem)
    found = _solve(problem, options, [])
    assert found.period_ns is not None
    best_ns = found.period_ns if baseline_ns is None else min(found.period_ns, baseline_ns)
    return Reference(fault_free_ns=best_ns, baseline_1f1b_ns=baseline_ns)


def require_optimizer_state(job: Job, dead: frozenset[Worker]) -> None:
    """Check that no failure took the only copy of a shard of the optimizer state.

    Raises
    ------
    OptimizerShardLostError
        Naming the workers and the bytes to restore.
    """
    if job.optimizer_state is not OptimizerState.SHARDED or not dead:
        return
    sizes = [
        None
        if any(job.stages[v].optimizer_state_bytes is None for v in job.slot_stages[worker.slot])
        else job.gpus_per_worker * sum(job.stages[v].optimizer_state_bytes or 0 for v in job.slot_stages[worker.slot])
        for worker in dead
    ]
    total = None if None in sizes else sum(size or 0 for size in sizes)
    names = " ".join(map(str, sorted(dead)[:16])) + (f" and {len(dead) - 16} more" if len(dead) > 16 else "")
    size_text = "an unknown number of bytes (optimizer_state_bytes is not given)" if total is None else f"{total} bytes"
    raise OptimizerShardLostError(
        f"workers {names} held the only copy of their shards of the optimizer state: {size_text} to restore",
        hint="restore these shards from the last checkpoint onto live peers of the same slots, then plan again "
        "with --shards-restored; or restart from the checkpoint",
    )


def _solve(problem: Problem, options: SolveOptions, notes: list[str]) -> SolveResult:
    """Best schedule of the canonical problem; ``notes`` gets what went wrong on the way."""
    result = portfolio.solve(canonical_problem(problem), options)
    if result.schedule is None or result.period_ns is None:
        raise SolverError(f"solver {result.solver} ended with {result.status} and no schedule: {result.detail}")
    if result.status is not Status.OPTIMAL and result.detail:
        notes.append(result.detail)
    if result.wall_s > options.deadline_s + OVERRUN_S:
        notes.append("the search overran its deadline")
    return result


def _best_bound(bounds: Sequence[Bound], result: SolveResult, period_ns: int) -> Bound:
    best = max(bounds, key=lambda bound: bound.value_ns)
    if result.bound_ns > best.value_ns:
        best = Bound(name="search", value_ns=result.bound_ns, slot=None, detail="proved by a solver's search")
    if best.value_ns > period_ns:
        raise InvalidScheduleError(
            f"the bound {best.name} says that no period is below {best.value_ns} ns, but a plan has {period_ns} ns"
        )
    return best


def _baseline_ns(problem: Problem) -> int | None:
    """Period of fault-free 1F1B; ``None`` where it cannot be built within the memory."""
    # Pipelines with as many microbatches do the same at the same time, so one of each kind has the same period.
    kinds = tuple(sorted(set(problem.microbatches) - {0}))
    healthy = replace(fault_free(problem), microbatches=kinds)
    try:
        return time_schedule(healthy, one_f_one_b(healthy))[1]
    except ReplanError:
        return None


def _migration_advice(job: Job, problem: Problem, migrate: bool | None, notes: list[str]) -> MigrationAdvice | None:
    """Migrations to apply or to advise; ``None`` where there are none."""
    if migrate is False or not problem.dead:
        return None
    sizes = [job.state_bytes(slot) for slot in range(job.num_slots)]
    known = all(size is not None for size in sizes)
    rate = job.recovery.copy_bytes_per_s
    advice = advise_migrations(
        problem,
        bound_estimate(problem),
        [size or 0 for size in sizes],
        # The GPUs of a worker each copy their own share at the same time.
        bandwidth_bytes_per_s=None if rate is None or not known else float(rate * job.gpus_per_worker),
    )
    if not advice.migrations:
        return None
    if migrate:
        if not known:
            notes.append(
                "the bytes that migrations copy are not known: parameter_bytes or optimizer_state_bytes is missing"
            )
        return advice
    if advice.seconds is None:
        return None
    pays = worthwhile(
        advice,
        next_failure_s=job.recovery.mean_time_between_failures_s,
        next_repair_s=job.recovery.repair_s or None,
    )
    return advice if pays else None


def _replica_notes(job: Job, dead: frozenset[Worker]) -> list[str]:
    if job.optimizer_state is not OptimizerState.SHARDED_WITH_REPLICA:
        return []
    counts = np.bincount([worker.slot for worker in dead], minlength=job.num_slots)
    several = np.flatnonzero(counts > 1).tolist()
    if not several:
        return []
    return [
        f"slots {several} lost several workers: make sure that none of them held the replica of another's optimizer shard"
    ]


def _racks(job: Job) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return job.worker_racks().reshape(job.num_pipelines, job.num_slots)


def _seats(seats: Relabelling) -> tuple[Seat, ...]:
    moved = []
    for s, c in zip(*(axis.tolist() for axis in np.nonzero(seats.played_by != seats.home)), strict=True):
        worker = Worker(int(seats.played_by[s, c]), s)
        if worker not in seats.dead:
            moved.append(Seat(worker=worker, part=Worker(int(seats.home[c]), s)))
    return tuple(sorted(moved, key=lambda seat: seat.worker))


def _ranks_text(ranks: list[int]) -> str:
    """Ascending ranks as text, runs joined: ``[0, 1, 2, 5]`` is ``"0-2,5"``."""
    if ranks[-1] - ranks[0] == len(ranks) - 1:
        return f"{ranks[0]}-{ranks[-1]}" if len(ranks) > 1 else str(ranks[0])
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _versions() -> tuple[tuple[str, str], ...]:
    found = [("python", platform.python_version())]
    for name in _VERSIONED:
        try:
            found.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            continue
    return tuple(sorted(found))
