"""The programs of epochs, made once and kept for a while."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass

from anyio import to_thread

from api.jobs.drafting import Base
from api.jobs.loaded import JobCache
from api.jobs.materialise import Materialised, MaterialiseRequest, read_materialised
from api.jobs.positions import empty_positions
from api.jobs.program_cache import ProgramCache
from api.jobs.templates import Templates
from api.observability.telemetry import Telemetry
from api.pool import Priority, SolvePool
from api.single_flight import SingleFlight
from api.store import EpochRecord, Store
from api.store.watch import IsGone
from planner.errors import InputError, NoPlanError, NotFoundError, ReplanError, ScheduleError
from planner.failure_state import to_failure_set

_LOG = logging.getLogger("replan.api.jobs")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """What a solver process is asked, and who waits for it."""

    message: list[bytes]
    priority: Priority


class Materialiser:
    """Makes the programs of epochs; those of many are kept, and any other's can be made again, the same.

    Parameters
    ----------
    store, pool
        Where epochs and templates are, and where programs are made; owned by the caller.
    jobs, templates
        What was read of the store already.
    timeout_s
        Seconds after which a solver process is killed.
    on_unusable
        Called with a job whose current epoch has a plan that cannot be used.
    telemetry
        Where errors that nobody foresaw are counted.
    """

    def __init__(
        self,
        *,
        store: Store,
        pool: SolvePool,
        jobs: JobCache,
        templates: Templates,
        timeout_s: float,
        on_unusable: Callable[[str], None],
        telemetry: Telemetry,
    ) -> None:
        self._telemetry = telemetry
        self._store = store
        self._pool = pool
        self._jobs = jobs
        self._templates = templates
        self._timeout_s = timeout_s
        self._on_unusable = on_unusable
        self._kept = ProgramCache()
        self._making: SingleFlight[tuple[str, int], Materialised] = SingleFlight()
        self._newest: dict[str, EpochRecord] = {}
        self._ahead: dict[str, asyncio.Task[None]] = {}

    def ready(self, job_id: str, epoch: int) -> Materialised | None:
        """Programs of an epoch where they are at hand."""
        return self._kept.get(job_id, epoch)

    async def get(self, job_id: str, epoch: int) -> Materialised:
        """Programs of an epoch; they are made first where they are not at hand.

        Raises
        ------
        NotFoundError
            If there is no such epoch.
        NoPlanError
            If it has no plan.
        ReplanError
            If its programs cannot be made.
        """
        found = self.ready(job_id, epoch)
        return await self._join(job_id, epoch, None) if found is None else found

    def begin(self, record: EpochRecord) -> None:
        """Have the programs of a job's new epoch made, for those who will ask.

        One epoch of a job at a time: where events come faster, those in between are only made when they are asked for.
        """
        self._newest[record.job_id] = record
        if record.job_id not in self._ahead:
            task = asyncio.create_task(self._make_newest(record.job_id))
            self._ahead[record.job_id] = task
            task.add_done_callback(lambda _: self._ahead.pop(record.job_id, None))

    def forget(self, is_gone: IsGone) -> None:
        """Forget the programs of deleted jobs, those that are being made too."""
        for job_id in [job_id for job_id, record in self._newest.items() if is_gone(job_id, record.epoch)]:
            del self._newest[job_id]
        self._kept.forget(is_gone)
        # What is being made goes on for nobody; whoever asks from now on finds no such job.
        for key in self._making:
            if is_gone(*key):
                self._making.release(key)

    async def close(self) -> None:
        """Give up what is being made."""
        tasks = [*self._ahead.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._making.close()

    async def _make_newest(self, job_id: str) -> None:
        while (record := self._newest.pop(job_id, None)) is not None:
            if record.template_sha256 is not None and self.ready(job_id, record.epoch) is None:
                # What goes wrong is logged where it is made, and told to whoever asks; the next epoch is made all the same.
                with contextlib.suppress(Exception):
                    await self._join(job_id, record.epoch, record)

    async def _join(self, job_id: str, epoch: int, record: EpochRecord | None) -> Materialised:
        key = (job_id, epoch)
        return await self._making.join(key, lambda: self._make_and_keep(key, record))

    async def _make_and_keep(self, key: tuple[str, int], record: EpochRecord | None) -> Materialised:
        try:
            made = await self._make(*key, record)
        except (NotFoundError, NoPlanError):
            raise
        except Exception as error:
            is_foreseen = isinstance(error, ReplanError)
            trace = None if is_foreseen else error
            _LOG.error("the programs of epoch %d of job %s cannot be made: %s", key[1], key[0], error, exc_info=trace)
            if not is_foreseen:
                self._telemetry.degraded("programs_failed")
            raise
        # Not where the job was deleted meanwhile.
        if self._making.is_joined(key):
            self._kept.put(*key, made)
        return made

    async def _make(self, job_id: str, epoch: int, record: EpochRecord | None) -> Materialised:
        if record is None:
            record = await to_thread.run_sync(self._store.epoch, job_id, epoch)
        order = await to_thread.run_sync(self._order, record)
        try:
            if order is None:
                raise NotFoundError(
                    f"the plan of epoch {epoch} is damaged or gone", hint="wait for the job's next epoch"
                )
            answer = await self._pool.run(order.message, timeout_s=self._timeout_s, priority=order.priority)
            return read_materialised(answer)
        except (ScheduleError, InputError, NotFoundError) as error:
            try:
                if order is not None:
                    await to_thread.run_sync(self._drop, record, error)
            finally:
                self._on_unusable(job_id)
            raise

    def _order(self, record: EpochRecord) -> _Order | None:
        """What a solver process is asked; ``None`` where the template cannot be read any more."""
        base = Base.of(record)
        plan = base.body.plan
        if plan is None:
            assert base.body.problem is not None
            raise NoPlanError(
                f"epoch {record.epoch} of job {record.job_id!r} has no plan: {base.body.problem.message}",
                hint=base.body.problem.hint,
            )
        job = self._store.job_revision(record.job_id, record.revision)
        loaded = self._jobs.load(job.document)
        known = self._templates.version(loaded, plan.failure_key, plan.template)
        if known is None:
            return None
        failures = to_failure_set(loaded.job, base.state)
        speeds = {str(base.moved.get(worker, worker)): speed for worker, speed in failures.speeds_ppm.items()}
        request = MaterialiseRequest(
            failed_nodes=list(failures.nodes),
            empty=[str(position) for position in sorted(empty_positions(base.dead, base.moved))],
            speeds_ppm=speeds,
            moved={str(worker): str(position) for worker, position in base.moved.items()},
            relabelling=plan.relabelling.model_dump(),
        )
        # Training waits for the programs of its newest epoch. Those of an older one must not keep the next failure waiting.
        priority = Priority.REQUEST if record.epoch < job.current_epoch else Priority.EVENT
        return _Order(message=request.message(loaded.document, known.record.content), priority=priority)

    def _drop(self, record: EpochRecord, error: ReplanError) -> None:
        loaded = self._jobs.load(self._store.job_revision(record.job_id, record.revision).document)
        assert record.failure_key is not None
        self._templates.drop(loaded, record.failure_key, record.template_sha256, error)
