"""Templates on real workers: the relabelling at once, the whole plan when programs are wanted.

A template is a plan of a canonical problem that passed every check. Under a real failure set with the same key its
relabelling is chosen and checked in milliseconds; ``docs/normalization.md`` proves that what it describes is a valid plan.
All the same nothing but a fully checked plan is written down as programs: :func:`apply` validates, replays, lowers
and proves the relabelled schedule once more.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.errors import InvalidScheduleError
from planner.failure_key import failure_key
from planner.failures import FailureSet
from planner.isomorphism import check_isomorphism
from planner.job import Job
from planner.job_hash import job_sha256
from planner.matching import match_workers, reroutes_of
from planner.migration import Migration, apply_migrations, move_ranks
from planner.normalization import Relabelling, relabel
from planner.operation import Worker
from planner.peer_pairs import new_pairs, peer_pairs, relabel_pairs
from planner.plan import Plan, Seat
from planner.plan_check import check_plan
from planner.problem import Problem
from planner.schedule import IntColumn
from planner.template import Template

__all__ = ["apply", "check_isomorphism", "instantiate", "new_pairs", "peer_pairs", "relabel_pairs", "seats_of"]


def instantiate(template: Plan | Template, real: Problem, racks: IntColumn | None = None) -> Relabelling:
    """Put a template onto the real workers, and check that it fits them.

    Parameters
    ----------
    template
        Plan of the canonical problem of ``real``'s failure key, or what is remembered of it.
    real
        The real problem, migrations done.
    racks
        Shape ``(D, P)``: rack of each real worker; ``None`` where racks do not matter.

    Raises
    ------
    InvalidScheduleError
        If the template is not one of ``real``'s failure key and job.

    Examples
    --------
    ``instantiate(template, job.problem(failures.dead, failures.speeds_ppm), racks)``
    """
    canonical, key = template.problem, failure_key(real)
    # Matching presumes as many workers of each kind on both sides.
    if template.failure_key != key or canonical.num_pipelines != real.num_pipelines:
        raise InvalidScheduleError(
            f"the template is for {canonical.num_pipelines} pipelines and the failure key {template.failure_key}; "
            f"expected {real.num_pipelines} and {key}"
        )
    if canonical.microbatches != real.microbatches or failure_key(canonical) != key:
        raise InvalidScheduleError("the template's problem is not the canonical one of its failure key")
    reroutes = template.reroutes if isinstance(template, Template) else reroutes_of(template.schedule)
    home, played_by = match_workers(real, canonical, racks, reroutes)
    found = Relabelling(home=home, played_by=played_by, dead=real.dead)
    check_isomorphism(canonical, real, found)
    return found


def apply(
    template: Plan,
    job: Job,
    failures: FailureSet,
    relabelling: Relabelling,
    *,
    migrations: tuple[Migration, ...] = (),
    advised_migrations: tuple[Migration, ...] = (),
    notes: tuple[str, ...] = (),
) -> Plan:
    """Make the whole plan of the real workers, and check it as strictly as one that comes from outside.

    Parameters
    ----------
    template
        Plan of the canonical problem.
    job, failures
        The job and what is down.
    relabelling
        From the canonical problem to the real one after ``migrations``.
    migrations, advised_migrations
        Moves that the plan presumes, and moves that it only advises.
    notes
        What a reader has to know beside the template's notes.

    Returns
    -------
    Plan
        With the template's provenance and ``wall_s``. Equal arguments give an equal ``plan_id``.

    Raises
    ------
    InvalidScheduleError
        If the template is of another job, the relabelling does not fit, or a check fails.
    DeadlockError
        If the programs would wait for each other.
    ProblemError
        If the migrations do not fit the failures.
    """
    if job_sha256(job) != template.job_sha256:
        raise InvalidScheduleError("the template is a plan of another job")
    real = apply_migrations(job.problem(failures.dead, failures.speeds_ppm), migrations)
    check_isomorphism(template.problem, real, relabelling)
    plan = replace(
        template,
        problem=real,
        schedule=relabel(template.schedule, relabelling),
        worker_ranks=move_ranks(template.worker_ranks, migrations, real.num_slots),
        failed_nodes=failures.nodes,
        failed_workers=tuple(sorted(failures.dead)),
        degraded=tuple(sorted(failures.speeds_ppm.items())),
        migrations=migrations,
        advised_migrations=advised_migrations,
        relabelling=seats_of(relabelling),
        notes=(*template.notes, *notes),
    )
    check_plan(plan)
    return plan


def seats_of(relabelling: Relabelling) -> tuple[Seat, ...]:
    """Live real workers that play another pipeline's part than their home's, ascending."""
    seats = []
    slots, parts = np.nonzero(relabelling.played_by != relabelling.home)
    for slot, part in zip(slots.tolist(), parts.tolist(), strict=True):
        worker = Worker(int(relabelling.played_by[slot, part]), slot)
        if worker not in relabelling.dead:
            seats.append(Seat(worker=worker, part=Worker(int(relabelling.home[part]), slot)))
    return tuple(sorted(seats, key=lambda seat: seat.worker))
