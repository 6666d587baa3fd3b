"""Notices when code is compiled: the first run after an installation does so for some ten seconds, and keeps the result.

Compiling takes the time of whatever search it happens in, so that search's answer may be poorer than the next one's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from numba.core import event


class Compilation(event.Listener):  # type: ignore[misc]
    """What was compiled in this process while it listened; true where there was anything."""

    def __init__(self) -> None:
        self.num_functions = 0

    def on_start(self, event: event.Event) -> None:  # noqa: ARG002
        """A function begins to be compiled: one that is read from the cache does not."""
        self.num_functions += 1

    def on_end(self, event: event.Event) -> None:
        """A function has been compiled."""

    def __bool__(self) -> bool:
        return self.num_functions > 0


@contextmanager
def watched_compilation() -> Iterator[Compilation]:
    """Listen within a block."""
    listener = Compilation()
    with event.install_listener("numba:compile", listener):
        yield listener
