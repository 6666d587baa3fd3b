"""Child side of :mod:`solver_models.child`: ``python -m solver_models.child_main FOLDER FD``.

Two processes. The *watcher*, which the parent started in a session of its own, imports nothing and waits for two things:
its standard input to close (the parent wants the solve ended, or died) and the *worker* to end. The worker, forked from it
into its own process group, imports the solver and runs it. However the worker ends, the watcher kills what is left of its group
(a solver's own subprocesses), tells the parent how it ended, and removes the folder once its input is closed.

So nothing outlives the parent: its death closes the pipe, and the watcher's own death ends the worker by ``PR_SET_PDEATHSIG``.
"""

# ruff: noqa: PLC0415 - the watcher must not pay for the worker's imports
from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import sys
from typing import Any

_PR_SET_PDEATHSIG = 1

EXIT_OUT_OF_MEMORY = 87
"""The worker's exit code after a ``MemoryError``."""


def main(folder: str, frames_fd: int) -> int:
    """Fork the worker and watch over it until the parent closes standard input."""
    alive_read, alive_write = os.pipe()
    watcher = os.getpid()
    worker = os.fork()
    if worker == 0:
        os.close(alive_read)
        os.setpgid(0, 0)
        die_with_parent(watcher)
        os._exit(_work(folder, frames_fd))
    with contextlib.suppress(OSError):  # the worker may have done it, or be gone
        os.setpgid(worker, worker)
    os.close(alive_write)
    os.close(frames_fd)
    os.write(1, b"%d\n" % worker)
    ready, _, _ = select.select([0, alive_read], [], [])
    if 0 not in ready:
        # Stragglers of the group go before the exit status is told: after it, the parent trusts that nothing runs.
        _kill_group(worker)
        _, status = os.waitpid(worker, 0)
        with contextlib.suppress(OSError):
            os.write(1, b"%d\n" % os.waitstatus_to_exitcode(status))
        while os.read(0, 4096):
            pass
    else:
        _kill_group(worker)
        os.waitpid(worker, 0)
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def _kill_group(group: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(group, signal.SIGKILL)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends; Linux only, elsewhere the pipes must do."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)


def _work(folder: str, frames_fd: int) -> int:
    """Run the search; returns the worker's exit code."""
    # Backends print to C's standard output: send that where errors go.
    os.dup2(2, 1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    try:
        _search(folder, frames_fd)
    except MemoryError:
        return EXIT_OUT_OF_MEMORY
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
        return 1
    return 0


def _search(folder: str, frames_fd: int) -> None:
    import importlib
    import threading
    from pathlib import Path

    from planner.errors import ReplanError
    from planner.schedule import Schedule
    from solver_models import work
    from solver_models.clock import WALL_CLOCK, Deadline
    from solver_models.result import SolveOptions
    from solver_models.search import SearchInput
    from solver_models.wire import problem_from_wire, schedule_from_wire, schedule_to_wire

    request = json.loads((Path(folder) / "request.json").read_bytes())
    options = SolveOptions(**request["options"])
    if options.memory_limit_bytes is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (options.memory_limit_bytes, options.memory_limit_bytes))
    deadline = Deadline(clock=WALL_CLOCK, begun=WALL_CLOCK.now(), ends=request["stop_at"])
    if options.deterministic:
        deadline = options.deadline()
        deadline.clock.charge(work.CHILD_S)
    given = SearchInput(
        solver=request["solver"],
        problem=problem_from_wire(request["problem"]),
        options=options,
        floor_ns=request["floor_ns"],
        deadline=deadline,
        hint=None if request["hint"] is None else schedule_from_wire(request["hint"]),
    )
    lock = threading.Lock()

    def send(message: dict[str, Any]) -> None:
        body = json.dumps(message, separators=(",", ":")).encode()
        with lock:
            _write_all(frames_fd, len(body).to_bytes(8, "big") + body)

    def report(schedule: Schedule, bound_ns: int) -> None:
        send({"type": "incumbent", "schedule": schedule_to_wire(schedule), "bound_ns": bound_ns})

    try:
        found = importlib.import_module(request["module"]).search(given, report)
    except ReplanError as error:
        send({"type": "error", "code": error.code, "message": error.message, "hint": error.hint})
        return
    send(
        {
            "type": "found",
            "status": found.status.value,
            "schedule": None if found.schedule is None else schedule_to_wire(found.schedule),
            "bound_ns": found.bound_ns,
            "detail": found.detail,
            "work_s": deadline.spent_s,
        }
    )


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
