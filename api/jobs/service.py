"""Jobs and what happens to them: registration, events, and the epochs that follow."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass

from anyio import to_thread

from api.background import Background
from api.errors import CorruptStoreError, StaleBaseError
from api.jobs.acknowledging import Acknowledger
from api.jobs.chain import MAX_TRIES, EpochChain, Present
from api.jobs.current import CurrentEpochs
from api.jobs.drafting import Base, Draft, Drafter
from api.jobs.forms import JobEvent, JobRegistration, Mode
from api.jobs.improvement import Improver
from api.jobs.loaded import JobCache, LoadedJob
from api.jobs.materialiser import Materialiser
from api.jobs.operations import JobOperations
from api.jobs.reports import change_of
from api.jobs.solving import TemplateMaker
from api.jobs.templates import Templates
from api.jobs.watching import Watcher
from api.observability.telemetry import Telemetry
from api.pool import Priority, SolvePool
from api.precompute.engine import PrecomputeEngine
from api.settings import Settings
from api.store import EpochRecord, JobRecord, OperationRecord, Reported, Store
from api.store.appending import require_expected, require_same_request
from api.store.watch import EpochFeed, IsGone
from api.views.views import Views
from planner.errors import NotFoundError
from planner.plan_content import canonical_json
from planner.tolerance import ToleranceMode, require_listable

DEFAULT_TOLERANCE = 1
_LOG = logging.getLogger("replan.api.jobs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A registered job, its current epoch, whether this changed anything, and the operation that it began."""

    record: JobRecord
    epoch: EpochRecord
    is_new_job: bool
    operation: OperationRecord | None


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
        self.settings = settings
        self.telemetry = telemetry
        self.jobs = JobCache()
        self.operations = JobOperations(store=store, engine=engine, jobs=self.jobs)
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
        self._chain = EpochChain(
            store=store, jobs=self.jobs, drafter=self._drafter, telemetry=telemetry, on_appended=self._on_appended
        )
        self._improver = Improver(
            templates=self._templates,
            maker=self._maker,
            current=self._chain.current,
            improve=self._chain.improve,
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
        current = CurrentEpochs(store, mend=self._chain.mend)
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
            current=self._chain.current,
            settings=settings,
        )
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
        async with self._chain.hold(job_id):
            known = await to_thread.run_sync(self._known, job_id, document, loaded.sha256)
            tolerance, mode = _tolerance_of(form, known)
            require_listable(loaded.job, tolerance, mode or ToleranceMode.NORMALIZED)
            await self._require_plan(loaded)
            record, is_new = await to_thread.run_sync(
                self.store.put_job, job_id, document, loaded.sha256, tolerance, mode
            )
            epoch = await self._chain.follow_revision(record, loaded)
        operation = await self.operations.begin_registered(record)
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
        async with self._chain.hold(job_id):
            for _ in range(MAX_TRIES):
                present = await self._chain.present(job_id)
                if idempotency_key is not None:
                    # Looked up after the epoch was read: where the key is not there, the epoch does not hold its event either.
                    replayed = await to_thread.run_sync(self._replay, job_id, idempotency_key, digest)
                    if replayed is not None:
                        return replayed, True
                require_expected(job_id, present.epoch.epoch, event.expected_epoch)
                draft = await self._draft_event(present, event)
                reported = Reported(
                    expected_epoch=event.expected_epoch,
                    idempotency_key=idempotency_key,
                    request_sha256=digest if idempotency_key is not None else None,
                    event=event.canonical(),
                )
                try:
                    appended = await self._chain.append(present.job, present.epoch.epoch, "event", draft, reported)
                except StaleBaseError:
                    continue
                self.telemetry.event_answered(source=draft.body.source or "none", seconds=time.perf_counter() - began)
                return appended.record, appended.is_replay
        raise StaleBaseError(f"job {job_id!r} moved on {MAX_TRIES} times while an event was worked out")

    async def delete(self, job_id: str) -> None:
        """Delete a job with all of its epochs; raises :class:`NotFoundError` where there is none."""
        async with self._chain.hold(job_id):
            await to_thread.run_sync(self.store.delete_job, job_id)
        self.feed.announce(job_id, 0)

    async def _require_plan(self, loaded: LoadedJob) -> None:
        """Make the fault-free template where it is not there, so that a job without any plan is never registered."""
        key = str(loaded.fault_free_key)
        if await to_thread.run_sync(self._templates.best, loaded, key) is None:
            loaded.job.problem().require_plannable()
            # Events of the job wait for its registration.
            await self._maker.make(loaded, key, deadline_s=self.settings.event_deadline_s, priority=Priority.EVENT)

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

    async def _draft_event(self, present: Present, event: JobEvent) -> Draft:
        loaded = present.loaded
        base = await to_thread.run_sync(Base.of, present.epoch)
        change = await to_thread.run_sync(
            lambda: change_of(loaded, base.state, event, dead=base.dead, shards_restored=base.body.shards_restored)
        )
        job = present.job
        return await self._drafter.draft(job.job_id, job.revision, loaded, base, change)

    def _on_appended(self, record: EpochRecord) -> None:
        """Tell everybody of an epoch that was appended here."""
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

    async def _take_up(self) -> None:
        """Look at all jobs: what a server that ended left to repair or to make better is taken up."""
        for job_id in await to_thread.run_sync(self.store.current_epochs):
            self._improver.look_at(job_id)


def _tolerance_of(form: JobRegistration, known: JobRecord | None) -> tuple[int, Mode | None]:
    """Tolerance and mode of a registration; what it leaves out stays as it is."""
    tolerance, mode = (DEFAULT_TOLERANCE, None) if known is None else (known.tolerance, known.mode)
    if form.tolerance is not None:
        tolerance = form.tolerance
    return tolerance, form.mode if "mode" in form.model_fields_set else mode
