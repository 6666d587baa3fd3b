"""Waiting for a job's next epoch: long polls and event streams."""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager

from anyio import to_thread

from api.errors import EpochConflictError
from api.jobs.current import CurrentEpochs
from api.store import DamagedEpoch, EpochRecord, Store
from api.store.watch import EpochFeed
from planner.errors import NotFoundError, ReplanError

_PAGE = 50
_RETRY_MS = (500, 3000)
HEARTBEAT = b": still here\n\n"
DELETED = b"event: deleted\ndata: {}\n\n"
_LOG = logging.getLogger("replan.api.jobs")


class Watcher:
    """Long polls and streams of one server.

    Parameters
    ----------
    store, feed, current
        Where epochs are, what tells of new ones, and how the newest is read.
    heartbeat_s
        Seconds of silence after which a stream sends a comment.
    """

    def __init__(self, *, store: Store, feed: EpochFeed, current: CurrentEpochs, heartbeat_s: float) -> None:
        self._store = store
        self._feed = feed
        self._current = current
        self._heartbeat_s = heartbeat_s

    async def newer(
        self, job_id: str, after: int | None, wait_s: float, while_waiting: AbstractContextManager[None]
    ) -> EpochRecord | None:
        """Current epoch of a job.

        Parameters
        ----------
        job_id
            The job.
        after
            Newest epoch that the client has; ``None`` to answer at once.
        wait_s
            Seconds to wait for a newer one.
        while_waiting
            Entered for as long as that lasts, if it is waited for at all.

        Returns
        -------
        EpochRecord | None
            ``None`` where the client has it, and no newer one came in time.

        Raises
        ------
        NotFoundError
            If there is no such job.
        EpochConflictError
            If the client's epoch is ahead of the job's.
        """
        record = await self._read(job_id, after)
        if after is not None and record.epoch == after and wait_s > 0:
            with while_waiting:
                await self._feed.wait(job_id, after, wait_s)
            record = await self._read(job_id, after)
        return None if record.epoch == after else record

    async def begin_stream(self, job_id: str, after: int | None) -> AsyncIterator[bytes]:
        """Check that a stream can begin; what it sends. Raises as :meth:`newer` does."""
        record = await self._read(job_id, after)
        return self._stream(job_id, record.epoch - 1 if after is None else after)

    async def _read(self, job_id: str, after: int | None) -> EpochRecord:
        record = await self._newest(job_id)
        if record is None:
            raise NotFoundError(f"job {job_id!r} has no epoch yet", hint="register it again with PUT /v1/jobs/{id}")
        if after is not None and after > record.epoch:
            raise EpochConflictError(
                f"job {job_id!r} is at epoch {record.epoch}; the request has epoch {after} already",
                hint="the store was set back to an earlier state: start anew from the current epoch",
                current=record.epoch,
            )
        return record

    async def _stream(self, job_id: str, last: int) -> AsyncIterator[bytes]:
        # Clients of a server that stops come again at different times.
        yield f"retry: {random.randint(*_RETRY_MS)}\n\n".encode()
        try:
            is_silent = False
            while not self._feed.is_closed:
                records = await self._behind(job_id, last)
                for record in records:
                    yield frame_of(record) if isinstance(record, EpochRecord) else _damaged(record)
                    last = record.epoch
                if not records:
                    if is_silent:
                        yield HEARTBEAT
                    await self._feed.wait(job_id, last, self._heartbeat_s)
                is_silent = not records
        except NotFoundError:
            yield DELETED
        except ReplanError as error:
            _LOG.warning("a stream of job %s ends, its client may come again: %s", job_id, error)

    async def _newest(self, job_id: str) -> EpochRecord | None:
        told = self._feed.newest(job_id)
        record = await self._current.read(job_id)
        if record is not None and record.epoch < told:
            self._feed.take_back(job_id, told, record.epoch)
        return record

    async def _behind(self, job_id: str, last: int) -> Sequence[EpochRecord | DamagedEpoch]:
        record = await self._newest(job_id)
        if record is None or record.epoch <= last:
            return ()
        if record.epoch == last + 1:
            return (record,)
        return await to_thread.run_sync(self._store.epochs_behind, job_id, last, _PAGE)


def frame_of(record: EpochRecord) -> bytes:
    """An epoch as a server-sent event; its body is one line."""
    return b"id: %d\nevent: epoch\ndata: %b\n\n" % (record.epoch, record.body)


def _damaged(marker: DamagedEpoch) -> bytes:
    return b"id: %d\nevent: damaged\ndata: %b\n\n" % (marker.epoch, marker.body)
