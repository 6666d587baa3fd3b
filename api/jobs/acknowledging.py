"""Acknowledgements of thousands of workers: while one batch is written, the next one gathers."""

from __future__ import annotations

import asyncio

from anyio import to_thread

from api.store import Store


class Acknowledger:
    """Stores acknowledgements, many in one transaction; each is durable when it returns.

    Parameters
    ----------
    store
        Where they are kept; owned by the caller.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._gathering: dict[tuple[str, int], tuple[dict[str, int | None], asyncio.Task[None]]] = {}
        self._writing = asyncio.Lock()

    async def add(self, job_id: str, epoch: int, worker: str, iteration: int | None) -> None:
        """Store that a worker has an epoch; raises what the store does."""
        key = (job_id, epoch)
        if key not in self._gathering:
            task = asyncio.create_task(self._write(key))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._gathering[key] = ({}, task)
        batch, task = self._gathering[key]
        batch[worker] = iteration
        await asyncio.shield(task)

    async def _write(self, key: tuple[str, int]) -> None:
        async with self._writing:
            batch, _ = self._gathering.pop(key)
            await to_thread.run_sync(self._store.acknowledge_all, *key, batch)
