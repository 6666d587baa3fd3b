"""Wait for epochs: those appended by this process, by other processes and by other replicas."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, TypeAlias

import psycopg
from anyio import to_thread

from api.store.file_version import FileVersion
from api.store.notices import CHANNEL, read_notice
from api.store.store import Store
from planner.errors import StoreError

POLL_S = 0.25
_PROBE_S = 10.0
_ANSWER_S = 5.0
"""Seconds that PostgreSQL has for an answer, from when on its connection is taken for lost."""
_WOKEN_AT_ONCE = 32
_ANY_JOB = ""
"""Stands for all jobs together among those that are waited for; no job has an empty id."""
_RECONNECT_S = (0.1, 0.5, 2.0)
_LOG = logging.getLogger("replan.store")
Run: TypeAlias = Callable[[str, Callable[[], Coroutine[Any, Any, None]]], asyncio.Task[None]]


def _run_once(name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
    return asyncio.create_task(work(), name=name)


IsGone: TypeAlias = Callable[[str, int], bool]
"""Whether an epoch of a job went with the job, by the job's id and the epoch's number."""


def _tell_nobody(_is_gone: IsGone) -> None:
    """What is called where nobody wants to know."""


class EpochFeed:
    """Tells those who wait for a job's next epoch that it is there.

    It knows the newest epoch of every job: from :meth:`announce`, from PostgreSQL's notices, and on SQLite from looking
    every ``poll_s`` seconds whether another process wrote to the file. A lost connection is made again, and what was
    missed meanwhile is read. Used as an asynchronous context manager; all methods belong to the event loop's thread.

    Parameters
    ----------
    store
        An open store, owned by the caller.
    poll_s
        Seconds between two looks at an SQLite file, above 0.
    run
        Runs what listens, in a task of that name, and again after errors that nobody foresaw.
    """

    def __init__(self, store: Store, *, poll_s: float = POLL_S, run: Run = _run_once) -> None:
        self._run = run
        self._store = store
        self._poll_s = poll_s
        self._latest: dict[str, int] = {}
        self._waiting: dict[str, dict[asyncio.Future[None], int]] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self._connected = asyncio.Event()
        self._on_gone: Callable[[IsGone], None] = _tell_nobody
        self._num_changes = 0

    async def __aenter__(self) -> EpochFeed:
        """Start to listen; the store need not answer yet."""
        self._task = self._run("hearing of epochs", self._follow)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop to listen and wake all who wait."""
        self.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def close(self) -> None:
        """Wake all who wait, now and from now on, so that a server that stops can answer them."""
        self._is_closed = True
        for job_id in list(self._waiting):
            self._wake(job_id, None)

    @property
    def num_changes(self) -> int:
        """How often any job got an epoch or was deleted, since this began to listen."""
        return self._num_changes

    @property
    def is_closed(self) -> bool:
        """Whether waiting is over for good."""
        return self._is_closed

    @property
    def is_connected(self) -> bool:
        """Whether epochs of other processes are seen at the moment."""
        return self._connected.is_set()

    @property
    def num_waiting(self) -> int:
        """How many wait."""
        return sum(map(len, self._waiting.values()))

    def call_when_gone(self, callback: Callable[[IsGone], None]) -> None:
        """Have this called in the event loop whenever a job was, or may have been, deleted here or by another process.

        It gets what tells of any epoch whether that is gone, also where the job's id was registered again.
        """
        self._on_gone = callback

    def announce(self, job_id: str, epoch: int) -> None:
        """Tell that a job has this epoch; 0 that it was deleted. Old news changes nothing."""
        if epoch == 0:
            self._latest.pop(job_id, None)
            self._on_gone(lambda other, _: other == job_id)
            self._wake(job_id, None)
        elif epoch > self._latest.get(job_id, 0):
            self._latest[job_id] = epoch
            self._wake(job_id, epoch)
        else:
            return
        self._num_changes += 1
        self._wake(_ANY_JOB, None)

    async def wait_for_any(self, seen: int, timeout: float) -> None:
        """Wait until there were other changes than the ``seen`` first ones, the feed closes, or ``timeout`` seconds are over."""
        if seen == self._num_changes:
            await self.wait(_ANY_JOB, 0, timeout)

    def newest(self, job_id: str) -> int:
        """Number of the newest epoch of a job that was told of; 0 where none was."""
        return self._latest.get(job_id, 0)

    def take_back(self, job_id: str, told: int, found: int) -> None:
        """Where this epoch is still the newest that was told of, the store has shown that it is not there, but an older one.

        A number that is damaged in the store would keep everybody from waiting.
        """
        if self._latest.get(job_id) == told:
            self._latest[job_id] = found

    async def wait(self, job_id: str, after: int, timeout: float) -> None:
        """Wait until a job has an epoch behind ``after``, it is deleted, the feed closes, or ``timeout`` seconds are over.

        Read the store afterwards, whatever ended the wait.
        """
        if self._is_closed or self._latest.get(job_id, 0) > after:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(job_id, {})
        waiting[waiter] = after
        try:
            async with asyncio.timeout(timeout):
                await waiter
        except TimeoutError:
            pass  # as good an end of the wait as the others
        finally:
            del waiting[waiter]
            if not waiting and self._waiting.get(job_id) is waiting:
                del self._waiting[job_id]

    def _wake(self, job_id: str, epoch: int | None) -> None:
        """Wake those of a job who wait for this epoch, or all of them."""
        waiting = self._waiting.get(job_id, {})
        self._let_go([waiter for waiter, after in waiting.items() if epoch is None or epoch > after])

    def _let_go(self, waiters: Sequence[asyncio.Future[None]], start: int = 0) -> None:
        """Let some go on now and the others in the loop's next rounds, so that it gets to other work in between."""
        end = start + _WOKEN_AT_ONCE
        for waiter in waiters[start:end]:
            if not waiter.done():
                waiter.set_result(None)
        if end < len(waiters):
            asyncio.get_running_loop().call_soon(self._let_go, waiters, end)

    async def _follow(self) -> None:
        self._connected.clear()
        failures = 0
        while True:
            try:
                await (self._poll() if self._store.is_sqlite else self._listen())
            except (psycopg.Error, sqlite3.Error, StoreError, OSError) as error:
                failures = 0 if self._connected.is_set() else failures + 1
                self._connected.clear()
                if failures <= 1:
                    _LOG.warning("epochs of other processes are not seen until the store answers again: %s", error)
                await asyncio.sleep(_RECONNECT_S[min(failures, len(_RECONNECT_S) - 1)])

    async def _catch_up(self) -> None:
        known = dict(self._latest)
        ranges = await to_thread.run_sync(self._store.epoch_ranges)
        # Jobs that were registered here while that was read are not in it.
        missing = {
            job_id for job_id, epoch in known.items() if job_id not in ranges and self._latest.get(job_id) == epoch
        }
        new = self._latest.keys() - known.keys()
        self._on_gone(lambda job_id, epoch: epoch < ranges[job_id][0] if job_id in ranges else job_id not in new)
        for job_id in missing:
            self.announce(job_id, 0)
        for job_id, (_, newest) in ranges.items():
            if newest > 0:
                self.announce(job_id, newest)
        self._connected.set()

    async def _listen(self) -> None:
        connection = await psycopg.AsyncConnection.connect(autocommit=True, **self._store.connection_options())
        async with connection:
            async with asyncio.timeout(_ANSWER_S):
                await connection.execute(f"LISTEN {CHANNEL}")
            await self._catch_up()
            while True:
                async for notice in connection.notifies(timeout=_PROBE_S):
                    self._hear(notice.payload)
                # A server that has vanished without a word is noticed when it is asked something.
                async with asyncio.timeout(_ANSWER_S):
                    await connection.execute("SELECT 1")

    def _hear(self, payload: str) -> None:
        try:
            self.announce(*read_notice(payload))
        except ValueError:
            _LOG.warning("a notice on channel %s is not one of RePlan's: %.80r", CHANNEL, payload)

    async def _poll(self) -> None:
        current = FileVersion(str(self._store.url.database))
        seen = None
        try:
            while True:
                version = await to_thread.run_sync(current.read)
                if version != seen:
                    await self._catch_up()
                    seen = version
                await asyncio.sleep(self._poll_s)
        finally:
            await to_thread.run_sync(current.close)
