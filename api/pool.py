"""Solver processes and the queue before them.

Each *lane* owns one process and takes one request at a time, the most urgent first. All processes run at a lower priority of
the operating system than the server, so that what is ready is answered at once. Some lanes may be reserved for events; the
processes of the others then run at a still lower one. A process that dies is replaced, and the request it had is tried once
more; one that runs past its time is killed. The event loop only waits.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from api import messages, worker
from api.errors import OverloadedError, SolveTimeoutError
from api.solver_process import SolverProcess
from planner.errors import ReplanError, SolverCrashedError

DEFAULT_COMMAND = (sys.executable, "-P", "-m", "api.worker")
MAX_ATTEMPTS = 2
_FIRST_BACKOFF_S, _MAX_BACKOFF_S = 0.5, 30.0
PATIENCE_S = 5.0
"""Seconds that a client's request waits for the end of a background search before it takes its process: most end by themselves,
and a new process takes some seconds to get ready."""
_STEPS_LOWER, _BACKGROUND_STEPS_LOWER = 5, 12
"""Steps of niceness by which processes stand behind the server, the second where others are reserved for events."""
_LOG = logging.getLogger("replan.api.pool")


class Priority(IntEnum):
    """Who waits for an answer; a smaller one goes first, and equal ones in the order they came."""

    EVENT = 0
    """What training stands still for, and whatever holds that up: it takes no longer than an event may."""
    REQUEST = 1
    """A client, who may ask for a long search."""
    IMPROVEMENT = 2
    """Nobody: a better plan for failures that a job has."""
    PRECOMPUTE = 3
    """Nobody: a plan for failures that a job may have."""

    @property
    def is_background(self) -> bool:
        """Whether nobody waits for the answer, so that the request may wait for as long as it takes."""
        return self >= Priority.IMPROVEMENT


@dataclass(eq=False, slots=True, kw_only=True)
class _Ticket:
    """A request on its way through the pool."""

    request: Sequence[bytes]
    timeout_s: float
    priority: Priority
    answer: asyncio.Future[list[bytes]]
    num_attempts: int = 0
    timers: list[asyncio.TimerHandle] = field(default_factory=list)
    is_preempted: bool = False


class SolvePool:
    """A fixed number of solver processes behind a queue of bounded length.

    Parameters
    ----------
    num_processes
        Number of processes, at least 1.
    num_reserved
        How many of them take events alone, 0 to ``num_processes - 1``: so that no event waits for a search.
    queue_limit
        Most requests that wait, at least 0; those being worked on, less urgent ones and background ones are not counted.
    queue_timeout_s
        Seconds a request may wait, except in the background.
    warm_up_timeout_s
        Seconds a process may take to get ready.
    command
        How a process is started.
    patience_s
        Seconds that a client's request waits before it takes the process of a background search, at least 0.
    on_broken_lane
        Called where a lane met an error that nobody foresaw; it goes on with another process.
    """

    def __init__(
        self,
        *,
        num_processes: int,
        num_reserved: int = 0,
        queue_limit: int,
        queue_timeout_s: float,
        warm_up_timeout_s: float,
        command: Sequence[str] = DEFAULT_COMMAND,
        patience_s: float = PATIENCE_S,
        on_broken_lane: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_broken_lane = on_broken_lane
        assert 0 <= num_reserved < num_processes
        self._num_reserved = num_reserved
        self._most_background = num_processes - num_reserved
        self._queue_limit = queue_limit
        self._queue_timeout_s = queue_timeout_s
        self._warm_up_timeout_s = warm_up_timeout_s
        self._command = tuple(command)
        self._patience_s = patience_s
        self._waiting = {priority: collections.OrderedDict[_Ticket, None]() for priority in Priority}
        # Idle lanes, the reserved ones apart.
        self._sleepers = {reserved: collections.deque[asyncio.Future[None]]() for reserved in (True, False)}
        self._num_idle = {True: 0, False: 0}
        self._num_ready = 0
        self._running: dict[_Ticket, SolverProcess] = {}
        self._lanes: list[asyncio.Task[None]] = []

    @property
    def num_ready(self) -> int:
        """Number of processes that are warm, busy or not."""
        return self._num_ready

    @property
    def num_waiting(self) -> int:
        """Number of requests that wait for a process and that somebody waits for."""
        return sum(self.num_waiting_at(priority) for priority in Priority if not priority.is_background)

    @property
    def most_background(self) -> int:
        """Most background requests that are worked on at once."""
        return self._most_background

    def num_waiting_at(self, priority: Priority) -> int:
        """Number of requests of one priority that wait for a process."""
        return len(self._waiting[priority])

    def start(self) -> None:
        """Start all processes; requests may come at once and wait for the first to be ready."""
        reserved = [True] * self._num_reserved + [False] * self._most_background
        self._lanes = [asyncio.create_task(self._run_lane(is_reserved)) for is_reserved in reserved]

    async def close(self) -> None:
        """Refuse what waits, stop all processes and wait until they are gone."""
        for lane in self._lanes:
            lane.cancel()
        await asyncio.gather(*self._lanes, return_exceptions=True)
        for ticket in [ticket for tickets in self._waiting.values() for ticket in tickets]:
            self._give_up(ticket, "the server is shutting down")

    async def run(
        self, request: Sequence[bytes], *, timeout_s: float, priority: Priority = Priority.REQUEST
    ) -> list[bytes]:
        """Have a request answered by one of the processes.

        Parameters
        ----------
        request
            Name of a handler in :mod:`api.planning`, then its arguments.
        timeout_s
            Seconds after which the process is killed, counted from when it gets the request.
        priority
            Who waits for the answer.

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
        loop = asyncio.get_running_loop()
        ticket = _Ticket(request=request, timeout_s=timeout_s, priority=priority, answer=loop.create_future())
        if not priority.is_background:
            num_before = sum(self.num_waiting_at(other) for other in Priority if other <= priority)
            if num_before >= self._queue_limit + self._num_idle_for(priority):
                raise OverloadedError(f"{num_before} requests wait for a solver process; that is the limit")
            reason = f"no solver process was free for {self._queue_timeout_s:g} s"
            ticket.timers.append(loop.call_later(self._queue_timeout_s, self._give_up, ticket, reason))
        self._waiting[priority][ticket] = None
        self._wake_lane()
        if priority is Priority.EVENT:
            self._make_room(priority)
        elif priority is Priority.REQUEST:
            ticket.timers.append(loop.call_later(self._patience_s, self._make_room, priority))
        try:
            return worker.unpack(await ticket.answer)
        finally:
            self._take_out(ticket)

    def _give_up(self, ticket: _Ticket, reason: str) -> None:
        self._take_out(ticket)
        if not ticket.answer.done():
            ticket.answer.set_exception(OverloadedError(reason))

    def _take_out(self, ticket: _Ticket) -> None:
        self._waiting[ticket.priority].pop(ticket, None)
        for timer in ticket.timers:
            timer.cancel()
        ticket.timers.clear()

    def _make_room(self, priority: Priority) -> None:
        """Stop a less urgent request where one that has come would have to wait for it.

        Clients' requests give way only where no process is reserved for events. An event that is worked on is over soon, so
        others wait for it and nothing is lost.
        """
        num_waiting = sum(self.num_waiting_at(other) for other in Priority if other <= priority)
        if num_waiting <= self._num_idle_for(priority):
            return
        if priority is Priority.EVENT and any(ticket.priority is Priority.EVENT for ticket in self._running):
            return
        least = Priority.IMPROVEMENT if self._num_reserved or priority is Priority.REQUEST else Priority.REQUEST
        found = [ticket for ticket in self._running if ticket.priority >= least and not ticket.is_preempted]
        if found:
            ticket = max(found, key=lambda ticket: ticket.priority)
            ticket.is_preempted = True
            self._running[ticket].kill()

    def _num_idle_for(self, priority: Priority) -> int:
        """Idle processes that may take requests of a priority."""
        return sum(count for is_reserved, count in self._num_idle.items() if _may_take(is_reserved, priority))

    async def _run_lane(self, is_reserved: bool) -> None:
        while True:
            try:
                await self._serve_lane(is_reserved)
            except Exception:
                _LOG.exception("a solver process could not be used; another one is started in %g s", _FIRST_BACKOFF_S)
                self._on_broken_lane()
                await asyncio.sleep(_FIRST_BACKOFF_S)

    async def _serve_lane(self, is_reserved: bool) -> None:
        """Start processes one after the other, and have each answer requests until it ends."""
        while True:
            process = await self._start_process()
            try:
                is_background = self._num_reserved > 0 and not is_reserved
                process.lower_priority(_BACKGROUND_STEPS_LOWER if is_background else _STEPS_LOWER)
                self._num_ready += 1
                try:
                    await self._work(process, is_reserved)
                finally:
                    self._num_ready -= 1
            finally:
                await process.end()

    async def _start_process(self) -> SolverProcess:
        backoff_s = _FIRST_BACKOFF_S
        while True:
            try:
                return await SolverProcess.start(self._command, warm_up_timeout_s=self._warm_up_timeout_s)
            except SolverCrashedError as error:
                _LOG.error("%s; the next try is in %g s", error, backoff_s)
            await asyncio.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, _MAX_BACKOFF_S)

    async def _work(self, process: SolverProcess, is_reserved: bool) -> None:
        """Answer requests until the process ends."""
        is_usable = True
        while is_usable:
            ticket = await self._next_ticket(process, is_reserved)
            if ticket is None:
                _LOG.warning("a solver process ended while it was idle; starting another")
                return
            self._wake_lane()
            is_usable = await self._answer(process, ticket)
        self._wake_lane()  # what this lane leaves is the others' now

    async def _answer(self, process: SolverProcess, ticket: _Ticket) -> bool:
        """Have one request answered; false when the process is of no more use."""
        ticket.num_attempts += 1
        self._running[ticket] = process
        try:
            answer = await process.call(ticket.request, timeout_s=ticket.timeout_s)
        except TimeoutError:
            _fail(ticket, SolveTimeoutError(f"no answer after {ticket.timeout_s:g} s: the solver was killed"))
            return False
        except messages.MessageEndError:
            if ticket.is_preempted:
                _LOG.info("a search makes room for what is more urgent; it begins anew later")
                ticket.num_attempts -= 1
                ticket.is_preempted = False
            else:
                _LOG.warning("a solver process ended during attempt %d of a request", ticket.num_attempts)
            if ticket.num_attempts >= MAX_ATTEMPTS:
                _fail(ticket, SolverCrashedError(f"the solver process ended {MAX_ATTEMPTS} times over this request"))
            elif not ticket.answer.done():
                self._waiting[ticket.priority][ticket] = None
                self._waiting[ticket.priority].move_to_end(ticket, last=False)
            return False
        except asyncio.CancelledError:
            _fail(ticket, OverloadedError("the server is shutting down"))
            raise
        except BaseException:
            _fail(ticket, SolverCrashedError("the request or its answer could not be passed on"))
            raise
        finally:
            del self._running[ticket]
        if not ticket.answer.done():
            ticket.answer.set_result(answer)
        return True

    async def _next_ticket(self, process: SolverProcess, is_reserved: bool) -> _Ticket | None:
        """Wait for a request and take it out of the queue; ``None`` when the process ends first."""
        while not process.exit.done():
            ticket = self._most_urgent(is_reserved)
            if ticket is not None:
                self._take_out(ticket)
                return ticket
            await self._sleep_until_woken(process, is_reserved)
        self._wake_lane()  # if this lane was the one woken for a request, another takes it
        return None

    async def _sleep_until_woken(self, process: SolverProcess, is_reserved: bool) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_exit(_exit: object) -> None:
            if not woken.done():
                woken.set_result(None)

        process.exit.add_done_callback(on_exit)
        self._sleepers[is_reserved].append(woken)
        self._num_idle[is_reserved] += 1
        try:
            await woken
        finally:
            self._num_idle[is_reserved] -= 1
            process.exit.remove_done_callback(on_exit)
            with contextlib.suppress(ValueError):
                self._sleepers[is_reserved].remove(woken)

    def _most_urgent(self, is_reserved: bool) -> _Ticket | None:
        """The request that a lane is to take next; ``None`` where there is none for it."""
        for priority, tickets in self._waiting.items():
            if tickets and _may_take(is_reserved, priority):
                return next(iter(tickets))
        return None

    def _wake_lane(self) -> None:
        for is_reserved, sleepers in self._sleepers.items():
            while sleepers and self._most_urgent(is_reserved) is not None:
                sleeper = sleepers.popleft()
                if not sleeper.done():
                    sleeper.set_result(None)
                    return


def _may_take(is_reserved: bool, priority: Priority) -> bool:
    """Whether a lane takes requests of a priority."""
    return not is_reserved or priority is Priority.EVENT


def _fail(ticket: _Ticket, error: ReplanError) -> None:
    if not ticket.answer.done():
        ticket.answer.set_exception(error)
