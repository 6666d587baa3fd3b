"""One solver process as the event loop sees it: a message in, a message out."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Sequence

from api import messages, worker
from planner.errors import SolverCrashedError


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

    def lower_priority(self, steps: int) -> None:
        """Have the operating system prefer other processes to this one and to the children it starts from now on."""
        with contextlib.suppress(OSError):  # it may be gone, or the system may not allow it
            niceness = os.getpriority(os.PRIO_PROCESS, self._process.pid)
            os.setpriority(os.PRIO_PROCESS, self._process.pid, niceness + steps)

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
