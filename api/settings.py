"""Everything about the service that its operator may choose, as one value."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

from planner.errors import OptionError

MEBIBYTE = 2**20


def default_solver_processes() -> int:
    """One solver process for each CPU this process may use, less one for the web server, at least 1."""
    return max(1, len(os.sched_getaffinity(0)) - 1 if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 2) - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Limits and places of one server.

    Parameters
    ----------
    store_path
        SQLite file of plans; made when missing, in a folder that exists.
    solver_processes
        Processes that solve, each one plan at a time, 1 to 256.
    queue_limit
        Most requests that wait for a solver process, 0 to 100,000; further ones are answered 503.
    queue_timeout_s
        Seconds a request waits for a solver process before it is answered 503, above 0.
    max_body_bytes
        Largest request body, 1 KiB to 1 GiB.
    max_deadline_s
        Largest ``deadline_s`` a client may ask for, above 0 and at most 86,400 seconds.
    solve_grace_s
        Seconds beyond its deadline after which a solver process is killed, above 0. Covers reading the job, validation and
        replay, none of which the deadline limits.
    warm_up_timeout_s
        Seconds a solver process may take to start and compile its code, above 0.
    shutdown_grace_s
        Seconds that requests being answered get to finish when the server is told to stop, above 0.

    Raises
    ------
    OptionError
        If a value is outside its range.
    """

    store_path: Path = Path("replan.db")
    solver_processes: int = 1
    queue_limit: int = 64
    queue_timeout_s: float = 120.0
    max_body_bytes: int = 16 * MEBIBYTE
    max_deadline_s: float = 60.0
    solve_grace_s: float = 60.0
    warm_up_timeout_s: float = 300.0
    shutdown_grace_s: float = 10.0

    def __post_init__(self) -> None:
        for name, low, high in (
            ("solver_processes", 1, 256),
            ("queue_limit", 0, 100_000),
            ("max_body_bytes", 1024, 2**30),
        ):
            count = getattr(self, name)
            if not low <= count <= high:
                raise OptionError(f"{name} is {count}; expected {low} to {high}")
        for name in ("queue_timeout_s", "max_deadline_s", "solve_grace_s", "warm_up_timeout_s", "shutdown_grace_s"):
            seconds = getattr(self, name)
            if not (math.isfinite(seconds) and 0 < seconds <= 86_400):
                raise OptionError(f"{name} is {seconds}; expected above 0 and at most 86400 seconds")
