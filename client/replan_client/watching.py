"""A thread that follows a job, for code that waits for the next epoch between other things."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Self, TypeGuard

from replan_client.async_client import AsyncClient
from replan_client.calls import stream_target
from replan_client.client import Client
from replan_client.epochs import Epoch
from replan_client.errors import (
    AnswerError,
    ClientError,
    ClosedError,
    ProblemError,
    ServiceFaultError,
    UnavailableError,
)

_CLOSE_S = 10.0


class EpochWatcher:
    """Follows a job in a thread of its own, from construction until it is closed or the job deleted.

    It goes on through restarts of the service. An older epoch never takes the place of a newer one. All methods may be called
    from any thread.

    Parameters
    ----------
    client
        The service. It may be closed before the watcher.
    job_id
        The job; it may be registered later.
    after
        Newest epoch that is known already; ``None`` for none.

    Raises
    ------
    ArgumentError
        If the job id is none.
    """

    def __init__(self, client: Client, job_id: str, *, after: int | None = None) -> None:
        stream_target(job_id, after)
        self._core = client.core
        self._job_id = job_id
        self._after = after
        self._changed = threading.Condition()
        self._latest: Epoch | None = None
        self._trouble: ClientError | None = None
        self._end: BaseException | None = None
        self._is_closed = False
        self._process = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name=f"replan-watcher-{job_id}", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def latest(self) -> Epoch | None:
        """Newest epoch so far; ``None`` until there is one."""
        with self._changed:
            return self._latest

    @property
    def trouble(self) -> ClientError | None:
        """What keeps the service from answering; ``None`` while it answers."""
        with self._changed:
            return self._trouble

    def wait_newer(self, than: int, timeout_s: float) -> Epoch | None:
        """Wait for an epoch.

        Parameters
        ----------
        than
            Number that its number has to be above; 0 for any.
        timeout_s
            Seconds to wait; 0 to look only.

        Returns
        -------
        Epoch | None
            The newest one; ``None`` where none above ``than`` came in time, also since the service could not be reached.

        Raises
        ------
        JobDeletedError
            If the job was deleted.
        ProblemError, AnswerError
            At the end of the wait, if the service refuses to tell, so that waiting on is of no use: an unknown key, an unknown
            job, a store that was set back; or if what answers is not RePlan's service.
        ClosedError
            If the watcher is closed, or its thread runs in the process that this one was forked from.
        """
        if self._process != os.getpid():
            raise ClosedError("the watcher was made before this process was forked", hint="make another one")
        until = time.monotonic() + timeout_s
        with self._changed:
            while True:
                if self._latest is not None and self._latest.epoch > than:
                    return self._latest
                if self._end is not None:
                    raise self._end
                if self._is_closed:
                    raise ClosedError(f"the watcher of job {self._job_id!r} is closed", hint="make another one")
                left_s = until - time.monotonic()
                if left_s <= 0:
                    break
                self._changed.wait(left_s)
            trouble = self._trouble
        if _is_refusal(trouble):
            raise trouble
        return None

    def close(self) -> None:
        """End the thread and its connections; whoever waits is woken. A second time does nothing."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        # A loop that has ended by itself needs no end, and says so.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._cancel)
        if threading.current_thread() is not self._thread:
            self._thread.join(_CLOSE_S)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _run(self) -> None:
        end: BaseException | None = None
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._follow())
        except asyncio.CancelledError:
            end = None
        # Whatever ends the thread is told to whoever waits: nobody is to wait for ever.
        except BaseException as error:
            end = error
        with self._changed:
            self._end = end
            self._changed.notify_all()

    async def _follow(self) -> None:
        self._task = asyncio.current_task()
        if self._is_closed:
            return
        async with AsyncClient.sharing(self._core) as client:
            await client.follow(self._job_id, self._take, after=self._after, on_trouble=self._note)

    def _take(self, epoch: Epoch) -> None:
        with self._changed:
            self._latest = epoch
            self._changed.notify_all()

    def _note(self, trouble: ClientError | None) -> None:
        with self._changed:
            self._trouble = trouble


def _is_refusal(trouble: ClientError | None) -> TypeGuard[ClientError]:
    """Whether waiting on is of no use."""
    if isinstance(trouble, UnavailableError | ServiceFaultError):
        return False
    return isinstance(trouble, ProblemError | AnswerError)
