"""Time that requests spend waiting for something to happen, which is none of the time that answering them takes."""

from __future__ import annotations

import time
from collections.abc import Iterator, MutableMapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

_KEY = "replan.waiting"


class Waiting:
    """How long one request has waited so far."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._since: float | None = None

    def begin(self) -> None:
        """It waits from now on."""
        self._since = time.perf_counter()

    def end(self) -> None:
        """It does not wait any more."""
        self._seconds, self._since = self.seconds(), None

    def seconds(self) -> float:
        """Time until now, of a wait that goes on too."""
        return self._seconds + (0.0 if self._since is None else time.perf_counter() - self._since)


@contextmanager
def waiting(scope: MutableMapping[str, Any], gauge: AbstractContextManager[None]) -> Iterator[None]:
    """Take the time of the block off that of the request with this scope; ``gauge`` counts who waits."""
    wait = scope.setdefault(_KEY, Waiting())
    wait.begin()
    try:
        with gauge:
            yield
    finally:
        wait.end()


def waited_s(scope: MutableMapping[str, Any]) -> float | None:
    """Seconds that a request has waited; ``None`` where it never did."""
    wait: Waiting | None = scope.get(_KEY)
    return None if wait is None else wait.seconds()
