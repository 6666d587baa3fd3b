"""Runs a search in a killable child process with a hard deadline and a memory limit.

Backends do not keep their time limits, and take hundreds of megabytes doing so; a child process can be stopped whatever it
is doing. The parent starts :mod:`solver_models.child_main` with ``subprocess`` in a session of its own: no fork of a threaded
server, nothing imported from ``__main__``, and plain JSON both ways. The child sends every better schedule as it finds it, so a
child that is killed still leaves its best. Once :meth:`ChildSearch.wait` has returned, neither process nor file is left.

Frames on the pipe are 8 bytes of length, big-endian, then that many bytes of JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from planner.errors import SolverCrashedError
from planner.problem import Problem
from planner.schedule import Schedule
from solver_models.child_main import EXIT_OUT_OF_MEMORY
from solver_models.result import SolveOptions, Status
from solver_models.scratch import ScratchFolder
from solver_models.search import SEARCH_MODULES, Found
from solver_models.wire import problem_to_wire, schedule_from_wire, schedule_to_wire

GRACE_S = 0.25
"""Seconds after its deadline at which a child that has not answered is killed."""

GUARD_S, GUARD_FACTOR = 60.0, 20.0
"""A child whose deadline counts work is killed only after so many seconds and deadlines, together: it hangs."""

RESERVE_S = 0.05
"""Seconds before the deadline at which the search is told to stop, for its answer to travel and be timed."""

_MAX_FRAME_BYTES = 2**30
_REAP_S = 0.5
"""Seconds that the watcher gets to end the worker and clean up before this side does both: what a stopped one costs."""


class Ending(StrEnum):
    """How a child ended; the members are distinct on purpose."""

    ANSWERED = "answered"
    """It sent its answer."""
    REFUSED = "refused"
    """It sent one of our own errors, for example that the instance is too large for the solver."""
    DEADLINE = "deadline"
    """It was killed at its deadline."""
    CANCELLED = "cancelled"
    """It was killed because :meth:`ChildSearch.cancel` was called."""
    OUT_OF_MEMORY = "out_of_memory"
    """Its memory limit, or the machine's, ended it."""
    CRASHED = "crashed"
    """It ended without an answer for any other reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildOutcome:
    """What a child left.

    Parameters
    ----------
    ending
        How it ended.
    found
        Its answer, or where it did not give one its last incumbent with the bound proved by then.
    detail
        One line for people.
    error_code
        Code of our own error where it refused; ``None`` otherwise.
    """

    ending: Ending
    found: Found
    detail: str
    error_code: str | None = None


class ChildSearch:
    """One search in a child process, from its start to :meth:`wait`.

    Parameters
    ----------
    solver
        Name in :data:`solver_models.search.SEARCH_MODULES`.
    problem, options
        The instance and its limits; ``options.deadline_s`` counts from now. Where it counts work, the child stops by itself.
    hint
        A valid, timed schedule to start from.
    floor_ns
        A lower bound on the period that is known already.
    module
        Module whose ``search`` the child calls; ``None`` for the solver's own.

    Raises
    ------
    SolverCrashedError
        If no process can be started.
    """

    def __init__(
        self,
        solver: str,
        problem: Problem,
        options: SolveOptions,
        *,
        hint: Schedule | None = None,
        floor_ns: int = 0,
        module: str | None = None,
    ) -> None:
        guard_s = GUARD_S + GUARD_FACTOR * options.deadline_s if options.deterministic else options.deadline_s
        self._deadline = time.monotonic() + guard_s
        self._limited = options.memory_limit_bytes is not None
        self._cancelled = False
        self._group: int | None = None
        self._exit_code: int | None = None
        self._best = Found(status=Status.NO_PLAN_BY_DEADLINE, schedule=None, bound_ns=0, detail="")
        request = {
            "solver": solver,
            "module": SEARCH_MODULES[solver] if module is None else module,
            "problem": problem_to_wire(problem),
            "options": _options_to_wire(options),
            "floor_ns": floor_ns,
            "stop_at": self._deadline - min(RESERVE_S, options.deadline_s / 10),
            "hint": None if hint is None else schedule_to_wire(hint),
        }
        try:
            self._scratch = ScratchFolder()
            self._folder = self._scratch.path
            try:
                (self._folder / "request.json").write_text(json.dumps(request, separators=(",", ":")))
                self._frames, self._process = self._spawn()
            except OSError:
                self._scratch.remove()
                raise
        except OSError as error:
            raise SolverCrashedError(f"no process for solver {solver} could be started: {error}") from error

    def _spawn(self) -> tuple[int, subprocess.Popen[bytes]]:
        frames_read, frames_write = os.pipe()
        root = str(Path(__file__).resolve().parent.parent)
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        try:
            with (self._folder / "stderr").open("wb") as errors:
                process = subprocess.Popen(
                    [sys.executable, "-m", "solver_models.child_main", str(self._folder), str(frames_write)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    cwd=self._folder,
                    env=os.environ | {"PYTHONPATH": path, "TMPDIR": str(self._folder)},
                    pass_fds=(frames_write,),
                    start_new_session=True,
                )
        except OSError:
            os.close(frames_read)
            raise
        finally:
            os.close(frames_write)
        return frames_read, process

    def cancel(self) -> None:
        """Kill the child; :meth:`wait`, in this or another thread, then returns at once with what it has found."""
        self._cancelled = True

    def wait(self) -> ChildOutcome:
        """Wait for the answer or the deadline, whichever is first, and clean up.

        Call it exactly once for every child that was started.
        """
        try:
            answer, timed_out = self._collect()
            errors = self._error_tail()
        finally:
            self._end()
        return self._outcome(answer, timed_out=timed_out, errors=errors)

    def _collect(self) -> tuple[dict[str, Any] | None, bool]:
        """Read frames until the answer, the child's end or the deadline: the answer if any, and whether time ran out."""
        status_fd = self._process.stdout.fileno()  # type: ignore[union-attr]
        frames, statuses = bytearray(), bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(self._frames, selectors.EVENT_READ)
            selector.register(status_fd, selectors.EVENT_READ)
            while selector.get_map():
                left = self._deadline + GRACE_S - time.monotonic()
                over = left <= 0 or self._cancelled
                # Short waits, so that a cancelled child is noticed; what has come by then is still read.
                for key, _ in selector.select(0 if over else min(left, 0.05)):
                    data = os.read(key.fd, 1 << 20)
                    if not data:
                        selector.unregister(key.fd)
                    elif key.fd == status_fd:
                        statuses += data
                        self._read_statuses(statuses)
                    else:
                        frames += data
                for message in _messages(frames):
                    if message["type"] != "incumbent":
                        return message, False
                    self._keep(message)
                if over:
                    return None, not self._cancelled
                if self._exit_code is not None and self._frames not in selector.get_map():
                    return None, False
        return None, False

    def _read_statuses(self, statuses: bytearray) -> None:
        lines = bytes(statuses).split(b"\n")[:-1]
        if lines:
            self._group = int(lines[0])
        if len(lines) > 1:
            self._exit_code = int(lines[1])

    def _keep(self, message: dict[str, Any]) -> None:
        self._best = Found(
            status=Status.FEASIBLE,
            schedule=schedule_from_wire(message["schedule"]),
            bound_ns=int(message["bound_ns"]),
            detail="",
        )

    def _error_tail(self) -> str:
        with contextlib.suppress(OSError):
            lines = (self._folder / "stderr").read_text(errors="replace").strip().splitlines()
            return lines[-1][:300] if lines else ""
        return ""

    def _end(self) -> None:
        """End both processes and remove the folder, whatever state they are in."""
        self._process.stdin.close()  # type: ignore[union-attr]
        try:
            self._process.wait(timeout=_REAP_S)
        except subprocess.TimeoutExpired:
            for group in filter(None, (self._group, self._process.pid)):
                with contextlib.suppress(OSError):
                    os.killpg(group, signal.SIGKILL)
            self._process.wait()
        self._process.stdout.close()  # type: ignore[union-attr]
        os.close(self._frames)
        self._scratch.remove()

    def _outcome(self, answer: dict[str, Any] | None, *, timed_out: bool, errors: str) -> ChildOutcome:
        best = self._best
        if answer is not None and answer["type"] == "found":
            schedule = None if answer["schedule"] is None else schedule_from_wire(answer["schedule"])
            found = Found(
                status=Status(answer["status"]),
                schedule=schedule,
                bound_ns=int(answer["bound_ns"]),
                detail=answer["detail"],
                work_s=answer["work_s"],
            )
            return ChildOutcome(ending=Ending.ANSWERED, found=found, detail=found.detail)
        if answer is not None:
            text = answer["message"] if answer["hint"] is None else f"{answer['message']} ({answer['hint']})"
            refused = replace(best, status=Status.CRASHED)
            return ChildOutcome(ending=Ending.REFUSED, found=refused, detail=text, error_code=answer["code"])
        if self._cancelled:
            return ChildOutcome(ending=Ending.CANCELLED, found=best, detail="cancelled")
        if timed_out:
            return ChildOutcome(ending=Ending.DEADLINE, found=best, detail="overran its deadline and was killed")
        crashed = replace(best, status=Status.CRASHED)
        code = self._exit_code
        aborted = code is not None and code < 0
        # Under a memory limit C++ ends a failed allocation by abort (or a null pointer); SIGKILL from elsewhere is the kernel's.
        if (
            code == EXIT_OUT_OF_MEMORY
            or (self._limited and aborted)
            or "bad_alloc" in errors
            or "MemoryError" in errors
        ):
            return ChildOutcome(ending=Ending.OUT_OF_MEMORY, found=crashed, detail="ran out of memory")
        how = f"was ended by signal {-code}" if code is not None and code < 0 else f"ended with exit code {code}"
        return ChildOutcome(ending=Ending.CRASHED, found=crashed, detail=f"{how}: {errors}" if errors else how)


def _options_to_wire(options: SolveOptions) -> dict[str, Any]:
    return {
        name: getattr(options, name)
        for name in ("deadline_s", "target_gap", "seed", "workers", "deterministic", "memory_limit_bytes")
    }


def _messages(buffer: bytearray) -> list[dict[str, Any]]:
    """Take every complete frame off the front of ``buffer``."""
    messages = []
    while len(buffer) >= 8:
        size = int.from_bytes(buffer[:8], "big")
        if size > _MAX_FRAME_BYTES:
            raise SolverCrashedError(
                f"the solver process sent a frame of {size} bytes; expected at most {_MAX_FRAME_BYTES}"
            )
        if len(buffer) < 8 + size:
            break
        messages.append(json.loads(buffer[8 : 8 + size]))
        del buffer[: 8 + size]
    return messages
