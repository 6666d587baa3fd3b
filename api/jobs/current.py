"""Reading the current epoch of a job for thousands of workers at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from anyio import to_thread

from api.errors import CorruptStoreError
from api.keyed_locks import KeyedLocks
from api.single_flight import SingleFlight
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
        self._reads: SingleFlight[str, EpochRecord | None] = SingleFlight()
        self._turns = KeyedLocks()

    async def read(self, job_id: str) -> EpochRecord | None:
        """Current epoch of a job; ``None`` where it has none yet.

        Raises
        ------
        NotFoundError
            If there is no such job.
        StoreError
            If the store cannot be read.
        """
        return await self._reads.join(job_id, lambda: self._read(job_id))

    async def _read(self, job_id: str) -> EpochRecord | None:
        async with self._turns.hold(job_id):
            # From here on whoever asks needs a later read than this one.
            self._reads.release(job_id)
            try:
                return await to_thread.run_sync(self._store.current_epoch, job_id)
            except CorruptStoreError:
                return await self._mend(job_id)
