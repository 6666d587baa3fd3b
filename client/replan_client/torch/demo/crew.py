"""Processes that are started cheaply, heard together, limited in time, and gone at the end whatever happens.

A fork server imports PyTorch once; each process is a fork of it. The process that starts them imports it not at all.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from replan_client.torch.demo.child import Crashed, Refused, Returned, run_child
from replan_client.torch.demo.errors import DemoFailedError

_CONTEXT = multiprocessing.get_context("forkserver")
# The first optimizer that is made imports torch._dynamo, which takes longer than torch itself.
_PRELOADED = ("torch", "torch._dynamo", "replan_client.torch.demo.worker", "replan_client.torch.demo.costs")
_END_S = 10.0
_SHOWN_LINES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """A process that ended without a word, since it was killed or crashed."""

    exit_code: int | None


class Member:
    """One process, as the one that started it sees it."""

    def __init__(self, name: str, process: BaseProcess, pipe: Connection) -> None:
        self.name = name
        self.process = process
        self.pipe = pipe
        self.is_over = False

    def tell(self, value: Any) -> None:
        """Tell it something; one that is gone hears nothing."""
        try:
            self.pipe.send(value)
        except OSError:
            return

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self.process.kill()


class Crew:
    """All processes of one demonstration; a context manager that ends them.

    Parameters
    ----------
    limit_s
        Seconds from now until every wait is given up.
    log
        File that takes what the processes log, begun anew.
    scratch
        Folder for what libraries write.
    preload
        Further modules that every process imports, so that it need be done only once.
    """

    def __init__(self, *, limit_s: float, log: Path, scratch: Path, preload: Sequence[str] = ()) -> None:
        self._ends_at = time.monotonic() + limit_s
        self._limit_s = limit_s
        self._log = log
        log.write_bytes(b"")
        self._members: list[Member] = []
        _CONTEXT.set_forkserver_preload([*_PRELOADED, *preload])
        # Nothing is imported from the present folder, as this process does not either; and torch._dynamo makes a folder.
        with _environment({"PYTHONSAFEPATH": "1", "TORCHINDUCTOR_CACHE_DIR": str(scratch / "torch")}):
            forkserver.ensure_running()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill whatever still runs, and wait until it is gone."""
        for member in self._members:
            member.kill()
        for member in self._members:
            member.process.join(_END_S)
            member.pipe.close()

    @property
    def seconds_left(self) -> float:
        """Seconds until every wait is given up; 0 after that."""
        return max(0.0, self._ends_at - time.monotonic())

    def start(self, name: str, function: str, *arguments: Any) -> Member:
        """Run ``function``, written ``module:name``, in a process; it is given its :class:`Child` and the arguments.

        Raises
        ------
        DemoFailedError
            If the fork server does not get ready in time, or fails.
        """
        ours, theirs = _CONTEXT.Pipe()
        given = (name, function, arguments, theirs, str(self._log))
        process = _CONTEXT.Process(name=name, target=run_child, args=given, daemon=True)
        member = Member(name, process, ours)
        failure: list[BaseException] = []

        def begin() -> None:
            try:
                process.start()
            except (OSError, EOFError) as error:
                failure.append(error)

        # Waits for the fork server, which takes no limit itself.
        starting = threading.Thread(target=begin, name=f"start {name}", daemon=True)
        starting.start()
        starting.join(self.seconds_left)
        theirs.close()
        if starting.is_alive() or failure:
            why = repr(failure[0]) if failure else f"PyTorch was not imported within {self._limit_s:g} s"
            raise DemoFailedError(f"the process {name} cannot be started: {why}")
        self._members.append(member)
        return member

    def next(self, timeout_s: float) -> tuple[Member, Any] | None:
        """What any process says next; ``None`` where none does in time.

        Raises
        ------
        DemoFailedError
            If time is up, or a process fails; one that is killed is told of as :class:`Gone`.
        """
        self._require_time()
        heard = wait([member.pipe for member in self._members if not member.is_over], timeout_s)
        for member in self._members:
            if member.pipe in heard:
                return member, self._take(member)
        return None

    def wait_for(self, member: Member) -> Any:
        """What one process says next.

        Raises
        ------
        DemoFailedError
            If it does not in time, fails or is gone.
        """
        while not wait([member.pipe], self.seconds_left):
            self._require_time()
        said = self._take(member)
        if isinstance(said, Gone):
            raise DemoFailedError(f"the process {member.name} ended with exit code {said.exit_code}{self._log_end()}")
        return said

    def _take(self, member: Member) -> Any:
        try:
            said = member.pipe.recv()
        except (EOFError, OSError):
            member.is_over = True
            member.process.join(_END_S)
            return Gone(exit_code=member.process.exitcode)
        if isinstance(said, Returned):
            member.is_over = True
        elif isinstance(said, Refused):
            raise DemoFailedError(f"{member.name}: {said.message} ({said.code})", hint=said.hint)
        elif isinstance(said, Crashed):
            raise DemoFailedError(f"{member.name} crashed:\n{said.traceback.rstrip()}")
        return said

    def _require_time(self) -> None:
        if not self.seconds_left:
            raise DemoFailedError(
                f"it took longer than {self._limit_s:g} s{self._log_end()}", hint="give it more time with --timeout"
            )

    def _log_end(self) -> str:
        """The last that processes logged."""
        try:
            lines = self._log.read_text(errors="replace").splitlines()
        except OSError:
            return ""
        return (
            "".join(f"\n{line}" for line in ("; the last that they logged:", *lines[-_SHOWN_LINES:])) if lines else ""
        )


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Variables that what is started meanwhile inherits."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
