"""From a solved and checked schedule to a plan: what it is compared with, who sits where, and where it came from."""

from __future__ import annotations

import platform
import time
from dataclasses import dataclass
from importlib import metadata

from planner.bounds import Bound
from planner.failure_key import failure_key
from planner.failures import FailureSet
from planner.instantiation import seats_of
from planner.job import Job
from planner.job_hash import job_sha256
from planner.migration import Migration, move_ranks
from planner.normalization import Relabelling
from planner.plan import Plan, PlanStatus
from planner.plan_check import slot_summaries
from planner.problem import Problem
from planner.replay import Replay
from planner.schedule import Schedule
from solver_models.result import SolveOptions

_VERSIONED = ("numba", "numpy", "ortools", "pulp", "replan")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What a job's plans are compared with; the same for every failure set, so that a caller may keep it.

    ``fault_free_ns`` is the period of our own plan with every worker live, ``baseline_1f1b_ns`` that of 1F1B; ``failure`` says
    what kept the former from being shorter, as in :class:`~solver_models.result.SolveResult`.
    """

    fault_free_ns: int
    baseline_1f1b_ns: int
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """A schedule on the real workers that has passed every check, and what is proved about it.

    Parameters
    ----------
    problem
        The real problem, migrations done.
    schedule, period_ns, replayed
        The schedule, its period, and the replay that confirmed it.
    seats
        Who plays whose part.
    bounds, bound
        Each slot's lower bounds, and the best that is known.
    solver
        What found the schedule.
    """

    problem: Problem
    schedule: Schedule
    period_ns: int
    replayed: Replay
    seats: Relabelling
    bounds: tuple[Bound, ...]
    bound: Bound
    solver: str


def assemble_plan(
    job: Job,
    failures: FailureSet,
    options: SolveOptions,
    solved: Solved,
    *,
    reference: Reference,
    migrations: tuple[Migration, ...],
    advised_migrations: tuple[Migration, ...],
    notes: tuple[str, ...],
    hindered: bool,
    began: float,
) -> Plan:
    """Put a plan together.

    Parameters
    ----------
    job, failures, options, solved
        What was asked, and the answer.
    reference
        What the plan is compared with.
    migrations, advised_migrations
        Moves that the plan presumes, and moves that it only advises.
    notes
        What a reader has to know, one sentence each.
    hindered
        Whether the search could not do what it was given the time for.
    began
        ``time.perf_counter()`` value from which ``wall_s`` counts.
    """
    return Plan(
        job_name=job.name,
        job_sha256=job_sha256(job),
        problem=solved.problem,
        schedule=solved.schedule,
        worker_ranks=move_ranks(
            tuple(_ranks_text(row) for row in job.layout.worker_gpus.tolist()), migrations, job.num_slots
        ),
        failed_nodes=failures.nodes,
        failed_workers=tuple(sorted(failures.dead)),
        degraded=tuple(sorted(failures.speeds_ppm.items())),
        failure_key=failure_key(solved.problem),
        status=PlanStatus.OPTIMAL if solved.period_ns == solved.bound.value_ns else PlanStatus.FEASIBLE,
        period_ns=solved.period_ns,
        bound_ns=solved.bound.value_ns,
        bound_name=solved.bound.name,
        bound_slot=solved.bound.slot,
        # A schedule of fewer workers is one of all of them too, so the fault-free period is never the longer one.
        fault_free_ns=min(reference.fault_free_ns, solved.period_ns),
        baseline_1f1b_ns=reference.baseline_1f1b_ns,
        slots=slot_summaries(solved.problem, solved.schedule, solved.bounds, solved.replayed.peak_bytes),
        migrations=migrations,
        advised_migrations=advised_migrations,
        relabelling=seats_of(solved.seats),
        notes=notes,
        solver=solved.solver,
        seed=options.seed,
        deadline_s=options.deadline_s,
        target_gap=options.target_gap,
        solver_workers=options.workers,
        deterministic=options.deterministic,
        versions=_versions(),
        wall_s=time.perf_counter() - began,
        hindered=hindered,
    )


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
