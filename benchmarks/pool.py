"""Runs tasks in worker processes that are killed where they overrun, and started again where they died.

Workers are processes of :mod:`benchmarks.worker`, each in a session of its own. They load compiled code once, then take one task
after the other. A task that must run alone waits until all others are done, and others wait for it.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import IO, Self

from benchmarks.provenance import ROOT
from benchmarks.row import Measurement
from planner.errors import SolverCrashedError

START_S = 180.0
"""Seconds for a worker to be ready; the first one after an installation compiles for half a minute."""

_BASE_S, _DEADLINES, _SECONDS_AN_OPERATION = 60.0, 3.0, 60e-6
"""A task is killed after so many seconds, deadlines, and seconds an operation, together: checks come on top of a deadline."""

_TAIL_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One thing to measure.

    Parameters
    ----------
    suite, instance, solver
        Names.
    seed, deadline_s, target_gap, deterministic, workers
        Options of the search.
    operations
        Operations of the instance, by which the time until a worker is killed is measured.
    alone
        Whether nothing else may run beside it.
    """

    suite: str
    instance: str
    solver: str
    seed: int
    deadline_s: float
    target_gap: float
    deterministic: bool
    workers: int
    operations: int
    alone: bool = False

    @property
    def limit_s(self) -> float:
        """Seconds after which a worker that has not answered is killed."""
        return _BASE_S + _DEADLINES * self.deadline_s + _SECONDS_AN_OPERATION * self.operations

    def to_json(self) -> str:
        """What a worker reads."""
        names = ("suite", "instance", "solver", "seed", "deadline_s", "target_gap", "deterministic", "workers")
        return json.dumps({name: getattr(self, name) for name in names})


@dataclass(slots=True)
class _Worker:
    """One process and what it works at."""

    process: subprocess.Popen[bytes]
    answers: int
    errors: IO[bytes]
    until: float
    task: Task | None = None
    ready: bool = False
    begun: float = 0.0
    received: bytearray = field(default_factory=bytearray)


class Pool:
    """A number of workers; a context that leaves no process behind.

    Parameters
    ----------
    processes
        How many, at least 1.
    """

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self._workers: list[_Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            _end(worker)
        self._workers.clear()

    def run(
        self, tasks: Iterable[Task], begun: Callable[[Task], None] = lambda _task: None
    ) -> Iterator[tuple[Task, Measurement]]:
        """Measure tasks; yields each as it is done, not in order.

        Parameters
        ----------
        tasks
            What to measure.
        begun
            Called with each task as it is given to a worker.

        Raises
        ------
        SolverCrashedError
            If a worker cannot be started, or ends before it is ready.
        """
        waiting = deque(tasks)
        while waiting or any(worker.task is not None for worker in self._workers):
            self._give_out(waiting, begun)
            for worker in self._listen():
                task, found = worker.task, self._taken(worker)
                if task is not None and found is not None:
                    yield task, found

    def _give_out(self, waiting: deque[Task], begun: Callable[[Task], None]) -> None:
        busy = [worker.task for worker in self._workers if worker.task is not None]
        while waiting and not any(task.alone for task in busy):
            if waiting[0].alone and busy:
                return
            idle = next((worker for worker in self._workers if worker.ready and worker.task is None), None)
            if idle is None:
                starting = sum(not worker.ready for worker in self._workers)
                if len(self._workers) < self._processes and len(busy) + starting < self._processes and not starting:
                    self._workers.append(_start())
                return
            task = waiting.popleft()
            assert idle.process.stdin is not None
            idle.task, idle.begun = task, time.monotonic()
            idle.until = idle.begun + task.limit_s
            with suppress(BrokenPipeError):  # its end is noticed where answers are read
                idle.process.stdin.write(task.to_json().encode("ascii") + b"\n")
                idle.process.stdin.flush()
            busy.append(task)
            begun(task)

    def _listen(self) -> list[_Worker]:
        """Workers that have said something, ended, or are out of time."""
        with selectors.DefaultSelector() as selector:
            for worker in self._workers:
                selector.register(worker.answers, selectors.EVENT_READ, worker)
            active = [worker for worker in self._workers if worker.task is not None or not worker.ready]
            left = min((worker.until for worker in active), default=0.0) - time.monotonic()
            heard = [key.data for key, _ in selector.select(max(0.0, left))]
        now = time.monotonic()
        return heard + [worker for worker in active if worker not in heard and worker.until <= now]

    def _taken(self, worker: _Worker) -> Measurement | None:
        """What a worker's task came to; ``None`` where it is still under way, or the worker has just become ready."""
        overran = worker.until <= time.monotonic()
        data = b"" if overran else os.read(worker.answers, 1 << 16)
        worker.received += data
        if data and not worker.received.endswith(b"\n"):
            return None
        if data:
            document = json.loads(bytes(worker.received))
            worker.received.clear()
            if not worker.ready:
                worker.ready = True
                return None
            worker.task = None
            document.pop("gap")
            return Measurement(**document)
        self._workers.remove(worker)
        # Of a process that ended by itself the status says why.
        code = None if overran else _exit_code(worker)
        tail = _end(worker)
        wall_s = time.monotonic() - worker.begun
        if not worker.ready:
            raise SolverCrashedError(f"a benchmark process did not start: {tail or f'exit code {code}'}")
        lost = Measurement(status="overran", solve_s=wall_s, detail=f"killed after {wall_s:.0f} s")
        if overran:
            return lost
        how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        return replace(lost, status="crashed", detail=f"ended by {how}: {tail}" if tail else f"ended by {how}")


def _start() -> _Worker:
    read, write = os.pipe()
    errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", str(write), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=os.environ | {"PYTHONPATH": path},
            pass_fds=(write,),
            start_new_session=True,
        )
    except OSError as error:
        os.close(read)
        errors.close()
        raise SolverCrashedError(f"no benchmark process could be started: {error}") from error
    finally:
        os.close(write)
    return _Worker(process=process, answers=read, errors=errors, until=time.monotonic() + START_S)


def _exit_code(worker: _Worker) -> int | None:
    try:
        return worker.process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        return None


def _end(worker: _Worker) -> str:
    """Kill a worker and what it started; the last line of its errors."""
    with suppress(ProcessLookupError):
        os.killpg(worker.process.pid, signal.SIGKILL)
    worker.process.wait()
    assert worker.process.stdin is not None
    with suppress(BrokenPipeError):
        worker.process.stdin.close()
    os.close(worker.answers)
    with worker.errors as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        lines = file.read().decode("utf-8", errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else ""
