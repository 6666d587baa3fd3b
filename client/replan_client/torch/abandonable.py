"""A store whose waits can be given up."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from datetime import timedelta

from torch.distributed import DistStoreError, Store

_FIRST_PAUSE_S = 0.001


class AbandonableStore(Store):
    """What gloo asks of a store to form a group; a wait ends as soon as :meth:`abandon` is called in another thread.

    The store's own waits end with their time limit only, and a thread that is in one keeps its process from ending. Not for
    nccl: it asks the store in threads of its own, also while the process ends, when no Python may run any more.

    Parameters
    ----------
    store
        Where the keys are; used by the thread that waits.
    pause_s
        Longest time between two looks for a key that is not there yet, above 0.
    """

    def __init__(self, store: Store, *, pause_s: float) -> None:
        super().__init__()
        self._store = store
        self._pause_s = pause_s
        self._is_abandoned = threading.Event()

    def abandon(self) -> None:
        """Have waits end with an error, those under way and later ones."""
        self._is_abandoned.set()

    def set(self, key: str, value: str) -> None:
        """Set a key."""
        self._store.set(key, value)

    def get(self, key: str) -> bytes:
        """Value of a key, once it is there; raises as :meth:`wait` does."""
        self.wait([key])
        return bytes(self._store.get(key))

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait until all these keys are there.

        Raises
        ------
        DistStoreError
            If they are not within the time-out, by default that of the store, or :meth:`abandon` was called.
        """
        seconds = (timeout or self._store.timeout).total_seconds()
        until, pause_s = time.monotonic() + seconds, min(_FIRST_PAUSE_S, self._pause_s)
        while not self._store.check(list(keys)):
            if time.monotonic() > until:
                raise DistStoreError(f"waited in vain for {', '.join(keys)} for {seconds:g} s")
            if self._is_abandoned.wait(pause_s):
                raise DistStoreError(f"given up while waiting for {', '.join(keys)}")
            pause_s = min(2 * pause_s, self._pause_s)
