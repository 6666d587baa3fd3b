"""Keys of answers that take long: a stream or a long poll must not go on with a key that was revoked meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.types import Message, Send

from planner.errors import ReplanError

SURE_S = 1.0
"""Seconds for which a key that was looked at is not looked at again for the same answer."""


class WithdrawnError(Exception):
    """A request's key does not hold any more; ``reason`` is the answer. None of the tree's, so that no route answers it."""

    def __init__(self, reason: ReplanError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class KeyedSend:
    """What sends an answer's messages, for as long as the key of its request holds.

    Parameters
    ----------
    send
        What sends them in the end.
    require
        Raises where the key does not hold, or cannot be checked.
    """

    def __init__(self, send: Send, require: Callable[[], Awaitable[object]]) -> None:
        self._send = send
        self._require = require
        self._clock = asyncio.get_running_loop().time
        self._looked_at = self._clock()
        self.has_started = False

    async def __call__(self, message: Message) -> None:
        """Send a message.

        Raises
        ------
        WithdrawnError
            If the key does not hold any more; the message is not sent.
        """
        if self._clock() - self._looked_at >= SURE_S:
            try:
                await self._require()
            except ReplanError as error:
                raise WithdrawnError(error) from error
            self._looked_at = self._clock()
        self.has_started = True
        await self._send(message)

    async def end(self) -> None:
        """End an answer that had begun; what follows would not be for this client."""
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})
