"""Waiting for epochs: woken by this process, by others, and after the connection was lost."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
from collections.abc import Callable, Coroutine

import pytest

from api.background import Background
from api.observability.telemetry import Telemetry
from api.store import EpochFeed, Store
from tests.api.store.backends import Backend, PostgresBackend, append, register

LONG = 60.0
"""Seconds that no test waits for: what is awaited comes long before."""


def run(work: Callable[[], Coroutine[None, None, None]]) -> None:
    """Run a coroutine to its end."""
    asyncio.run(work())


async def connected(feed: EpochFeed) -> None:
    """Wait until a feed sees other processes' epochs."""
    while not feed.is_connected:
        await asyncio.sleep(0.01)


def test_announced_epochs_wake(store: Store) -> None:
    """An epoch behind the one that is waited for wakes, an older one does not, one known already is not waited for."""

    async def work() -> None:
        async with EpochFeed(store, poll_s=LONG) as feed:
            await connected(feed)
            early = asyncio.create_task(feed.wait("job", 4, LONG))
            late = asyncio.create_task(feed.wait("job", 5, LONG))
            other = asyncio.create_task(feed.wait("other", 0, LONG))
            await asyncio.sleep(0)
            assert feed.num_waiting == 3
            feed.announce("job", 4)
            feed.announce("job", 5)
            feed.announce("job", 3)
            await early
            assert not late.done()
            feed.announce("job", 6)
            await late
            await feed.wait("job", 5, LONG)
            assert not other.done()
            await feed.wait("job", 6, 0.01)
            other.cancel()
            await asyncio.gather(other, return_exceptions=True)
            assert feed.num_waiting == 0

    run(work)


def test_a_thousand_wait_and_wake(store: Store) -> None:
    """One announcement wakes a thousand; closing wakes the rest, and nobody waits afterwards."""

    async def work() -> None:
        async with EpochFeed(store, poll_s=LONG) as feed:
            await connected(feed)
            waiting = [asyncio.create_task(feed.wait("job", 1, LONG)) for _ in range(1000)]
            rest = [asyncio.create_task(feed.wait(f"job{i}", 1, LONG)) for i in range(1000)]
            await asyncio.sleep(0)
            feed.announce("job", 2)
            await asyncio.gather(*waiting)
            assert feed.num_waiting == 1000
            feed.close()
            await asyncio.gather(*rest)
            assert feed.is_closed
            await feed.wait("job", 99, LONG)
            assert feed.num_waiting == 0

    run(work)


def test_sees_other_processes(store: Store, backend: Backend) -> None:
    """Epochs and deletions by another store wake without an announcement, also those from before the feed began."""
    other = Store(backend.url)
    register(other)
    append(other, 0)

    async def work() -> None:
        async with EpochFeed(store, poll_s=0.02) as feed:
            await feed.wait("job", 0, LONG)
            waiting = asyncio.create_task(feed.wait("job", 1, LONG))
            await connected(feed)
            await asyncio.to_thread(append, other, 1)
            await waiting
            waiting = asyncio.create_task(feed.wait("job", 2, LONG))
            await asyncio.to_thread(append, other, 2)
            await waiting

    run(work)
    other.close()


def test_sees_deletions(store: Store, backend: Backend) -> None:
    """Who waits for a deleted job's next epoch is woken to hear that it is gone."""
    other = Store(backend.url)
    register(other)
    append(other, 0)

    async def work() -> None:
        async with EpochFeed(store, poll_s=0.02) as feed:
            await feed.wait("job", 0, LONG)
            waiting = asyncio.create_task(feed.wait("job", 1, LONG))
            await asyncio.sleep(0)
            await asyncio.to_thread(other.delete_job, "job")
            await waiting
            assert feed.num_waiting == 0

    run(work)
    other.close()


def test_tells_what_is_gone(store: Store, backend: Backend) -> None:
    """A deletion by another store is told, and where the id was registered again which epochs are gone with it."""
    other = Store(backend.url)

    class Kept:
        """Epochs that somebody remembers until he is told that they are gone."""

        def __init__(self, feed: EpochFeed) -> None:
            self.epochs = {("job", 1), ("job", 2), ("other", 1)}
            feed.call_when_gone(self.forget)

        def forget(self, is_gone: Callable[[str, int], bool]) -> None:
            self.epochs = {epoch for epoch in self.epochs if not is_gone(*epoch)}

        async def until(self, *epochs: tuple[str, int]) -> None:
            while self.epochs != set(epochs):
                await asyncio.sleep(0.01)

    async def work() -> None:
        register(store)
        append(store, 0)
        register(store, "other")
        append(store, 0, "other")
        async with EpochFeed(store, poll_s=0.02) as feed:
            await feed.wait("job", 0, LONG)
            kept = Kept(feed)
            await asyncio.to_thread(other.delete_job, "job")
            await kept.until(("other", 1))
        # A deletion that is only found out later: by what is there, the id's next job apart from its last.
        register(store)
        append(store, 0)
        assert store.epoch_ranges() == {"job": (2, 2), "other": (1, 1)}
        async with EpochFeed(store, poll_s=LONG) as feed:
            await Kept(feed).until(("job", 2), ("other", 1))

    run(work)
    other.close()


def test_goes_on_after_the_connection_was_lost(
    postgres_store: Store, postgres_backend: PostgresBackend, caplog: pytest.LogCaptureFixture
) -> None:
    """What was appended while PostgreSQL was away for the feed is seen once it is back; that is logged once."""
    store, server = postgres_store, postgres_backend.server
    register(store)
    append(store, 0)

    async def work() -> None:
        async with EpochFeed(store) as feed:
            await feed.wait("job", 0, LONG)
            waiting = asyncio.create_task(feed.wait("job", 1, LONG))
            await asyncio.to_thread(server.stop, signal.SIGQUIT)
            while feed.is_connected:
                await asyncio.sleep(0.01)
            await asyncio.to_thread(server.start)
            await asyncio.to_thread(append, store, 1)
            await waiting
            # Cut off and appended at once: the notice itself is lost.
            await connected(feed)
            waiting = asyncio.create_task(feed.wait("job", 2, LONG))
            await asyncio.sleep(0)
            cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
            await asyncio.to_thread(server.execute, cut)
            await asyncio.to_thread(append, store, 2)
            await waiting

    with caplog.at_level(logging.WARNING, "replan.store"):
        run(work)
    assert "until the store answers again" in caplog.text


def test_starts_before_the_server_does(postgres_store: Store, postgres_backend: PostgresBackend) -> None:
    """A feed that finds no server goes on asking."""
    store, server = postgres_store, postgres_backend.server
    register(store)
    append(store, 0)
    server.stop()

    async def work() -> None:
        async with EpochFeed(store) as feed:
            waiting = asyncio.create_task(feed.wait("job", 0, LONG))
            await asyncio.sleep(0.3)
            assert not waiting.done()
            await asyncio.to_thread(server.start)
            await waiting

    try:
        run(work)
    finally:
        if server.process is None:
            server.start()


def test_other_programs_notices_are_left_alone(postgres_store: Store, postgres_backend: PostgresBackend) -> None:
    """What somebody else sends on the channel neither wakes nor breaks."""
    register(postgres_store)

    async def work() -> None:
        async with EpochFeed(postgres_store) as feed:
            await connected(feed)
            waiting = asyncio.create_task(feed.wait("job", 0, LONG))
            for payload in (
                "",
                "job 1",
                json.dumps({"job": 1}),
                json.dumps(["job"]),
                json.dumps(["job", "x"]),
                "[" * 5000,
            ):
                await asyncio.to_thread(postgres_backend.query, "SELECT pg_notify('replan_epochs', ?)", payload)
            assert not waiting.done()
            await asyncio.to_thread(append, postgres_store, 0)
            await waiting

    run(work)


def test_listening_goes_on_after_an_unforeseen_error(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug in listening is counted, and epochs of other processes are seen all the same."""
    telemetry = Telemetry()
    follow, failures = EpochFeed._follow, [KeyError("a bug")]

    async def fail_once(feed: EpochFeed) -> None:
        if failures:
            raise failures.pop()
        await follow(feed)

    monkeypatch.setattr(EpochFeed, "_follow", fail_once)

    async def work() -> None:
        async with EpochFeed(store, run=Background(telemetry).run) as feed:
            await connected(feed)

    run(work)
    assert telemetry.registry.get_sample_value("replan_degradations_total", {"kind": "background_task_failed"}) == 1
