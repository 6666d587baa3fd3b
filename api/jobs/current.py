"""Reading the current epoch of a job for thousands of workers at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from anyio import to_thread

from api.errors import CorruptStoreError
from api.store import EpochRecord, Store


class CurrentEpochs:
    """The store's current epochs; whoever asks while a read of the same job runs shares the one that follows it.

    So every answer is what the store held after it was asked for, and a crowd costs no more reads than a queue of one.

    Parameters
    ----------
    store
        Where epochs are; owned by the caller.
    mend
        Appends an epoch that takes the place of a damaged current one.
    """

    def __init__(self, store: Store, mend: Callable[[str], Awaitable[EpochRecord]]) -> None:
        self._store = store
        self._mend = mend
        self._next: dict[str, asyncio.Task[EpochRecord | None]] = {}
        self._running: dict[str, asyncio.Task[EpochRecord | None]] = {}

    async def read(self, job_id: str) -> EpochRecord | None:
        """Current epoch of a job; ``None`` where it has none yet.

        Raises
        ------
        NotFoundError
            If there is no such job.
        StoreError
            If the store cannot be read.
        """
        task = self._next.get(job_id)
        if task is None:
            task = asyncio.create_task(self._read(job_id))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._next[job_id] = task
        return await asyncio.shield(task)

    async def _read(self, job_id: str) -> EpochRecord | None:
        task = asyncio.current_task()
        assert task is not None
        if (previous := self._running.get(job_id)) is not None:
            await asyncio.wait({previous})
        # From here on whoever asks needs a later read than this one.
        del self._next[job_id]
        self._running[job_id] = task
        try:
            return await to_thread.run_sync(self._store.current_epoch, job_id)
        except CorruptStoreError:
            return await self._mend(job_id)
        finally:
            if self._running.get(job_id) is task:
                del self._running[job_id]
