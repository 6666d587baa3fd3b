"""The epochs of jobs, appended one after the other; what a server that died, or a damaged row, left open is made up for first."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from functools import partial

from anyio import to_thread

from api.errors import CorruptStoreError, StaleBaseError
from api.jobs.drafting import Base, Change, Draft, Drafter
from api.jobs.loaded import JobCache, LoadedJob
from api.jobs.recovery import Recovery
from api.keyed_locks import KeyedLocks
from api.observability.telemetry import Telemetry
from api.store import Appended, Cause, EpochRecord, JobRecord, NewEpoch, Reported, Store
from planner.errors import SolverError
from planner.failure_state import FailureState, carry_over

MAX_TRIES = 100
"""How often work is done anew because the job moved on meanwhile, through other servers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """A job, its current epoch for its newest revision, and what its document describes."""

    job: JobRecord
    epoch: EpochRecord
    loaded: LoadedJob


class EpochChain:
    """Appends to the epochs of jobs.

    Changes of one job come one after the other, here by :meth:`hold`, between servers by the store: who computed an epoch from
    one that is not the current one any more gets a :class:`StaleBaseError`, reads again and works it out anew.

    Parameters
    ----------
    store
        Where epochs are; owned by the caller.
    jobs
        What was read of it already.
    drafter
        Works epochs out.
    telemetry
        Where damage is counted.
    on_appended
        Called in the event loop with each epoch that was appended here.
    """

    def __init__(
        self,
        *,
        store: Store,
        jobs: JobCache,
        drafter: Drafter,
        telemetry: Telemetry,
        on_appended: Callable[[EpochRecord], None],
    ) -> None:
        self._store = store
        self._jobs = jobs
        self._drafter = drafter
        self._on_appended = on_appended
        self._recovery = Recovery(store=store, jobs=jobs, telemetry=telemetry, base_of=self._base_for)
        self._turns = KeyedLocks()

    def hold(self, job_id: str) -> AbstractAsyncContextManager[None]:
        """Keep other changes of a job out of a block; those of other servers the store keeps apart."""
        return self._turns.hold(job_id)

    async def current(self, job_id: str) -> tuple[EpochRecord, LoadedJob]:
        """Current epoch of a job for its newest revision, appended first where it is not there or damaged.

        Raises
        ------
        NotFoundError
            If there is no such job.
        ReplanError
            If it cannot be read or made.
        """
        async with self.hold(job_id):
            present = await self.present(job_id)
        return present.epoch, present.loaded

    async def mend(self, job_id: str) -> EpochRecord:
        """Current epoch of a job, whose current one was found to be damaged; raises as :meth:`current` does."""
        epoch, _ = await self.current(job_id)
        return epoch

    async def present(self, job_id: str) -> Present:
        """As :meth:`current`, for whoever holds the job."""
        for _ in range(MAX_TRIES):
            job = await to_thread.run_sync(self._store.job, job_id)
            loaded = await to_thread.run_sync(self._jobs.load, job.document)
            epoch = await self._readable(job, loaded)
            if epoch is None or epoch.revision < job.revision:
                # A server died between registering the job and appending its epoch.
                epoch = await self.follow_revision(job, loaded)
            if epoch.revision == job.revision:
                return Present(job=job, epoch=epoch, loaded=loaded)
            # Another server gave the job a new revision meanwhile, by which its epoch has to be read.
        raise StaleBaseError(f"job {job_id!r} was replaced {MAX_TRIES} times while it was read")

    async def follow_revision(self, job: JobRecord, loaded: LoadedJob) -> EpochRecord:
        """Epoch of a job's newest revision, appended where it is not there yet; for whoever holds the job.

        Raises
        ------
        StaleBaseError
            If others moved the job on again and again.
        ReplanError
            If it cannot be worked out or stored.
        """
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
            with suppress(StaleBaseError):
                return (await self.append(job, 0 if base is None else base.epoch, change.cause, draft)).record
        raise StaleBaseError(f"job {job.job_id!r} moved on {MAX_TRIES} times while its revision was worked out")

    async def improve(self, epoch: EpochRecord, loaded: LoadedJob) -> bool:
        """Append an epoch for the same failures as a job's current one.

        Returns
        -------
        bool
            ``False`` where the job has moved on.

        Raises
        ------
        NotFoundError
            If the job was deleted.
        SolverError
            If there is still no plan.
        ReplanError
            If it cannot be worked out or stored.
        """
        async with self.hold(epoch.job_id):
            job = await to_thread.run_sync(self._store.job, epoch.job_id)
            if job.revision != epoch.revision:
                # Another server has a new document, and makes the epoch for it.
                return False
            base = await to_thread.run_sync(Base.of, epoch)
            change = Change(cause="improved", state=base.state, shards_restored=base.body.shards_restored)
            draft = await self._drafter.draft(job.job_id, epoch.revision, loaded, base, change)
            if draft.template_sha256 is None:
                raise SolverError("there is still no plan")
            try:
                await self.append(job, base.epoch, change.cause, draft)
            except StaleBaseError:
                return False
            return True

    async def append(
        self, job: JobRecord, base_epoch: int, cause: Cause, draft: Draft, reported: Reported | None = None
    ) -> Appended:
        """Append an epoch that was worked out, and tell of it; raises as :meth:`api.store.Store.append` does."""
        new = NewEpoch(
            job_id=job.job_id,
            base_epoch=base_epoch,
            revision=job.revision,
            cause=cause,
            state=draft.state,
            failure_key=draft.failure_key,
            template_sha256=draft.template_sha256,
            body=draft.body_bytes,
        )
        appended = await to_thread.run_sync(partial(self._store.append, new, reported))
        self._on_appended(appended.record)
        return appended

    async def _readable(self, job: JobRecord, loaded: LoadedJob) -> EpochRecord | None:
        """Current epoch of a job; where that is damaged another one is appended that holds the same failures."""
        for _ in range(MAX_TRIES):
            try:
                return await to_thread.run_sync(self._store.current_epoch, job.job_id)
            except CorruptStoreError as error:
                damage = error
            base, change = await to_thread.run_sync(self._recovery.work_out, job, loaded)
            draft = await self._drafter.draft(job.job_id, job.revision, loaded, base, change)
            with suppress(StaleBaseError):
                return (await self.append(job, job.current_epoch, change.cause, draft)).record
            # The job has moved on since it was read.
            job = await to_thread.run_sync(self._store.job, job.job_id)
            loaded = await to_thread.run_sync(self._jobs.load, job.document)
        raise damage

    def _base_for(self, current: EpochRecord, loaded: LoadedJob) -> Base:
        """An epoch of this or an earlier revision, as the one that follows it for this job finds it."""
        old = self._jobs.load(self._store.job_revision(current.job_id, current.revision).document)
        return Base.of(current).carried_over(old, loaded)
