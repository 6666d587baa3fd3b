"""What to do about a failure set: the ladder of answers, and whether workers migrate.

Everything here is quick and knows neither store nor solver, so that an event whose plan is ready is answered in milliseconds.
``docs/decisions/epochs.md`` tells the same in plain words.
"""

from __future__ import annotations

from dataclasses import replace

from api.jobs.epoch_body import LadderRung
from api.jobs.loaded import LoadedJob
from planner import ladder
from planner.errors import NoPlanError
from planner.failure_key import failure_key
from planner.failures import FailureSet
from planner.ladder import Rung, RungName, expected_costs
from planner.migration import MigrationAdvice
from planner.optimizer_state import why_nobody_moves
from planner.problem import Problem
from planner.slot_cost import SlotCost
from planner.units import ns_to_us

MAX_MIGRATED_FAILURES = 8
"""Most dead workers with which migrations are looked for: each further one has to be bounded first, which takes long."""


def why_not_migrate(loaded: LoadedJob, problem: Problem, *, is_improvement: bool) -> str | None:
    """Why migrations are not looked for; ``None`` where they may pay.

    A plan that only gets better moves nobody: the copying was not asked for by any failure.
    """
    if is_improvement:
        return "nothing new is down, so nobody is moved"
    if not problem.dead:
        return "nobody is down"
    if (reason := why_never_migrate(loaded)) is not None:
        return reason
    if len(problem.dead) > MAX_MIGRATED_FAILURES:
        return f"{len(problem.dead)} workers are down; migrations are looked for with up to {MAX_MIGRATED_FAILURES}"
    return None


def why_never_migrate(loaded: LoadedJob) -> str | None:
    """Why migrations are not looked for, whatever is down; ``None`` where they may be."""
    if (reason := why_nobody_moves(loaded.job)) is not None:
        return reason
    if any(loaded.job.state_bytes(slot) is None for slot in range(loaded.job.num_slots)):
        return "how much has to be copied is not known: parameter_bytes or optimizer_state_bytes is missing"
    if loaded.job.recovery.copy_bytes_per_s is None:
        return "how long copying takes is not known: recovery.copy_bytes_per_s is missing"
    return None


def advise(loaded: LoadedJob, problem: Problem, slot_cost_ns: SlotCost) -> MigrationAdvice:
    """Migrations that would shorten the period, with the time they take."""
    return ladder.migration_advice(loaded.job, problem, slot_cost_ns)


def ladder_in_force(
    loaded: LoadedJob,
    failures: FailureSet,
    problem: Problem,
    *,
    fault_free_ns: int,
    reroute_ns: int,
    migrated_ns: int | None,
    advice: MigrationAdvice | None,
    no_advice: str | None,
) -> tuple[RungName, tuple[LadderRung, ...]]:
    """The cheapest answer and all answers, where the plan in place is known.

    Dropping pipelines is never chosen: its cost is an estimate, while the plan in place was searched among schedules that leave
    pipelines idle too.

    Parameters
    ----------
    loaded
        The job.
    failures
        What is down and slow, as reported.
    problem
        The problem in place, by position.
    fault_free_ns, reroute_ns
        Periods of the plans with everybody live and in place.
    migrated_ns
        Period after ``advice``'s migrations; ``None`` to estimate it.
    advice, no_advice
        Migrations, or why there are none.
    """
    rungs = expected_costs(
        loaded.job,
        _by_position(failures, problem),
        fault_free_ns=fault_free_ns,
        reroute_ns=reroute_ns,
        migrated_ns=migrated_ns,
        advice=advice or _nobody_moves(problem, reroute_ns),
        shards_restored=True,
    )
    if no_advice is not None:
        rungs = tuple(
            replace(rung, reason=no_advice) if rung.name is RungName.REROUTE_AFTER_MIGRATION else rung for rung in rungs
        )
    found = ladder.choose([rung for rung in rungs if rung.name is not RungName.DROP_PIPELINES])
    assert found is not None, "rerouting in place can be done wherever there is a plan"
    return found.name, tuple(map(_form, rungs))


def ladder_without_plan(
    loaded: LoadedJob, failures: FailureSet, problem: Problem, error: NoPlanError, fault_free_ns: int | None
) -> tuple[RungName | None, tuple[LadderRung, ...]]:
    """The cheapest answer, if any, and all answers, where no plan exists."""
    rungs = expected_costs(loaded.job, _by_position(failures, problem), fault_free_ns=fault_free_ns)
    rungs = tuple(replace(rung, reason=rung.reason or error.message) if not rung.available else rung for rung in rungs)
    found = ladder.choose(rungs)
    return None if found is None else found.name, tuple(map(_form, rungs))


def _by_position(failures: FailureSet, problem: Problem) -> FailureSet:
    """Failures as they are felt in a plan: by the positions that are empty or slow."""
    return replace(
        failures, workers=tuple(sorted(problem.dead)), dead=problem.dead, speeds_ppm=dict(problem.speeds_ppm)
    )


def _nobody_moves(problem: Problem, period_ns: int) -> MigrationAdvice:
    counts = failure_key(problem).dead
    return MigrationAdvice(
        migrations=(), counts=counts, new_counts=counts, period_ns=period_ns, new_period_ns=period_ns, seconds=None
    )


def _form(rung: Rung) -> LadderRung:
    return LadderRung(
        name=rung.name,
        available=rung.available,
        reason=rung.reason,
        period_us=None if rung.period_ns is None else ns_to_us(rung.period_ns),
        one_time_s=rung.one_time_s,
        lost_s=rung.lost_s,
        horizon_s=rung.horizon_s,
    )
