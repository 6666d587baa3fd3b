"""Real worker processes for tests: started cheaply, limited, and killed at the end whatever happens.

They come from a fork server that has imported torch once. ``with processes(limit_s=60) as group:`` also starts a store
that outlives any of them; ``group.start("0/1", function, ...)`` runs ``function(here, ...)``, a function of a module, in a
process of its own.
"""

from __future__ import annotations

import datetime
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import pytest
import torch
import torch.distributed as dist

_CONTEXT = multiprocessing.get_context("forkserver")
# Optimizers import torch._dynamo when the first one is made: seconds, once for all here.
_PRELOADED = ["__main__", "torch._dynamo", "torch.distributed.pipelining", "replan_client.torch.module_compute"]


class ChildFailedError(Exception):
    """A child raised, died or did not answer in time."""


class Here:
    """What a child knows of its surroundings."""

    def __init__(self, name: str, port: int, limit_s: float, pipe: Connection) -> None:
        self.name = name
        self.limit_s = limit_s
        self._port = port
        self._pipe = pipe

    def store(self) -> dist.TCPStore:
        """A connection to the test's store."""
        timeout = datetime.timedelta(seconds=self.limit_s)
        return dist.TCPStore("127.0.0.1", self._port, None, False, timeout=timeout)

    def report(self, value: Any) -> None:
        """Tell the test something; see :meth:`Child.next_report`."""
        self._pipe.send(("report", value))


class Child:
    """One process, as the test sees it."""

    def __init__(self, name: str, process: BaseProcess, pipe: Connection, ends_at: float) -> None:
        self.name = name
        self.process = process
        self._pipe = pipe
        self._ends_at = ends_at
        self._received: list[tuple[str, Any]] = []

    def next_report(self) -> Any:
        """Next thing the child reports, once it does.

        Raises
        ------
        ChildFailedError
            If it raises, ends or dies before, or the limit of the test passes.
        """
        kind, value = self._next()
        if kind != "report":
            self._received.insert(0, (kind, value))
            raise ChildFailedError(f"{self.name} ended without a further report: {kind} {value}")
        return value

    def has_said(self) -> bool:
        """Whether a report or a result is there to be taken; also where it died."""
        return bool(self._received) or self._pipe.poll()

    def result(self) -> Any:
        """What its function returned, once it has; reports not taken are dropped.

        Raises
        ------
        ChildFailedError
            With its traceback, if it raised, died or went past the limit of the test.
        """
        while True:
            kind, value = self._next()
            if kind != "report":
                self._received.insert(0, (kind, value))
                break
        if kind == "raised":
            raise ChildFailedError(f"{self.name} raised:\n{value}")
        return value

    def kill(self) -> None:
        """Kill it at once (SIGKILL)."""
        self.process.kill()

    def stop(self) -> None:
        """Stop it (SIGSTOP): it stays, and answers nothing."""
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on (SIGCONT)."""
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGCONT)

    def _next(self) -> tuple[str, Any]:
        if self._received:
            return self._received.pop(0)
        if not wait([self._pipe], max(0.0, self._ends_at - time.monotonic())):
            raise ChildFailedError(f"{self.name} said nothing within the limit of the test")
        try:
            answer: tuple[str, Any] = self._pipe.recv()
        except EOFError as error:
            self.process.join(5)
            raise ChildFailedError(f"{self.name} died with exit code {self.process.exitcode}") from error
        return answer


class Processes:
    """The processes of one test, and their store."""

    def __init__(self, limit_s: float) -> None:
        _start_server()
        self.limit_s = limit_s
        self.children: list[Child] = []
        # The test's process hosts it: it is there until all children are gone.
        self.store = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
        self._ends_at = time.monotonic() + limit_s

    def start(self, name: str, function: Callable[..., Any], *args: Any) -> Child:
        """Run ``function(here, *args)``, which has to be a module's own, in a process; it ends when the function does."""
        ours, theirs = _CONTEXT.Pipe(duplex=False)
        process = _CONTEXT.Process(
            target=_run, args=(name, self.store.port, self.limit_s, theirs, function, args), daemon=True
        )
        process.start()
        theirs.close()
        child = Child(name, process, ours, self._ends_at)
        self.children.append(child)
        return child

    def start_all(self, names: Sequence[object], function: Callable[..., Any], *args: Any) -> list[Child]:
        """Run the same function in one process for each name; it finds its own as ``here.name``."""
        return [self.start(str(name), function, *args) for name in names]

    def end(self) -> None:
        """Kill whatever still runs."""
        for child in self.children:
            child.process.kill()
        for child in self.children:
            child.process.join(10)
            child.process.close()


@contextmanager
def processes(limit_s: float = 200) -> Iterator[Processes]:
    """Processes for one test; none is left behind it. ``limit_s`` bounds every wait, counted from here."""
    group = Processes(limit_s)
    try:
        yield group
    finally:
        group.end()


def _start_server() -> None:
    """Start the fork server, unless it runs."""
    _CONTEXT.set_forkserver_preload(_PRELOADED)
    # It is told of our import path in this way only.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        forkserver.ensure_running()


def _run(name: str, port: int, limit_s: float, pipe: Connection, function: Callable[..., Any], args: Any) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    # Should the test's process be killed, the child still ends by itself.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(int(limit_s) + 10)
    try:
        value = function(Here(name, port, limit_s, pipe), *args)
    except BaseException:
        pipe.send(("raised", traceback.format_exc()))
    else:
        pipe.send(("returned", value))
