"""Work that several ask for at the same time, done once for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Iterator
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class SingleFlight(Generic[K, T]):
    """Joins those who ask for the same thing: the first one begins the work, whoever comes before its end gets its outcome too.

    - *Going away.* Whoever is cancelled while it waits leaves alone: the work goes on for the others, and to its end where
      nobody waits any more.
    - *Errors.* What the work raises, everybody who waits for it gets. It is not kept: whoever asks after the end begins anew.
      Where nobody waits any more the error goes unseen, without a warning; work whose errors matter then logs them itself.
    - *Results* are not kept either: work that is to be remembered stores its result before it ends.
    - *Asking from within.* Work may ask for other keys. For its own it would wait for ever, which is refused as a bug; a
      circle of several keys is not noticed.
    - *Limits.* There is none here on how many things are worked on at once. What the work uses has one: the solver pool its
      queue, the store its threads.

    The work of a key runs in a task of its own, in the context of whoever began it. All methods belong to the event loop's
    thread.
    """

    def __init__(self) -> None:
        self._flights: dict[K, asyncio.Task[T]] = {}
        # Those left by `release` too: the event loop itself holds tasks weakly.
        self._tasks: set[asyncio.Task[T]] = set()

    def __contains__(self, key: K) -> bool:
        """Whether there is work that whoever asks for this key would join."""
        return key in self._flights

    def __iter__(self) -> Iterator[K]:
        """The keys that are worked on, as of now."""
        return iter(tuple(self._flights))

    async def join(self, key: K, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Outcome of the work for a key, begun here unless it is under way.

        Parameters
        ----------
        key
            What is asked for.
        work
            Begins it; called only where it is not under way.

        Raises
        ------
        asyncio.CancelledError
            If whoever waits is cancelled, or the work is, as by :meth:`close`.
        Exception
            What the work raises.
        """
        task = self._flights.get(key)
        if task is None:
            task = asyncio.create_task(work())
            self._flights[key] = task
            self._tasks.add(task)
            task.add_done_callback(lambda done: self._land(key, done))
        assert task is not asyncio.current_task(), f"the work for {key!r} waits for itself"
        return await asyncio.shield(task)

    def release(self, key: K) -> None:
        """Let whoever asks for a key from now on begin anew; who waits already still gets the outcome of what is under way."""
        self._flights.pop(key, None)

    def is_joined(self, key: K) -> bool:
        """Whether the calling task is the work that whoever asks for this key now joins: false once it was released."""
        return self._flights.get(key) is asyncio.current_task()

    async def settle(self) -> None:
        """Wait until nothing is under way, however it ends."""
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))

    async def close(self) -> None:
        """Cancel what is under way, and with it whoever waits."""
        for task in tuple(self._tasks):
            task.cancel()
        await self.settle()

    def _land(self, key: K, task: asyncio.Task[T]) -> None:
        self._tasks.discard(task)
        if self._flights.get(key) is task:
            del self._flights[key]
        if not task.cancelled():
            task.exception()  # seen, so that no warning is given where everybody has gone
