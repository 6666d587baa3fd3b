"""The solver pool against processes that sleep, die and misbehave on order."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from api.errors import OverloadedError, SolveTimeoutError
from api.pool import Priority, SolvePool
from planner.errors import SolverCrashedError, StageLostError

FAKE = (sys.executable, "-P", str(Path(__file__).with_name("fake_worker.py")))


def with_pool(test: Callable[[SolvePool], Awaitable[None]], **changes: Any) -> None:
    """Run ``test`` on a started pool and close the pool."""

    async def run() -> None:
        limits = {"num_processes": 1, "queue_limit": 8, "queue_timeout_s": 240.0, "warm_up_timeout_s": 240.0}
        pool = SolvePool(**(limits | changes), command=FAKE)
        pool.start()
        try:
            await test(pool)
        finally:
            await pool.close()

    asyncio.run(run())


async def order(
    pool: SolvePool, timeout_s: float = 30.0, priority: Priority = Priority.REQUEST, **orders: object
) -> list[bytes]:
    """Send one request of orders to the pool."""
    return await pool.run([b"echo", json.dumps(orders).encode()], timeout_s=timeout_s, priority=priority)


async def has_begun(log: Path) -> None:
    """Wait until a request notes in its log that it is worked on."""
    await until(lambda: log.exists() and log.read_text().endswith("\n"))


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition; the test's own time limit ends a wait in vain."""
    while not condition():
        await asyncio.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether a process exists, be it a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_answers_large_messages_whatever_is_printed() -> None:
    """An answer of megabytes comes back whole, beside noise that libraries print to standard output."""

    async def test(pool: SolvePool) -> None:
        big = b"\0\xff" * 2_000_000
        answer = await pool.run([b"echo", b'{"print": true}', big], timeout_s=30)
        assert answer[2] == big

    with_pool(test)


def test_replaces_a_process_that_dies_and_tries_again(tmp_path: Path) -> None:
    """A process that dies over a request is replaced, and the request is answered by the next one."""

    async def test(pool: SolvePool) -> None:
        first = await order(pool)
        again = await order(pool, die_once=str(tmp_path / "died"))
        assert first[0] != again[0]
        assert pool.num_ready == 1

    with_pool(test)


def test_gives_up_after_two_deaths_but_goes_on() -> None:
    """A request that kills every process is refused after two, and the next request is answered."""

    async def test(pool: SolvePool) -> None:
        with pytest.raises(SolverCrashedError):
            await order(pool, die=True)
        assert len(await order(pool)) == 2

    with_pool(test)


def test_replaces_a_process_killed_while_idle() -> None:
    """A process that is killed while nothing runs is noticed and replaced."""

    async def test(pool: SolvePool) -> None:
        (pid, _) = await order(pool)
        os.kill(int(pid), signal.SIGKILL)
        await until(lambda: pool.num_ready == 0)
        (other, _) = await order(pool)
        assert other != pid

    with_pool(test)


def test_kills_a_process_that_overruns() -> None:
    """A request that runs past its time is refused as such and its process is gone."""

    async def test(pool: SolvePool) -> None:
        (pid, _) = await order(pool)
        with pytest.raises(SolveTimeoutError):
            await order(pool, timeout_s=0.1, sleep_s=60)
        await until(lambda: not is_alive(int(pid)))
        assert len(await order(pool)) == 2

    with_pool(test)


def test_rebuilds_errors_of_the_tree_and_hides_bugs() -> None:
    """An error raised in a process arrives with its class, message and hint; a bug arrives as a crashed solver."""

    async def test(pool: SolvePool) -> None:
        with pytest.raises(StageLostError) as lost:
            await order(pool, stage_lost=True)
        assert (lost.value.message, lost.value.hint) == ("slots [2] have no live worker left", "restore a checkpoint")
        with pytest.raises(SolverCrashedError, match="KeyError"):
            await order(pool, bug=True)
        assert pool.num_ready == 1

    with_pool(test)


def test_refuses_more_than_the_queue_holds(tmp_path: Path) -> None:
    """One process and a queue of one take two requests; the third is refused at once."""
    go = tmp_path / "go"

    async def test(pool: SolvePool) -> None:
        await order(pool)
        running = asyncio.create_task(order(pool, until=str(go)))
        waiting = asyncio.create_task(order(pool))
        await until(lambda: pool.num_waiting == 1)
        with pytest.raises(OverloadedError):
            await order(pool)
        go.touch()
        await asyncio.gather(running, waiting)
        assert pool.num_waiting == 0

    with_pool(test, queue_limit=1)


def test_takes_as_many_at_once_as_there_are_idle_processes(tmp_path: Path) -> None:
    """Without a queue, two idle processes still take two requests sent in the same moment, and no third."""
    go = tmp_path / "go"

    async def test(pool: SolvePool) -> None:
        await until(lambda: pool.num_ready == 2)
        first, second, third = (asyncio.create_task(order(pool, until=str(go))) for _ in range(3))
        with pytest.raises(OverloadedError):
            await third
        go.touch()
        assert [len(answer) for answer in await asyncio.gather(first, second)] == [2, 2]

    with_pool(test, num_processes=2, queue_limit=0)


def test_refuses_what_waits_too_long(tmp_path: Path) -> None:
    """A request that no process is free for in time is refused and never run."""
    log, go, never = (tmp_path / name for name in ("log", "go", "never"))

    async def test(pool: SolvePool) -> None:
        await until(lambda: pool.num_ready == 1)
        running = asyncio.create_task(order(pool, until=str(go), log=str(log)))
        await has_begun(log)
        with pytest.raises(OverloadedError):
            await order(pool, log=str(never))
        go.touch()
        await running
        assert not never.exists()

    with_pool(test, queue_timeout_s=0.5)


def test_close_refuses_what_runs_and_waits_and_leaves_no_process() -> None:
    """Closing refuses running and waiting requests, and the processes are gone when it returns."""

    async def run() -> None:
        pool = SolvePool(num_processes=1, queue_limit=8, queue_timeout_s=30, warm_up_timeout_s=30, command=FAKE)
        pool.start()
        (pid, _) = await order(pool)
        tasks = [asyncio.create_task(order(pool, sleep_s=60)) for _ in range(2)]
        await until(lambda: pool.num_waiting == 1)
        await pool.close()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(answer) for answer in answers] == [OverloadedError, OverloadedError]
        assert not is_alive(int(pid))

    asyncio.run(run())


def test_requests_wait_for_processes_that_never_get_ready() -> None:
    """While no process gets ready, requests wait until their time is up, and closing still works."""

    async def run() -> None:
        command = (*FAKE, "never-ready")
        pool = SolvePool(num_processes=1, queue_limit=8, queue_timeout_s=0.3, warm_up_timeout_s=30, command=command)
        pool.start()
        with pytest.raises(OverloadedError):
            await order(pool)
        assert pool.num_ready == 0
        await pool.close()

    asyncio.run(run())


def test_takes_the_most_urgent_first_and_equals_in_their_order(tmp_path: Path) -> None:
    """What waits behind a running request is taken by priority, then by arrival."""

    async def test(pool: SolvePool) -> None:
        await order(pool)
        running = asyncio.create_task(order(pool, sleep_s=0.3))
        await until(lambda: pool.num_waiting == 0)
        finished: list[str] = []

        async def named(name: str, priority: Priority) -> None:
            await order(pool, priority=priority)
            finished.append(name)

        waiting = [
            asyncio.create_task(named(name, priority))
            for name, priority in (
                ("precompute 1", Priority.PRECOMPUTE),
                ("precompute 2", Priority.PRECOMPUTE),
                ("improvement", Priority.IMPROVEMENT),
                ("request", Priority.REQUEST),
                ("event", Priority.EVENT),
            )
        ]
        await asyncio.gather(running, *waiting)
        assert finished == ["event", "request", "improvement", "precompute 1", "precompute 2"]

    with_pool(test)


def test_background_requests_wait_without_limit(tmp_path: Path) -> None:
    """None of them is refused for waiting, though a client that comes behind them is, and by then they have waited longer."""
    log, go = tmp_path / "log", tmp_path / "go"

    async def test(pool: SolvePool) -> None:
        # Whoever is in the background may also wait until the process has started.
        orders = {"log": str(log), "until": str(go)}
        background = [asyncio.create_task(order(pool, priority=Priority.PRECOMPUTE, **orders)) for _ in range(3)]
        await has_begun(log)
        with pytest.raises(OverloadedError):
            await order(pool)
        go.touch()
        assert [len(answer) for answer in await asyncio.gather(*background)] == [2, 2, 2]

    with_pool(test, queue_timeout_s=0.3)


def test_background_requests_take_no_place(tmp_path: Path) -> None:
    """With more background requests than the queue holds an event is still taken."""
    log, go = tmp_path / "log", tmp_path / "go"

    async def test(pool: SolvePool) -> None:
        orders = {"log": str(log), "until": str(go)}
        background = [asyncio.create_task(order(pool, priority=Priority.PRECOMPUTE, **orders)) for _ in range(3)]
        await has_begun(log)
        assert (pool.num_waiting, pool.num_waiting_at(Priority.PRECOMPUTE)) == (0, 2)
        assert len(await order(pool, priority=Priority.EVENT)) == 2
        go.touch()
        assert [len(answer) for answer in await asyncio.gather(*background)] == [2, 2, 2]

    with_pool(test, queue_limit=1)


def test_an_event_has_its_place_while_clients_fill_the_queue(tmp_path: Path) -> None:
    """Less urgent requests do not count against the limit of more urgent ones."""
    log, go = tmp_path / "log", tmp_path / "go"

    async def test(pool: SolvePool) -> None:
        running = asyncio.create_task(order(pool, until=str(go), log=str(log)))
        await has_begun(log)
        waiting = asyncio.create_task(order(pool))
        await until(lambda: pool.num_waiting == 1)
        with pytest.raises(OverloadedError):
            await order(pool)
        await order(pool, priority=Priority.EVENT)
        go.touch()
        await asyncio.gather(running, waiting)

    with_pool(test, queue_limit=1)


def test_a_reserved_process_never_works_in_the_background(tmp_path: Path) -> None:
    """Of two processes with one reserved only one works in the background at a time, also when it is killed meanwhile."""
    log, go, event_log, event_go = (tmp_path / name for name in ("log", "go", "event log", "event go"))

    async def test(pool: SolvePool) -> None:
        await until(lambda: pool.num_ready == 2)
        orders = {"log": str(log), "until": str(go)}
        background = [asyncio.create_task(order(pool, priority=Priority.PRECOMPUTE, **orders)) for _ in range(3)]
        await has_begun(log)
        background_niceness = os.getpriority(os.PRIO_PROCESS, int(log.read_text()))
        event = asyncio.create_task(order(pool, priority=Priority.EVENT, log=str(event_log), until=str(event_go)))
        await has_begun(event_log)
        niceness = os.getpriority(os.PRIO_PROCESS, int(event_log.read_text()))
        assert os.getpriority(os.PRIO_PROCESS, 0) < niceness < background_niceness
        event_go.touch()
        await event  # it does not wait for one of them: none of them has an end yet
        os.kill(int(log.read_text()), signal.SIGKILL)
        go.touch()
        while not all(task.done() for task in background):
            num_left = sum(not task.done() for task in background)
            assert num_left - pool.num_waiting_at(Priority.PRECOMPUTE) <= 1
            await asyncio.sleep(0.01)
        assert [len(task.result()) for task in background] == [2, 2, 2]

    with_pool(test, num_processes=2, num_reserved=1)


def test_an_event_takes_the_only_process_from_a_background_search(tmp_path: Path) -> None:
    """With one process an event does not wait for a search in the background, which is done later all the same."""
    log = tmp_path / "log"

    async def test(pool: SolvePool) -> None:
        # The first run of it would last longer than the test may.
        orders = {"log": str(log), "sleep_first_s": 600}
        background = asyncio.create_task(order(pool, priority=Priority.IMPROVEMENT, timeout_s=900, **orders))
        await has_begun(log)
        searching = int(log.read_text())
        (pid, _) = await order(pool, priority=Priority.EVENT)
        assert int(pid) != searching
        assert not is_alive(searching)
        # It was no fault of the search: it has both of its attempts still.
        assert len(await background) == 2
        assert log.read_text().count("\n") == 2

    with_pool(test)


def test_events_do_not_wait_for_clients(tmp_path: Path) -> None:
    """Clients' searches, however many and long, leave the reserved process free, and with it what is worked on for them."""
    log = tmp_path / "log"

    async def test(pool: SolvePool) -> None:
        await until(lambda: pool.num_ready == 2)
        clients = [asyncio.create_task(order(pool, timeout_s=900, log=str(log), sleep_s=600)) for _ in range(3)]
        await has_begun(log)
        for _ in range(2):
            await order(pool, priority=Priority.EVENT)
        assert (pool.num_waiting, log.read_text().count("\n")) == (2, 1)
        for client in clients:
            client.cancel()

    with_pool(test, num_processes=2, num_reserved=1)


def test_an_event_takes_the_only_process_from_a_client(tmp_path: Path) -> None:
    """With one process an event does not wait for a client's search, which is begun anew behind it."""
    log = tmp_path / "log"

    async def test(pool: SolvePool) -> None:
        client = asyncio.create_task(order(pool, timeout_s=900, log=str(log), sleep_first_s=600))
        await has_begun(log)
        await order(pool, priority=Priority.EVENT)
        assert len(await client) == 2

    with_pool(test)


def test_a_client_takes_a_process_from_a_background_search(tmp_path: Path) -> None:
    """A client that has waited for a while does not wait for the end of a search that nobody waits for."""
    log = tmp_path / "log"

    async def test(pool: SolvePool) -> None:
        orders = {"log": str(log), "sleep_first_s": 600}
        search = asyncio.create_task(order(pool, priority=Priority.PRECOMPUTE, timeout_s=900, **orders))
        await has_begun(log)
        clients = await asyncio.gather(*(order(pool) for _ in range(2)))
        assert [len(answer) for answer in clients] == [2, 2]
        assert len(await search) == 2
        assert log.read_text().count("\n") == 2

    with_pool(test, num_processes=2, num_reserved=1, patience_s=0.1)


def test_a_request_that_cannot_be_sent_is_refused_and_its_lane_goes_on() -> None:
    """A bug between pool and process ends neither the lane nor the wait for an answer, and is told."""
    told: list[None] = []

    async def test(pool: SolvePool) -> None:
        with pytest.raises(SolverCrashedError):
            await pool.run(["no bytes"], timeout_s=30)  # type: ignore[list-item]
        assert len(await order(pool)) == 2
        assert told == [None]

    with_pool(test, on_broken_lane=lambda: told.append(None))
