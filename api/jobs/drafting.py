"""The next epoch of a job, worked out from the present one: all of it but its number and time, which the store gives."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from anyio import to_thread

from api.errors import OverloadedError
from api.jobs import choosing
from api.jobs.epoch_body import (
    Cause,
    EpochBody,
    EpochMigration,
    EpochPlan,
    EpochProblem,
    LadderRung,
    MovedWorker,
    PairGroup,
    RelabellingForm,
    ReportedFailures,
    Source,
    read_body,
)
from api.jobs.loaded import LoadedJob
from api.jobs.pairs import groups_of_new_pairs, pairs_of_workers
from api.jobs.positions import Moved, kept_moves, loads, moved_by, problem_of
from api.jobs.revising import carry_places, is_same_layout
from api.jobs.slot_bounds import slot_cost_of
from api.jobs.solving import TemplateMaker
from api.jobs.templates import KnownTemplate, Templates
from api.observability.telemetry import Telemetry
from api.pool import Priority
from api.recent import Recent
from api.store import EpochRecord
from planner.errors import InvalidScheduleError, NoPlanError, ReplanError, ScheduleError, SolverError
from planner.failure_key import failure_key
from planner.failure_state import FailureState, to_failure_set
from planner.failures import FailureSet
from planner.formats.failure_state_file import dump_state, load_state
from planner.formats.relabelling_file import relabelling_from_document, relabelling_to_document
from planner.hostlist import compress_hostlist
from planner.instantiation import instantiate, relabel_pairs
from planner.ladder import RungName
from planner.migration import apply_migrations
from planner.operation import Worker, parse_worker
from planner.optimizer_state import require_optimizer_state
from planner.problem import FULL_SPEED_PPM, Problem
from planner.schedule import IntColumn
from planner.units import ns_to_us

_LOG = logging.getLogger("replan.api.jobs")
_MAX_KEPT_PAIRS = 64
PASSING_ERRORS = (SolverError, OverloadedError, ScheduleError)
"""What keeps a plan from being made now, though one exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """The epoch that the next one follows.

    Parameters
    ----------
    epoch
        Its number.
    state
        What is down and slow in it.
    dead
        Workers that are down through it, or hold nothing of what the next one needs of them.
    moved
        Who stands elsewhere than at home.
    body
        What clients were answered.
    loaded
        The job that it was for, where the next one is for another revision with the same layout.
    is_of_other_layout
        Whether the next one is for a revision with another layout, which no connection outlives.
    """

    epoch: int
    state: FailureState
    dead: frozenset[Worker]
    moved: dict[Worker, Worker]
    body: EpochBody
    loaded: LoadedJob | None = None
    is_of_other_layout: bool = False

    @classmethod
    def of(cls, record: EpochRecord) -> Base:
        """Read a stored epoch."""
        body = read_body(record.body)
        return cls(
            epoch=record.epoch,
            state=load_state(record.state),
            dead=frozenset(parse_worker(text) for text in body.failed_workers),
            moved={parse_worker(entry.worker): parse_worker(entry.position) for entry in body.moved},
            body=body,
        )

    def carried_over(self, old: LoadedJob, new: LoadedJob) -> Base:
        """The same epoch as the next revision of its job finds it."""
        dead, moved = carry_places(old.job, new.job, self.dead, self.moved)
        is_same = is_same_layout(old.job, new.job)
        return replace(self, dead=dead, moved=moved, loaded=old if is_same else None, is_of_other_layout=not is_same)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What the next epoch is for.

    Parameters
    ----------
    cause
        What led to it.
    state
        What is down and slow in it.
    shards_restored
        Whether optimizer shards that failures took are on live peers again.
    from_iteration
        Iteration from whose start it holds, where that is known.
    dropped
        Failures that a new revision of the job has no such thing for.
    unsure
        Workers of which it is not known what they hold, beside those that were down in the epoch before.
    """

    cause: Cause
    state: FailureState
    shards_restored: bool = False
    from_iteration: int | None = None
    dropped: tuple[str, ...] = ()
    unsure: frozenset[Worker] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """An epoch without its number and time."""

    state: bytes
    failure_key: str | None
    template_sha256: str | None
    body: EpochBody

    def body_bytes(self, epoch: int, created_at: datetime) -> bytes:
        """What clients are answered, once number and time are known."""
        stamp = created_at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return self.body.model_copy(update={"epoch": epoch, "created_at": stamp}).to_bytes()


@dataclass(slots=True, kw_only=True)
class _Work:
    """What is known on the way to a draft: ``problem`` and ``moved`` follow the chosen answer, ``known`` is its template."""

    job_id: str
    revision: int
    loaded: LoadedJob
    base: Base | None
    change: Change
    failures: FailureSet
    moved: Moved
    problem: Problem
    source: Source = "store"
    known: KnownTemplate | None = None
    error: ReplanError | None = None
    ladder: tuple[LadderRung, ...] = ()
    chosen: RungName | None = None


class Drafter:
    """Works out epochs.

    Parameters
    ----------
    templates, maker
        Where plans come from.
    telemetry
        Where look-ups are counted.
    event_deadline_s
        Seconds to search for a plan that somebody waits for.
    """

    def __init__(
        self, *, templates: Templates, maker: TemplateMaker, telemetry: Telemetry, event_deadline_s: float
    ) -> None:
        self._templates = templates
        self._maker = maker
        self._telemetry = telemetry
        self._event_deadline_s = event_deadline_s
        self._pairs: Recent[tuple[str, int], IntColumn] = Recent(_MAX_KEPT_PAIRS)

    async def draft(
        self,
        job_id: str,
        revision: int,
        loaded: LoadedJob,
        base: Base | None,
        change: Change,
        priority: Priority = Priority.EVENT,
    ) -> Draft:
        """Work out the epoch that follows ``base``. Where it is to be appended, events of the job wait, whatever led to it.

        Where no plan exists the draft says so; where none can be made now it says that, and another epoch is to follow.

        Raises
        ------
        ReplanError
            If the state does not fit the job, or the store cannot be read.
        """
        work = await to_thread.run_sync(self._begin, job_id, revision, loaded, base, change)
        is_looked_up = change.cause == "event" and work.error is None
        try:
            if work.error is None and work.known is None:
                await self._solve(work, priority)
            if work.error is None:
                await self._weigh(work, priority)
        except (NoPlanError, *PASSING_ERRORS) as error:
            _LOG.error("no plan was made for failure key %s of job %s: %s", failure_key(work.problem), job_id, error)
            work.error, work.known = error, None
        draft = await to_thread.run_sync(self._finish, work)
        if is_looked_up:
            # Only now is it known whether migrations are chosen, and whether the plan they lead to was there.
            self._telemetry.template_looked_up(hit=draft.body.source == "store")
        return draft

    def _begin(self, job_id: str, revision: int, loaded: LoadedJob, base: Base | None, change: Change) -> _Work:
        failures = to_failure_set(loaded.job, change.state)
        moved = kept_moves({} if base is None else base.moved, failures.dead)
        work = _Work(
            job_id=job_id,
            revision=revision,
            loaded=loaded,
            base=base,
            change=change,
            failures=failures,
            moved=moved,
            problem=problem_of(loaded.job, failures, moved),
        )
        try:
            work.problem.require_plannable()
            if not change.shards_restored:
                require_optimizer_state(loaded.job, failures.dead)
        except NoPlanError as error:
            work.error = error
            healthy = self._templates.best(loaded, str(loaded.fault_free_key))
            work.chosen, work.ladder = choosing.ladder_without_plan(
                loaded, failures, work.problem, error, None if healthy is None else healthy.record.period_ns
            )
            return work
        work.known = self._templates.best(loaded, str(failure_key(work.problem)))
        return work

    async def _solve(self, work: _Work, priority: Priority) -> KnownTemplate:
        key = str(failure_key(work.problem))
        work.source = "solved"
        work.known = found = await self._maker.make(
            work.loaded, key, deadline_s=self._event_deadline_s, priority=priority
        )
        if found is None:
            raise InvalidScheduleError("the plan that was just stored cannot be read")
        return found

    async def _weigh(self, work: _Work, priority: Priority) -> None:
        """Weigh the answers, now that the plan in place is known; where migrations are chosen, their plan takes its place."""
        assert work.known is not None
        in_place = work.known
        reason = choosing.why_not_migrate(work.loaded, work.problem, is_improvement=work.change.cause == "improved")
        advice, migrated, problem = None, None, work.problem
        if reason is None:
            bounds = await self._maker.slot_bounds(
                work.loaded, failure_key(problem), len(problem.dead), priority=priority
            )
            advice = choosing.advise(work.loaded, problem, slot_cost_of(bounds))
            problem = apply_migrations(problem, advice.migrations)
            migrated = await to_thread.run_sync(self._templates.best, work.loaded, str(failure_key(problem)))
        weigh = partial(
            choosing.ladder_in_force,
            work.loaded,
            work.failures,
            work.problem,
            fault_free_ns=in_place.template.fault_free_ns,
            reroute_ns=in_place.template.period_ns,
            advice=advice,
            no_advice=reason,
        )
        work.chosen, work.ladder = weigh(migrated_ns=None if migrated is None else migrated.record.period_ns)
        if work.chosen is not RungName.REROUTE_AFTER_MIGRATION or advice is None:
            return
        staying = work.problem, work.moved, work.source
        work.problem, work.moved, work.known = problem, moved_by(work.moved, advice.migrations), migrated
        if migrated is None:
            migrated = await self._solve(work, priority)
            # So far an estimate spoke for moving; now there is a plan.
            work.chosen, work.ladder = weigh(migrated_ns=migrated.record.period_ns)
            if work.chosen is not RungName.REROUTE_AFTER_MIGRATION:
                (work.problem, work.moved, work.source), work.known = staying, in_place

    def _finish(self, work: _Work) -> Draft:
        plan: EpochPlan | None = None
        num_new, new = 0, tuple[PairGroup, ...]()
        if work.known is not None and work.error is None:
            try:
                plan, num_new, new = self._plan(work, work.known)
            except InvalidScheduleError as error:
                # A template that is no plan of its key: never put onto workers.
                self._templates.drop(work.loaded, work.known.record.failure_key, work.known.record.sha256, error)
                work.error = error
        source = None if plan is None else work.source
        if source == "store" and work.change.cause == "improved":
            source = "improved"
        body = EpochBody(
            job=work.job_id,
            epoch=1,
            revision=work.revision,
            cause=work.change.cause,
            created_at="",
            failures=_reported(work.change.state),
            failed_workers=[str(worker) for worker in sorted(work.failures.dead)],
            dropped=list(work.change.dropped),
            shards_restored=work.change.shards_restored,
            plan=plan,
            problem=None if work.error is None else _problem(work.error),
            source=source,
            chosen=work.chosen,
            ladder=list(work.ladder),
            migrations=self._migrations(work),
            moved=[MovedWorker(worker=str(w), position=str(p)) for w, p in sorted(work.moved.items())],
            num_new_pairs=num_new,
            new_pairs=list(new),
            from_iteration=work.change.from_iteration,
        )
        return Draft(
            state=dump_state(work.change.state),
            failure_key=None if plan is None else plan.failure_key,
            template_sha256=None if plan is None else plan.template,
            body=body,
        )

    def _plan(self, work: _Work, known: KnownTemplate) -> tuple[EpochPlan, int, tuple[PairGroup, ...]]:
        template, loaded = known.template, work.loaded
        relabelling = instantiate(template, work.problem, loaded.racks)
        new = pairs_of_workers(relabel_pairs(template.pairs, relabelling), loaded.job, work.moved)
        old = self._pairs_of(work.job_id, loaded, work.base)
        num_new, groups = groups_of_new_pairs(old, new, loaded.job, work.moved)
        plan = EpochPlan(
            template=known.record.sha256,
            failure_key=known.record.failure_key,
            status="optimal" if template.period_ns == template.bound_ns else "feasible",
            period_us=ns_to_us(template.period_ns),
            bound_us=ns_to_us(template.bound_ns),
            gap=None if not template.bound_ns else template.period_ns / template.bound_ns - 1,
            throughput_kept=None if not template.period_ns else template.fault_free_ns / template.period_ns,
            solver=known.record.solver,
            deadline_s=known.record.deadline_s,
            relabelling=RelabellingForm.model_validate(relabelling_to_document(relabelling)),
        )
        return plan, num_new, groups

    def _pairs_of(self, job_id: str, loaded: LoadedJob, base: Base | None) -> IntColumn | None:
        """Pairs of workers that an epoch's plan connects; ``None`` where none is known to."""
        if base is None or base.body.plan is None or base.is_of_other_layout:
            return None
        plan, loaded = base.body.plan, base.loaded or loaded
        pairs = self._pairs.get((job_id, base.epoch))
        if pairs is None:
            known = self._templates.version(loaded, plan.failure_key, plan.template)
            if known is None:
                return None
            relabelling = relabelling_from_document(
                plan.relabelling.model_dump(),
                num_pipelines=loaded.job.num_pipelines,
                num_slots=loaded.job.num_slots,
                dead=frozenset(),
            )
            pairs = pairs_of_workers(relabel_pairs(known.template.pairs, relabelling), loaded.job, base.moved)
            self._pairs.put((job_id, base.epoch), pairs)
        return pairs

    def _migrations(self, work: _Work) -> list[EpochMigration]:
        """What has to be loaded before this epoch runs; a job that starts, without an epoch before, has everybody at home."""
        dead, moved = (frozenset[Worker](), dict[Worker, Worker]())
        if work.base is not None:
            dead, moved = work.base.dead, work.base.moved
        unsure = work.change.unsure
        before = (dead | unsure, {worker: position for worker, position in moved.items() if worker not in unsure})
        found = loads(work.loaded.job, before, (work.failures.dead, work.moved))
        return [
            EpochMigration.model_validate(
                {
                    "from": str(load.worker),
                    "to": str(load.position),
                    "copy_from": None if load.copy_from is None else str(load.copy_from),
                    "bytes": load.num_bytes,
                    "seconds": load.seconds,
                }
            )
            for load in found
        ]


def _reported(state: FailureState) -> ReportedFailures:
    return ReportedFailures(
        nodes=compress_hostlist(state.nodes) if state.nodes else "",
        ranks=list(state.ranks),
        workers=[str(worker) for worker in state.workers],
        degraded={target: speed / FULL_SPEED_PPM for target, speed in state.degraded},
    )


def _problem(error: ReplanError) -> EpochProblem:
    if isinstance(error, NoPlanError):
        return EpochProblem(code=error.code, message=error.message, hint=error.hint)
    # What went wrong inside stays in the log.
    return EpochProblem(
        code=error.code, message="no plan could be made in time; it is tried again", hint="wait for the next epoch"
    )
