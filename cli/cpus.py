"""How many processes a command starts where it is not told."""

from __future__ import annotations

import os


def num_cpus() -> int:
    """CPUs that this process may use, at least 1."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
