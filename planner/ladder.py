"""The ladder of answers to a failure, with the time that each is expected to lose.

Five rungs: reroute in place, reroute after migrations, drop whole pipelines, wait for repair, restart from a checkpoint.
A rung stands still for some seconds once (``K``), then trains at some period ``T``. Against training without failures,
period ``T0``, it loses up to the next expected event, ``H`` seconds away,

    lost = K + max(0, H - K) * (1 - T0 / T)

``docs/model.md``, section 9, says where ``K``, ``T`` and ``H`` come from, with an example worked by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from planner.bounds import best_bound
from planner.errors import NoPlanError
from planner.failures import FailureSet
from planner.job import Job
from planner.migration import MigrationAdvice, advise_migrations
from planner.optimizer_state import require_optimizer_state, why_nobody_moves
from planner.problem import FULL_SPEED_PPM, Problem
from planner.slot_cost import SlotCost, bound_estimate


class RungName(StrEnum):
    """What can be done about a failure, from the least to the most drastic."""

    REROUTE = "reroute"
    """Peers take over the microbatches of failed workers."""
    REROUTE_AFTER_MIGRATION = "reroute_after_migration"
    """First move failures to slots that bear them better."""
    DROP_PIPELINES = "drop_pipelines"
    """Go on without every pipeline that has a failure; the others take over its microbatches whole."""
    WAIT_FOR_REPAIR = "wait_for_repair"
    """Stand still until what failed is back."""
    RESTART_FROM_CHECKPOINT = "restart_from_checkpoint"
    """Wait for the repair, then load the last checkpoint and run again what came after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One answer and what it is expected to cost.

    Parameters
    ----------
    name
        Which answer.
    available
        Whether it can be taken at all.
    reason
        Why it cannot be taken, or why its cost is not known; ``None`` where neither.
    period_ns
        Period once it is in force: known, or estimated; ``None`` where it cannot be taken.
    one_time_s
        Seconds of standing still once; ``None`` where not known or it cannot be taken.
    lost_s
        Seconds lost up to the horizon, ``one_time_s`` included whole; ``None`` where ``one_time_s`` or the horizon is.
    horizon_s
        Expected seconds until the next failure or repair, whichever is sooner; ``None`` where neither is known.
    """

    name: RungName
    available: bool
    reason: str | None
    period_ns: int | None
    one_time_s: float | None
    lost_s: float | None
    horizon_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """What all rungs are worked out from."""

    job: Job
    problem: Problem
    fault_free_ns: int
    horizon_s: float | None

    def rung(self, name: RungName, period_ns: int, one_time_s: float | None, reason: str | None = None) -> Rung:
        period_ns = max(period_ns, self.fault_free_ns)
        lost_s = None
        if one_time_s is not None and self.horizon_s is not None:
            slowdown = 1 - self.fault_free_ns / period_ns if period_ns else 0.0
            lost_s = one_time_s + max(0.0, self.horizon_s - one_time_s) * slowdown
        return Rung(
            name=name,
            available=True,
            reason=reason,
            period_ns=period_ns,
            one_time_s=one_time_s,
            lost_s=lost_s,
            horizon_s=self.horizon_s,
        )

    def missing(self, name: RungName, reason: str) -> Rung:
        return Rung(
            name=name,
            available=False,
            reason=reason,
            period_ns=None,
            one_time_s=None,
            lost_s=None,
            horizon_s=self.horizon_s,
        )


def expected_costs(
    job: Job,
    failures: FailureSet,
    *,
    fault_free_ns: int | None = None,
    reroute_ns: int | None = None,
    migrated_ns: int | None = None,
    slot_cost_ns: SlotCost | None = None,
    advice: MigrationAdvice | None = None,
    shards_restored: bool = False,
) -> tuple[Rung, ...]:
    """What each answer to a failure is expected to cost.

    Parameters
    ----------
    job, failures
        The job and what is down or slow.
    fault_free_ns
        Period of the plan without failures; ``None``: its lower bound.
    reroute_ns, migrated_ns
        Period of a plan in place, and of one after ``advice``'s migrations; ``None``: estimated, from the slots' estimates and
        the ratio that a known period has to them.
    slot_cost_ns
        Estimate of the problem's slots, to be kept for a job, since a new one takes some 50 ms a count at 16,384 GPUs;
        ``None``: :func:`planner.slot_cost.bound_estimate`.
    advice
        Migrations; ``None``: worked out here.
    shards_restored
        Whether optimizer shards that the failures took have been restored already.

    Returns
    -------
    tuple of Rung
        All five, in the order of :class:`RungName`.
    """
    problem = job.problem(failures.dead, failures.speeds_ppm)
    try:
        problem.require_plannable()
        if not shards_restored:
            require_optimizer_state(job, failures.dead)
    except NoPlanError as error:
        return _without_plan(job, problem, failures, error, fault_free_ns)
    estimate = bound_estimate(problem) if slot_cost_ns is None else slot_cost_ns
    if advice is None:
        advice = migration_advice(job, problem, estimate)
    if fault_free_ns is None:
        fault_free_ns = best_bound(job.problem()).value_ns
    if reroute_ns is None:
        healthy_ns = max(estimate(slot, 0) for slot in range(job.num_slots))
        reroute_ns = _scaled(advice.period_ns, fault_free_ns, healthy_ns)
    if migrated_ns is None:
        migrated_ns = _scaled(advice.new_period_ns, reroute_ns, advice.period_ns)
    case = _Case(job=job, problem=problem, fault_free_ns=fault_free_ns, horizon_s=_horizon_s(job, failures))
    return (
        case.rung(RungName.REROUTE, reroute_ns, 0.0),
        _migration_rung(case, advice, migrated_ns),
        _drop_rung(case),
        *_waiting_rungs(case, failures),
    )


def choose(rungs: Sequence[Rung]) -> Rung | None:
    """The cheapest rung that can be taken; of equals the least drastic, and one of known cost before one of unknown.

    Where no horizon is known, the one with the smallest period: any saving pays in the end. ``None`` where none can be taken.
    """
    taken = [rung for rung in rungs if rung.available and rung.period_ns is not None]
    return min(taken, key=_rank, default=None)


def migration_advice(job: Job, problem: Problem, slot_cost_ns: SlotCost, *, level: bool = False) -> MigrationAdvice:
    """Migrations of a job's problem, with their time where the job says how fast and how much is copied.

    Without any where nobody may move, see :func:`planner.optimizer_state.why_nobody_moves`. ``level`` is as for
    :func:`planner.migration.advise_migrations`.
    """
    sizes = [job.state_bytes(slot) for slot in range(job.num_slots)]
    known = all(size is not None for size in sizes)
    rate = job.recovery.copy_bytes_per_s
    advice = advise_migrations(
        problem,
        slot_cost_ns,
        [size or 0 for size in sizes],
        # The GPUs of a worker each copy their own share at the same time.
        bandwidth_bytes_per_s=None if rate is None or not known else float(rate * job.gpus_per_worker),
        level=level,
    )
    if why_nobody_moves(job) is None:
        return advice
    return replace(
        advice,
        migrations=(),
        new_counts=advice.counts,
        new_period_ns=advice.period_ns,
        seconds=None if advice.seconds is None else 0.0,
    )


def _rank(rung: Rung) -> tuple[bool, float, float]:
    cost = rung.lost_s if rung.lost_s is not None else float(rung.period_ns or 0)
    return rung.one_time_s is None, cost, rung.one_time_s or 0.0


def _scaled(estimate_ns: int, known_ns: int, estimate_of_known_ns: int) -> int:
    """Estimate in proportion to a period that is known, whose estimate is given too."""
    return known_ns * estimate_ns // estimate_of_known_ns if estimate_of_known_ns else known_ns


def _horizon_s(job: Job, failures: FailureSet) -> float | None:
    """The sooner of next failure and, where something is down or slow, repair."""
    times = [job.recovery.mean_time_between_failures_s, job.recovery.repair_s if failures else None]
    return min((time for time in times if time is not None), default=None)


def _migration_rung(case: _Case, advice: MigrationAdvice, migrated_ns: int) -> Rung:
    name = RungName.REROUTE_AFTER_MIGRATION
    if not advice.migrations:
        return case.missing(name, why_nobody_moves(case.job) or "no migration shortens the period")
    reason = (
        None if advice.seconds is not None else "how long copying takes is not known: sizes or copy_bytes_per_s missing"
    )
    return case.rung(name, migrated_ns, advice.seconds, reason)


def _drop_rung(case: _Case) -> Rung:
    """Drop the pipelines with dead workers, and the slow ones too if that is better."""
    problem = case.problem
    dead = {worker.pipeline for worker in problem.dead}
    slow = {worker.pipeline for worker in problem.speeds_ppm}
    if not dead and not slow:
        return case.missing(RungName.DROP_PIPELINES, "nothing is down or slow")
    periods = [
        period
        for period in (_dropped_ns(case, dead | slow), _dropped_ns(case, dead) if dead else None)
        if period is not None
    ]
    if not periods:
        return case.missing(RungName.DROP_PIPELINES, "every pipeline has a failure")
    return case.rung(RungName.DROP_PIPELINES, min(periods), 0.0)


def _dropped_ns(case: _Case, dropped: set[int]) -> int | None:
    """Period without some pipelines: each microbatch more costs the others the work of the slowest slot."""
    problem = case.problem
    kept = problem.num_pipelines - len(dropped)
    if not kept:
        return None
    work = [
        sum(
            problem.stages[v].forward_ns + problem.stages[v].input_grad_ns + problem.stages[v].weight_grad_ns
            for v in held
        )
        for held in (slot.stages for slot in problem.slots)
    ]
    load = -(-problem.num_microbatches // kept)
    more = max(0, load - max(problem.microbatches)) * max(work)
    # A slow worker that stays makes its own pipeline's share of the slot take longer.
    slower = max(
        (
            load * work[worker.slot] * (FULL_SPEED_PPM - speed) // speed
            for worker, speed in problem.speeds_ppm.items()
            if worker.pipeline not in dropped
        ),
        default=0,
    )
    return case.fault_free_ns + more + slower


def _waiting_rungs(case: _Case, failures: FailureSet) -> tuple[Rung, Rung]:
    names = RungName.WAIT_FOR_REPAIR, RungName.RESTART_FROM_CHECKPOINT
    if not failures:
        return case.missing(names[0], "nothing is down or slow"), case.missing(names[1], "nothing is down or slow")
    repair_s = case.job.recovery.repair_s
    reason = None if repair_s is not None else "repair_s is not known"
    return case.rung(names[0], case.fault_free_ns, repair_s, reason), _restart_rung(case)


def _restart_rung(case: _Case) -> Rung:
    recovery = case.job.recovery
    times = {
        "repair_s": recovery.repair_s,
        "restart_s": recovery.restart_s,
        "checkpoint_interval_s": recovery.checkpoint_interval_s,
    }
    unknown = [name for name, value in times.items() if value is None]
    one_time_s = None
    if not unknown:
        # On average half of what lies between two checkpoints has to be run again.
        one_time_s = (times["repair_s"] or 0) + (times["restart_s"] or 0) + (times["checkpoint_interval_s"] or 0) / 2
    reason = f"{' and '.join(unknown)} not known" if unknown else None
    return case.rung(RungName.RESTART_FROM_CHECKPOINT, case.fault_free_ns, one_time_s, reason)


def _without_plan(
    job: Job, problem: Problem, failures: FailureSet, error: NoPlanError, fault_free_ns: int | None
) -> tuple[Rung, ...]:
    """Rungs where no plan exists: a checkpoint helps if the job as such can be planned, nothing else does."""
    try:
        job.problem().require_plannable()
    except NoPlanError:
        case = _Case(job=job, problem=problem, fault_free_ns=0, horizon_s=None)
        return tuple(case.missing(name, error.message) for name in RungName)
    case = _Case(
        job=job,
        problem=problem,
        fault_free_ns=best_bound(job.problem()).value_ns if fault_free_ns is None else fault_free_ns,
        horizon_s=_horizon_s(job, failures),
    )
    others = [case.missing(name, error.message) for name in RungName if name is not RungName.RESTART_FROM_CHECKPOINT]
    return *others, _restart_rung(case)
