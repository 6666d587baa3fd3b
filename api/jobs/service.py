"""Jobs and what happens to them: registration, events, and the epochs that follow."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from dataclasses import dataclass

from anyio import to_thread

from api.background import Background
from api.errors import CorruptStoreError, StaleBaseError
from api.jobs.acknowledging import Acknowledger
from api.jobs.current import CurrentEpochs
from api.jobs.drafting import Base, Change, Draft, Drafter
from api.jobs.epoch_body import Cause
from api.jobs.forms import JobEvent, JobRegistration, Mode, PrecomputeRequest
from api.jobs.improvement import Improver
from api.jobs.loaded import JobCache, LoadedJob
from api.jobs.materialiser import Materialiser
from api.jobs.recovery import Recovery
from api.jobs.reports import change_of
from api.jobs.solving import TemplateMaker
from api.jobs.templates import Templates
from api.jobs.watching import Watcher
from api.keyed_locks import KeyedLocks
from api.observability.telemetry import Telemetry
from api.pool import Priority, SolvePool
from api.precompute.engine import PrecomputeEngine
from api.precompute.options import PrecomputeOptions
from api.settings import Settings
from api.store import Appended, EpochRecord, JobRecord, OperationRecord, Store
from api.store.epochs import require_expected, require_same_request
from api.store.watch import EpochFeed, IsGone
from api.views.views import Views
from planner.errors import NotFoundError, SolverError
from planner.failure_state import FailureState, carry_over
from planner.plan_content import canonical_json
from planner.tolerance import ToleranceMode, require_listable

DEFAULT_TOLERANCE = 1
_LOG = logging.getLogger("replan.api.jobs")
MAX_TRIES = 100
"""How often an event is worked out anew because the job moved on meanwhile, through other servers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A registered job, its current epoch, whether this changed anything, and the operation that it began."""

    record: JobRecord
    epoch: EpochRecord
    is_new_job: bool
    operation: OperationRecord | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """What an event's epoch is stored with: see :meth:`api.store.Store.append`."""

    expected_epoch: int | None = None
    idempotency_key: str | None = None
    request_sha256: str | None = None
    event: bytes | None = None


class JobService:
    """What the routes of jobs do.

    Parameters
    ----------
    store, pool, feed, engine
        Owned by the caller.
    settings
        Limits.
    telemetry
        Where everything is counted.
    background
        What keeps the tasks running that look after jobs.
    """

    def __init__(
        self,
        *,
        store: Store,
        pool: SolvePool,
        feed: EpochFeed,
        engine: PrecomputeEngine,
        settings: Settings,
        telemetry: Telemetry,
        background: Background,
    ) -> None:
        self._background = background
        self.store = store
        self.feed = feed
        self.engine = engine
        self.settings = settings
        self.telemetry = telemetry
        self.jobs = JobCache()
        self._recovery = Recovery(store=store, jobs=self.jobs, telemetry=telemetry, base_of=self._base_for)
        current = CurrentEpochs(store, mend=self._mend)
        self.acknowledger = Acknowledger(store, self.jobs)
        self._templates = Templates(store, telemetry)
        self._maker = TemplateMaker(
            store=store, pool=pool, templates=self._templates, telemetry=telemetry, grace_s=settings.solve_grace_s
        )
        self._drafter = Drafter(
            templates=self._templates,
            maker=self._maker,
            telemetry=telemetry,
            event_deadline_s=settings.event_deadline_s,
        )
        self._improver = Improver(
            templates=self._templates,
            maker=self._maker,
            current=self._current_of,
            follow=self._follow,
            deadline_s=settings.improvement_deadline_s,
            threshold=settings.improvement_threshold,
            telemetry=telemetry,
            background=background,
        )
        self.materialiser = Materialiser(
            store=store,
            pool=pool,
            jobs=self.jobs,
            templates=self._templates,
            timeout_s=settings.solve_grace_s,
            on_unusable=self._improver.look_at,
            telemetry=telemetry,
        )
        self.watcher = Watcher(store=store, feed=feed, current=current, heartbeat_s=settings.heartbeat_s)
        self.views = Views(
            store=store,
            pool=pool,
            feed=feed,
            jobs=self.jobs,
            templates=self._templates,
            maker=self._maker,
            materialiser=self.materialiser,
            watcher=self.watcher,
            acknowledger=self.acknowledger,
            current=self._current_of,
            settings=settings,
        )
        self._turns = KeyedLocks()
        self._start: asyncio.Task[None] | None = None
        feed.call_when_gone(self._forget)

    def start(self) -> None:
        """Begin to look after the jobs that are registered."""
        self._improver.start()
        self._start = self._background.run("taking up jobs", self._take_up)

    async def close(self) -> None:
        """Stop what goes on in the background; what it had not finished is taken up by the next start."""
        if self._start is not None:
            self._start.cancel()
            await asyncio.gather(self._start, return_exceptions=True)
        await self._improver.close()
        await self.views.close()
        await self.materialiser.close()

    async def register(self, job_id: str, form: JobRegistration) -> Registered:
        """Register a job, or replace it; the same again changes nothing.

        Raises
        ------
        JobFileError
            If the document describes no job.
        OptionError
            If it has fewer workers than are to be tolerated, or there would be too many plans to make ready.
        NoPlanError
            If a new job cannot be planned even with everybody live.
        ReplanError
            If its first plan cannot be made, or the store cannot take it.
        """
        document = await to_thread.run_sync(canonical_json, form.job)
        loaded = await to_thread.run_sync(self.jobs.load, document)
        async with self._turns.hold(job_id):
            known = await to_thread.run_sync(self._known, job_id, document, loaded.sha256)
            tolerance, mode = _tolerance_of(form, known)
            require_listable(loaded.job, tolerance, mode or ToleranceMode.NORMALIZED)
            await self._require_plan(loaded)
            record, is_new = await to_thread.run_sync(
                self.store.put_job, job_id, document, loaded.sha256, tolerance, mode
            )
            epoch = await self._follow_revision(record, loaded)
        operation = None if record.mode is None else await self._precompute_once(record, record.mode)
        return Registered(record=record, epoch=epoch, is_new_job=is_new and record.revision == 1, operation=operation)

    async def report(self, job_id: str, event: JobEvent, idempotency_key: str | None) -> tuple[EpochRecord, bool]:
        """Accept an event: exactly one epoch follows, and is durable when this returns.

        Parameters
        ----------
        job_id
            The job.
        event
            What happened.
        idempotency_key
            The client's name for this report; the same again gives the same epoch.

        Returns
        -------
        tuple[EpochRecord, bool]
            The epoch, and whether an earlier request had made it.

        Raises
        ------
        NotFoundError
            If there is no such job.
        FailureSetError, HostlistError
            If the event does not fit the job, or changes nothing.
        IdempotencyConflictError, EpochConflictError
            If the key was used for another event, or the job has another epoch than expected.
        StoreError
            If it cannot be stored; nothing of it is then.
        """
        began = time.perf_counter()
        digest = event.digest()
        async with self._turns.hold(job_id):
            for _ in range(MAX_TRIES):
                job, current, loaded = await self._present(job_id)
                if idempotency_key is not None:
                    # Looked up after the epoch was read: where the key is not there, the epoch does not hold its event either.
                    replayed = await to_thread.run_sync(self._replay, job_id, idempotency_key, digest)
                    if replayed is not None:
                        return replayed, True
                require_expected(job_id, current.epoch, event.expected_epoch)
                draft, base = await self._draft_event(job, current, loaded, event)
                reported = Reported(
                    expected_epoch=event.expected_epoch,
                    idempotency_key=idempotency_key,
                    request_sha256=digest if idempotency_key is not None else None,
                    event=event.canonical(),
                )
                try:
                    appended = await self._append(job, base.epoch, "event", draft, reported)
                except StaleBaseError:
                    continue
                self.telemetry.event_answered(source=draft.body.source or "none", seconds=time.perf_counter() - began)
                return appended.record, appended.is_replay
        raise StaleBaseError(f"job {job_id!r} moved on {MAX_TRIES} times while an event was worked out")

    async def delete(self, job_id: str) -> None:
        """Delete a job with all of its epochs; raises :class:`NotFoundError` where there is none."""
        async with self._turns.hold(job_id):
            await to_thread.run_sync(self.store.delete_job, job_id)
        self.feed.announce(job_id, 0)

    async def precompute(self, job_id: str, form: PrecomputeRequest) -> OperationRecord:
        """Begin to make plans ready.

        Raises
        ------
        NotFoundError
            If there is no such job.
        OptionError
            If the job has fewer workers than are to be tolerated, or there would be too many plans.
        """
        job = await to_thread.run_sync(self.store.job, job_id)
        loaded = await to_thread.run_sync(self.jobs.load, job.document)
        mode = form.mode or job.mode or "all"
        tolerance = job.tolerance if form.tolerance is None else form.tolerance
        require_listable(loaded.job, tolerance, mode)
        return await self._create_operation(
            job,
            mode=mode,
            tolerance=tolerance,
            options=PrecomputeOptions(
                revision=job.revision, deadline_s=form.deadline_s, target_gap=form.target_gap, seed=form.seed
            ),
        )

    async def cancel(self, operation_id: str) -> OperationRecord:
        """Have an operation stopped; raises :class:`NotFoundError` where there is none."""
        operation = await to_thread.run_sync(self.store.cancel_operation, operation_id)
        self.engine.wake()
        return operation

    async def _precompute_once(self, job: JobRecord, mode: Mode) -> OperationRecord | None:
        """Operation that a registration begins; ``None`` where the same one stands, here or on another server."""

        def begin() -> OperationRecord | None:
            return self.store.begin_operation(
                job_id=job.job_id,
                job_sha256=job.job_sha256,
                mode=mode,
                tolerance=job.tolerance,
                options=PrecomputeOptions(revision=job.revision).dump(),
            )

        operation = await to_thread.run_sync(begin)
        if operation is not None:
            self.engine.wake()
        return operation

    async def _create_operation(
        self, job: JobRecord, *, mode: Mode, tolerance: int, options: PrecomputeOptions
    ) -> OperationRecord:
        def create() -> OperationRecord:
            return self.store.create_operation(
                job_id=job.job_id,
                job_sha256=job.job_sha256,
                mode=mode,
                tolerance=tolerance,
                options=options.dump(),
            )

        operation = await to_thread.run_sync(create)
        self.engine.wake()
        return operation

    async def _require_plan(self, loaded: LoadedJob) -> None:
        """Make the fault-free template where it is not there, so that a job without any plan is never registered."""
        key = str(loaded.fault_free_key)
        if await to_thread.run_sync(self._templates.best, loaded, key) is None:
            loaded.job.problem().require_plannable()
            # Events of the job wait for its registration.
            await self._maker.make(loaded, key, deadline_s=self.settings.event_deadline_s, priority=Priority.EVENT)

    async def _present(self, job_id: str) -> tuple[JobRecord, EpochRecord, LoadedJob]:
        """A job, its current epoch for its newest revision, and what its document describes."""
        for _ in range(MAX_TRIES):
            job = await to_thread.run_sync(self.store.job, job_id)
            loaded = await to_thread.run_sync(self.jobs.load, job.document)
            current = await self._readable(job, loaded)
            if current is None or current.revision < job.revision:
                # A server died between registering the job and appending its epoch.
                current = await self._follow_revision(job, loaded)
            if current.revision == job.revision:
                return job, current, loaded
            # Another server gave the job a new revision meanwhile, by which its epoch has to be read.
        raise StaleBaseError(f"job {job_id!r} was replaced {MAX_TRIES} times while it was read")

    async def _follow_revision(self, job: JobRecord, loaded: LoadedJob) -> EpochRecord:
        """Epoch of a job's newest revision: appended where it is not there yet."""
        for _ in range(MAX_TRIES):
            current = await self._readable(job, loaded)
            if current is not None and current.revision >= job.revision:
                return current
            base, change = None, Change(cause="registered", state=FailureState())
            if current is not None:
                base = await to_thread.run_sync(self._base_for, current, loaded)
                state, dropped = carry_over(loaded.job, base.state)
                change = Change(
                    cause="revised", state=state, dropped=dropped, shards_restored=base.body.shards_restored
                )
            draft = await self._drafter.draft(job.job_id, job.revision, loaded, base, change)
            try:
                return (await self._append(job, 0 if base is None else base.epoch, change.cause, draft)).record
            except StaleBaseError:
                continue
        raise StaleBaseError(f"job {job.job_id!r} moved on {MAX_TRIES} times while its revision was worked out")

    async def _readable(self, job: JobRecord, loaded: LoadedJob) -> EpochRecord | None:
        """Current epoch of a job; where that is damaged another one is appended that holds the same failures."""
        for _ in range(MAX_TRIES):
            try:
                return await to_thread.run_sync(self.store.current_epoch, job.job_id)
            except CorruptStoreError as error:
                damage = error
            base, change = await to_thread.run_sync(self._recovery.work_out, job, loaded)
            draft = await self._drafter.draft(job.job_id, job.revision, loaded, base, change)
            with suppress(StaleBaseError):
                return (await self._append(job, job.current_epoch, change.cause, draft)).record
            # The job has moved on since it was read.
            job = await to_thread.run_sync(self.store.job, job.job_id)
            loaded = await to_thread.run_sync(self.jobs.load, job.document)
        raise damage

    async def _mend(self, job_id: str) -> EpochRecord:
        """Current epoch of a job whose current epoch was found to be damaged."""
        async with self._turns.hold(job_id):
            _, current, _ = await self._present(job_id)
        return current

    def _known(self, job_id: str, document: bytes, job_sha256: str) -> JobRecord | None:
        """A job that is to be registered, where it is known; its damaged document is mended by the same one."""
        try:
            return self.store.job(job_id)
        except NotFoundError:
            return None
        except CorruptStoreError as error:
            if not self.store.mend_job(job_id, document, job_sha256, tolerance=DEFAULT_TOLERANCE, mode=None):
                raise
            _LOG.error("the document of job %s was damaged, and is mended: %s", job_id, error)
            self.telemetry.degraded("job_corrupt")
        return self.store.job(job_id)

    def _base_for(self, current: EpochRecord, loaded: LoadedJob) -> Base:
        """An epoch of this or an earlier revision, as the one that follows it for this job finds it."""
        old = self.jobs.load(self.store.job_revision(current.job_id, current.revision).document)
        return Base.of(current).carried_over(old, loaded)

    async def _draft_event(
        self, job: JobRecord, current: EpochRecord, loaded: LoadedJob, event: JobEvent
    ) -> tuple[Draft, Base]:
        base = await to_thread.run_sync(Base.of, current)
        change = await to_thread.run_sync(
            lambda: change_of(loaded, base.state, event, dead=base.dead, shards_restored=base.body.shards_restored)
        )
        return await self._drafter.draft(job.job_id, job.revision, loaded, base, change), base

    async def _append(
        self, job: JobRecord, base_epoch: int, cause: Cause, draft: Draft, reported: Reported | None = None
    ) -> Appended:
        reported = reported or Reported()

        def append() -> Appended:
            return self.store.append(
                job.job_id,
                base_epoch=base_epoch,
                revision=job.revision,
                cause=cause,
                state=draft.state,
                failure_key=draft.failure_key,
                template_sha256=draft.template_sha256,
                body=draft.body_bytes,
                expected_epoch=reported.expected_epoch,
                idempotency_key=reported.idempotency_key,
                request_sha256=reported.request_sha256,
                event=reported.event,
            )

        appended = await to_thread.run_sync(append)
        self._announce(appended.record)
        return appended

    def _announce(self, record: EpochRecord) -> None:
        self.feed.announce(record.job_id, record.epoch)
        self.telemetry.epoch_made(job_id=record.job_id, epoch=record.epoch, cause=record.cause)
        self.materialiser.begin(record)
        self._improver.look_at(record.job_id)

    def _forget(self, is_gone: IsGone) -> None:
        """Forget what is in memory of deleted jobs, whichever server deleted them."""
        self.materialiser.forget(is_gone)
        self.telemetry.forget_epochs(is_gone)

    def _replay(self, job_id: str, idempotency_key: str, digest: str) -> EpochRecord | None:
        """Epoch that an earlier request with this key led to; ``None`` for a new key."""
        used = self.store.find_event(job_id, idempotency_key)
        if used is None:
            return None
        require_same_request(used, digest)
        try:
            return self.store.epoch(job_id, used.epoch)
        except CorruptStoreError:
            # What was reported is part of all epochs since.
            return self.store.current_epoch(job_id)

    async def _current_of(self, job_id: str) -> tuple[EpochRecord, LoadedJob]:
        async with self._turns.hold(job_id):
            _, current, loaded = await self._present(job_id)
        return current, loaded

    async def _follow(self, record: EpochRecord, loaded: LoadedJob) -> None:
        """Append an epoch for the same failures as ``record``'s, unless the job has moved on."""
        async with self._turns.hold(record.job_id):
            job = await to_thread.run_sync(self.store.job, record.job_id)
            if job.revision != record.revision:
                # Another server has a new document, and makes the epoch for it.
                self._improver.look_at(record.job_id)
                return
            base = await to_thread.run_sync(Base.of, record)
            change = Change(cause="improved", state=base.state, shards_restored=base.body.shards_restored)
            draft = await self._drafter.draft(job.job_id, record.revision, loaded, base, change)
            if draft.template_sha256 is None:
                raise SolverError("there is still no plan")
            try:
                await self._append(job, base.epoch, change.cause, draft)
            except StaleBaseError:
                self._improver.look_at(record.job_id)

    async def _take_up(self) -> None:
        """Have the programs of all current epochs made, and look whether their plans can be better."""
        for job_id in await to_thread.run_sync(self.store.current_epochs):
            self._improver.look_at(job_id)


def _tolerance_of(form: JobRegistration, known: JobRecord | None) -> tuple[int, Mode | None]:
    """Tolerance and mode of a registration; what it leaves out stays as it is."""
    tolerance, mode = (DEFAULT_TOLERANCE, None) if known is None else (known.tolerance, known.mode)
    if form.tolerance is not None:
        tolerance = form.tolerance
    return tolerance, form.mode if "mode" in form.model_fields_set else mode
