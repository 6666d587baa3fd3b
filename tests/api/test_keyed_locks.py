"""Locks by key."""

from __future__ import annotations

import asyncio
import gc

from api.keyed_locks import KeyedLocks
from tests.loops import in_loop


@in_loop
async def test_one_key_is_held_by_one_at_a_time_in_order() -> None:
    """Whoever wants the same key waits for its turn; another key is held beside it."""
    locks, seen = KeyedLocks(), []

    async def hold(key: str, name: str) -> None:
        async with locks.hold(key):
            seen.append(f"{name} begins")
            await asyncio.sleep(0)
            seen.append(f"{name} ends")

    await asyncio.gather(hold("a", "first"), hold("a", "second"), hold("b", "other"))
    assert [entry for entry in seen if not entry.startswith("other")] == [
        "first begins",
        "first ends",
        "second begins",
        "second ends",
    ]
    assert seen.index("other begins") < seen.index("first ends")


@in_loop
async def test_a_key_is_free_again_after_an_error() -> None:
    """Whoever fails or is cancelled while it holds a key lets go of it."""
    locks = KeyedLocks()

    async def stay() -> None:
        async with locks.hold("a"):
            await asyncio.Event().wait()

    task = asyncio.create_task(stay())
    await asyncio.sleep(0)
    task.cancel()
    async with asyncio.timeout(5), locks.hold("a"):
        assert task.cancelled()


@in_loop
async def test_nothing_is_kept_of_keys_that_nobody_holds() -> None:
    """Names of jobs come from clients, so there is no end of them."""
    locks = KeyedLocks()
    for number in range(100):
        async with locks.hold(str(number)):
            pass
    gc.collect()
    assert len(locks) == 0
