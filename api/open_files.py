"""The process's limit on open files, of which each connection takes one."""

from __future__ import annotations

import logging
import sys

_RESERVED = 256
"""Files for the store, the solver processes' pipes, libraries and the log."""
_LOG = logging.getLogger("replan.api")


def raise_open_files(num_connections: int) -> int:
    """Raise the limit on open files so that this many connections fit; returns how many do.

    The usual limit of 1,024 is a default that a process may raise up to its hard limit by itself.
    """
    if sys.platform == "win32":
        return num_connections
    import resource  # noqa: PLC0415 - not there on Windows

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = num_connections + _RESERVED
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return num_connections
    fitting = max(1, soft - _RESERVED)
    _LOG.warning("%d connections do not fit the limit of %d open files; taking %d", num_connections, soft, fitting)
    return fitting
