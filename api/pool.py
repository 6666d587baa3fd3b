"""Solver processes and the queue before them.

Each *lane* owns one process and takes one request at a time. A process that dies is replaced, and the request it had is
tried once more; one that runs past its time is killed. The event loop only waits.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from api import messages, worker
from api.errors import OverloadedError, SolveTimeoutError
from planner.errors import ReplanError, SolverCrashedError

DEFAULT_COMMAND = (sys.executable, "-P", "-m", "api.worker")
MAX_ATTEMPTS = 2
_MAX_BACKOFF_S = 30.0
_LOG = logging.getLogger("replan.api.pool")


class SolverProcess:
    """One child process: a message in, a message out.

    Use :meth:`start`. ``exit`` is a task that ends when the process has.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.exit = asyncio.create_task(process.wait())

    @classmethod
    async def start(cls, command: Sequence[str], *, warm_up_timeout_s: float) -> SolverProcess:
        """Start a process and wait until it says that it is ready.

        Raises
        ------
        SolverCrashedError
            If it ends first, or is not ready in time.
        """
        pipe = asyncio.subprocess.PIPE
        try:
            # Its own session: a Ctrl-C in the terminal reaches the server alone, which then lets requests finish.
            child = await asyncio.create_subprocess_exec(
                *command, stdin=pipe, stdout=pipe, limit=2**20, start_new_session=True
            )
        except OSError as error:
            raise SolverCrashedError(f"cannot start a solver process: {error.strerror}") from error
        process = cls(child)
        try:
            async with asyncio.timeout(warm_up_timeout_s):
                hello = await process._receive()
            if hello != [worker.READY]:
                raise messages.MessageEndError("its first message is not that it is ready")
        except BaseException as error:
            await process.end()
            if isinstance(error, TimeoutError | messages.MessageEndError):
                raise SolverCrashedError(f"a solver process did not get ready: {error or 'too slow'}") from error
            raise
        return process

    async def call(self, request: Sequence[bytes], *, timeout_s: float) -> list[bytes]:
        """Send a request and wait for its answer. After any error the process is of no more use.

        Raises
        ------
        TimeoutError
            If there is no answer in time.
        MessageEndError
            If the process ends.
        """
        assert self._process.stdin is not None
        async with asyncio.timeout(timeout_s):
            try:
                self._process.stdin.write(messages.encode(request))
                await self._process.stdin.drain()
            except ConnectionError as error:
                raise messages.MessageEndError("the solver process has ended") from error
            return await self._receive()

    def kill(self) -> None:
        """Kill it; ``exit`` tells when it is gone."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def end(self) -> None:
        """Kill it and wait until it is gone."""
        self.kill()
        await self.exit

    async def _receive(self) -> list[bytes]:
        stream = self._process.stdout
        assert stream is not None
        try:
            count = messages.decode_count(await stream.readexactly(4))
            lengths = messages.decode_lengths(await stream.readexactly(4 * count))
            return messages.split(await stream.readexactly(sum(lengths)), lengths)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise messages.MessageEndError("the solver process has ended") from error


@dataclass(eq=False, slots=True, kw_only=True)
class _Ticket:
    """A request on its way through the pool."""

    request: Sequence[bytes]
    timeout_s: float
    answer: asyncio.Future[list[bytes]]
    num_attempts: int = 0
    expiry: asyncio.TimerHandle | None = None


class SolvePool:
    """A fixed number of solver processes behind a queue of bounded length.

    Parameters
    ----------
    num_processes
        Number of processes, at least 1.
    queue_limit
        Most requests that wait, at least 0; those being worked on are not counted.
    queue_timeout_s
        Seconds a request may wait.
    warm_up_timeout_s
        Seconds a process may take to get ready.
    command
        How a process is started.
    """

    def __init__(
        self,
        *,
        num_processes: int,
        queue_limit: int,
        queue_timeout_s: float,
        warm_up_timeout_s: float,
        command: Sequence[str] = DEFAULT_COMMAND,
    ) -> None:
        self._num_processes = num_processes
        self._queue_limit = queue_limit
        self._queue_timeout_s = queue_timeout_s
        self._warm_up_timeout_s = warm_up_timeout_s
        self._command = tuple(command)
        self._waiting: dict[_Ticket, None] = {}
        self._sleepers: collections.deque[asyncio.Future[None]] = collections.deque()
        self._num_idle = 0
        self._num_ready = 0
        self._lanes: list[asyncio.Task[None]] = []

    @property
    def num_ready(self) -> int:
        """Number of processes that are warm, busy or not."""
        return self._num_ready

    @property
    def num_waiting(self) -> int:
        """Number of requests that wait for a process."""
        return len(self._waiting)

    def start(self) -> None:
        """Start all processes; requests may come at once and wait for the first to be ready."""
        self._lanes = [asyncio.create_task(self._run_lane()) for _ in range(self._num_processes)]

    async def close(self) -> None:
        """Refuse what waits, stop all processes and wait until they are gone."""
        for lane in self._lanes:
            lane.cancel()
        await asyncio.gather(*self._lanes, return_exceptions=True)
        for ticket in list(self._waiting):
            self._give_up(ticket, "the server is shutting down")

    async def run(self, request: Sequence[bytes], *, timeout_s: float) -> list[bytes]:
        """Have a request answered by one of the processes.

        Parameters
        ----------
        request
            Name of a handler in :mod:`api.planning`, then its arguments.
        timeout_s
            Seconds after which the process is killed, counted from when it gets the request.

        Raises
        ------
        OverloadedError
            If too many requests wait already, or this one waited for too long.
        SolveTimeoutError
            If the process was killed.
        SolverCrashedError
            If processes died twice over this request, or hit a bug.
        ReplanError
            What the handler raised.
        """
        if len(self._waiting) >= self._queue_limit + self._num_idle:
            raise OverloadedError(f"{len(self._waiting)} requests wait for a solver process; that is the limit")
        loop = asyncio.get_running_loop()
        ticket = _Ticket(request=request, timeout_s=timeout_s, answer=loop.create_future())
        ticket.expiry = loop.call_later(
            self._queue_timeout_s, self._give_up, ticket, f"no solver process was free for {self._queue_timeout_s:g} s"
        )
        self._waiting[ticket] = None
        self._wake_lane()
        try:
            return _unpack(await ticket.answer)
        finally:
            self._take_out(ticket)

    def _give_up(self, ticket: _Ticket, reason: str) -> None:
        self._take_out(ticket)
        if not ticket.answer.done():
            ticket.answer.set_exception(OverloadedError(reason))

    def _take_out(self, ticket: _Ticket) -> None:
        self._waiting.pop(ticket, None)
        if ticket.expiry is not None:
            ticket.expiry.cancel()

    async def _run_lane(self) -> None:
        unfinished: _Ticket | None = None
        try:
            while True:
                process = await self._start_process()
                self._num_ready += 1
                try:
                    unfinished = await self._work(process, unfinished)
                finally:
                    self._num_ready -= 1
                    await process.end()
        finally:
            if unfinished is not None and not unfinished.answer.done():
                unfinished.answer.set_exception(OverloadedError("the server is shutting down"))

    async def _start_process(self) -> SolverProcess:
        backoff_s = 0.5
        while True:
            try:
                return await SolverProcess.start(self._command, warm_up_timeout_s=self._warm_up_timeout_s)
            except SolverCrashedError as error:
                _LOG.error("%s; the next try is in %g s", error, backoff_s)
            await asyncio.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, _MAX_BACKOFF_S)

    async def _work(self, process: SolverProcess, unfinished: _Ticket | None) -> _Ticket | None:
        """Answer requests until the process ends; returns the request that is to be tried again, if any."""
        while True:
            ticket = unfinished or await self._next_ticket(process)
            unfinished = None
            if ticket is None:
                _LOG.warning("a solver process ended while it was idle; starting another")
                return None
            if ticket.answer.done():
                continue
            ticket.num_attempts += 1
            try:
                answer = await process.call(ticket.request, timeout_s=ticket.timeout_s)
            except TimeoutError:
                _fail(ticket, SolveTimeoutError(f"no answer after {ticket.timeout_s:g} s: the solver was killed"))
                return None
            except messages.MessageEndError:
                _LOG.warning("a solver process ended during attempt %d of a request", ticket.num_attempts)
                if ticket.num_attempts < MAX_ATTEMPTS:
                    return ticket
                _fail(ticket, SolverCrashedError(f"the solver process ended {MAX_ATTEMPTS} times over this request"))
                return None
            except asyncio.CancelledError:
                _fail(ticket, OverloadedError("the server is shutting down"))
                raise
            if not ticket.answer.done():
                ticket.answer.set_result(answer)

    async def _next_ticket(self, process: SolverProcess) -> _Ticket | None:
        """Wait for a request and take it out of the queue; ``None`` when the process ends first."""
        while not process.exit.done():
            if self._waiting:
                ticket = next(iter(self._waiting))
                self._take_out(ticket)
                return ticket
            await self._sleep_until_woken(process)
        self._wake_lane()  # if this lane was the one woken for a request, another takes it
        return None

    async def _sleep_until_woken(self, process: SolverProcess) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_exit(_exit: object) -> None:
            if not woken.done():
                woken.set_result(None)

        process.exit.add_done_callback(on_exit)
        self._sleepers.append(woken)
        self._num_idle += 1
        try:
            await woken
        finally:
            self._num_idle -= 1
            process.exit.remove_done_callback(on_exit)
            with contextlib.suppress(ValueError):
                self._sleepers.remove(woken)

    def _wake_lane(self) -> None:
        while self._waiting and self._sleepers:
            sleeper = self._sleepers.popleft()
            if not sleeper.done():
                sleeper.set_result(None)
                return


def _fail(ticket: _Ticket, error: ReplanError) -> None:
    if not ticket.answer.done():
        ticket.answer.set_exception(error)


def _unpack(answer: list[bytes]) -> list[bytes]:
    """Parts of a good answer; raises what the handler raised."""
    kind, *parts = answer
    if kind == worker.REFUSED:
        raise _rebuild_error(json.loads(parts[0]))
    if kind != worker.OK:
        raise SolverCrashedError(f"a solver process hit a bug: {parts[0].decode(errors='replace')}")
    return parts


def _rebuild_error(refusal: dict[str, Any]) -> ReplanError:
    todo: list[type[ReplanError]] = [ReplanError]
    kinds: dict[str, type[ReplanError]] = {}
    while todo:
        kind = todo.pop()
        kinds[kind.__name__] = kind
        todo += kind.__subclasses__()
    error = kinds.get(refusal["class"], ReplanError)(refusal["message"], hint=refusal["hint"])
    if refusal["places"]:
        error.places = tuple(refusal["places"])  # type: ignore[attr-defined]
    return error
