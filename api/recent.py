"""What was used last, bounded: caches whose keys clients choose must not grow without end."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Keeps values by key; where there are too many, those go that were longest not used. Safe to use from several threads.

    Parameters
    ----------
    most
        Most values that are kept, at least 1.
    most_bytes
        Most bytes of all of them together, but for the one that came last, which always stays; ``None`` for no such bound.
    size_of
        Bytes of a key and its value, at least 0; the same whenever it is asked.
    """

    def __init__(
        self, most: int, *, most_bytes: int | None = None, size_of: Callable[[K, V], int] = lambda _key, _value: 0
    ) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._size_of = size_of
        self._num_bytes = 0
        self._kept: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """How many are kept."""
        return len(self._kept)

    def __contains__(self, key: K) -> bool:
        """Whether a value is kept; this does not count as its use."""
        return key in self._kept

    def get(self, key: K) -> V | None:
        """Value of a key, used now; ``None`` where none is kept."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def put(self, key: K, value: V) -> None:
        """Keep a value, used now, in the place of the key's one before."""
        with self._lock:
            self._drop(key)
            self._kept[key] = value
            self._num_bytes += self._size_of(key, value)
            while len(self._kept) > self._most or self._is_too_large():
                self._drop(next(iter(self._kept)))

    def drop(self, key: K) -> None:
        """Keep a key's value no longer."""
        with self._lock:
            self._drop(key)

    def _is_too_large(self) -> bool:
        return self._most_bytes is not None and self._num_bytes > self._most_bytes and len(self._kept) > 1

    def _drop(self, key: K) -> None:
        if key in self._kept:
            self._num_bytes -= self._size_of(key, self._kept.pop(key))
