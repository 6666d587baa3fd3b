"""Heartbeats through the store: each process counts, the others look whether its count moves.

No clocks are compared: a count that does not move for some seconds of the observer's own clock stands still. Counting is a
thread's work with a connection of its own, so that a process that computes or waits for long is alive, and one that is stopped,
killed or cut off from the store is not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from torch.distributed import Store

MIN_INTERVAL_S = 0.02
_PATIENCE_S = 5.0


def _key(name: str) -> str:
    return f"heartbeat/{name}"


class Heartbeat:
    """Counts up while it is open.

    Parameters
    ----------
    store
        The store; a connection of its own is made.
    name
        The worker by its home.
    interval_s
        Seconds from count to count, at least 0.02.
    """

    def __init__(self, store: Store, name: str, *, interval_s: float) -> None:
        self._store = store.clone()
        self._key = _key(name)
        self._interval_s = max(interval_s, MIN_INTERVAL_S)
        self._is_over = threading.Event()
        self._store.add(self._key, 1)
        self._thread = threading.Thread(target=self._count, name=f"heartbeat {name}", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop counting: from now on this process looks dead."""
        self._is_over.set()
        # A store that does not answer must not hold up the end.
        self._thread.join(timeout=_PATIENCE_S)

    def _count(self) -> None:
        while not self._is_over.wait(self._interval_s):
            try:
                self._store.add(self._key, 1)
            except RuntimeError:
                # The store is gone. Whoever forms a generation next is told so by its own connection.
                return


class Observer:
    """Looks at other processes' counts, and tells which stand still.

    Nobody stands still before it was watched for a whole time-out. A look that comes late ends a watch: whoever looks may have
    been stopped itself meanwhile, together with those it looks at.

    Parameters
    ----------
    store
        The store, used by the calling thread.
    timeout_s
        Seconds after which a count that does not move stands still.
    start_timeout_s
        The same for a process that has never counted: it may be about to start.
    clock
        Monotonic seconds.
    """

    def __init__(
        self,
        store: Store,
        *,
        timeout_s: float,
        start_timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._clock = clock
        self._timeout_s = timeout_s
        self._start_timeout_s = start_timeout_s
        self._seen: dict[str, _Watch] = {}

    def still(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those of these workers whose counts have not moved for their time-out; to be asked several times within one."""
        found = []
        for name in names:
            count, now = int(self._store.add(_key(name), 0)), self._clock()
            watch = self._seen.get(name)
            if watch is None or watch.count != count or now - watch.looked_s > self._timeout_s / 2:
                self._seen[name] = _Watch(count=count, since_s=now, looked_s=now)
                continue
            watch.looked_s = now
            if now - watch.since_s > (self._timeout_s if count else self._start_timeout_s):
                found.append(name)
        return tuple(found)


@dataclass(slots=True, kw_only=True)
class _Watch:
    """A count, when it was first and last seen, on this process's clock."""

    count: int
    since_s: float
    looked_s: float
