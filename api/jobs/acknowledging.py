"""Acknowledgements of thousands of workers: while one batch is written, the next one gathers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from anyio import to_thread

from api.jobs.drafting import Base
from api.jobs.loaded import JobCache
from api.jobs.reading import no_live_worker
from api.recent import Recent
from api.single_flight import SingleFlight
from api.store import Store
from planner.job import Job
from planner.operation import Worker

_MAX_ROSTERS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """Who is live in an epoch, which never changes.

    Parameters
    ----------
    epoch
        Its number.
    live
        Live workers by the text of their homes, ``pipeline/slot``, in order.
    workers_of_ranks
        Live worker of each global rank, as text.
    """

    epoch: int
    live: dict[str, Worker]
    workers_of_ranks: dict[str, str]

    @classmethod
    def of(cls, epoch: int, job: Job, dead: frozenset[Worker]) -> Roster:
        """Roster of an epoch of a job in which these workers are down."""
        every = (Worker(k, s) for k in range(job.num_pipelines) for s in range(job.num_slots))
        live = [worker for worker in every if worker not in dead]
        ranks = {str(gpu): str(worker) for worker in live for gpu in job.gpus_of_worker(worker)}
        return cls(epoch=epoch, live={str(worker): worker for worker in live}, workers_of_ranks=ranks)

    def find(self, name: str) -> str:
        """Live worker that ``3/5`` or ``rank:17`` names, by its home; raises :class:`NotFoundError` where there is none."""
        worker = self.workers_of_ranks.get(name.removeprefix("rank:")) if name.startswith("rank:") else name
        if worker is None or worker not in self.live:
            raise no_live_worker(self.epoch, name)
        return worker


class Acknowledger:
    """Stores acknowledgements, many in one transaction; each is durable when it returns.

    Parameters
    ----------
    store
        Where they are kept; owned by the caller.
    jobs
        What was read of it already.
    """

    def __init__(self, store: Store, jobs: JobCache) -> None:
        self._store = store
        self._jobs = jobs
        self._gathered: dict[tuple[str, int], dict[str, int | None]] = {}
        self._batches: SingleFlight[tuple[str, int], None] = SingleFlight()
        self._writing = asyncio.Lock()
        self._rosters: Recent[tuple[str, int], Roster] = Recent(_MAX_ROSTERS)
        self._calling: SingleFlight[tuple[str, int], Roster] = SingleFlight()

    async def add(self, job_id: str, epoch: int, name: str, iteration: int | None) -> None:
        """Store that a worker has an epoch.

        Parameters
        ----------
        job_id, epoch
            The epoch.
        name
            The worker's own name, ``3/5``, or one of its ranks, ``rank:17``.
        iteration
            Iteration from which it runs the epoch's program; ``None`` where it does not say.

        Raises
        ------
        NotFoundError
            If there is no such epoch, or no such live worker in it.
        StoreError
            If it cannot be stored.
        """
        worker = (await self.roster(job_id, epoch)).find(name)
        key = (job_id, epoch)
        self._gathered.setdefault(key, {})[worker] = iteration
        await self._batches.join(key, lambda: self._write(key))

    async def roster(self, job_id: str, epoch: int) -> Roster:
        """Who is live in an epoch. A deleted job's may be given for a while; nothing is stored for it then.

        Raises
        ------
        NotFoundError
            If there is no such epoch.
        StoreError
            If the store cannot be read.
        """
        key = (job_id, epoch)
        found = self._rosters.get(key)
        if found is not None:
            return found
        return await self._calling.join(key, lambda: self._call(key))

    async def _call(self, key: tuple[str, int]) -> Roster:
        roster = await to_thread.run_sync(self._read, *key)
        self._rosters.put(key, roster)
        return roster

    def _read(self, job_id: str, epoch: int) -> Roster:
        record = self._store.epoch(job_id, epoch)
        job = self._jobs.load(self._store.job_revision(job_id, record.revision).document).job
        return Roster.of(epoch, job, Base.of(record).dead)

    async def _write(self, key: tuple[str, int]) -> None:
        async with self._writing:
            # From here on whoever comes is written with the next batch.
            self._batches.release(key)
            batch = self._gathered.pop(key)
            await to_thread.run_sync(self._store.acknowledge_all, *key, batch)
