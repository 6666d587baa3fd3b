"""The server's way to its end: it says that it is not ready, lets go of those who wait, answers the rest, and stops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Drain:
    """Whether this server is about to stop, and who wants to be told when it is.

    Streams and long polls look at it: they end at once, so that their clients go to another server or come again.
    """

    def __init__(self) -> None:
        self._begun = asyncio.Event()
        self._callbacks: dict[object, Callable[[], None]] = {}

    @property
    def has_begun(self) -> bool:
        """Whether the server is about to stop."""
        return self._begun.is_set()

    def begin(self) -> None:
        """Begin; once is enough."""
        if self._begun.is_set():
            return
        self._begun.set()
        callbacks, self._callbacks = list(self._callbacks.values()), {}
        for callback in callbacks:
            callback()

    async def wait(self) -> None:
        """Wait until it begins."""
        await self._begun.wait()

    def call_when_begun(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Have something called once it begins, at once where it has; returns what takes the request back."""
        if self.has_begun:
            callback()
            return lambda: None
        token = object()
        self._callbacks[token] = callback
        return lambda: self._callbacks.pop(token, None) and None
