"""Servers and databases killed at arbitrary moments, while events are reported and plans are made ready."""

from __future__ import annotations

import random
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.api.torture.books import check_epochs, check_operations, check_store
from tests.api.torture.clients import JOB, NODES, Caller, Ledger, ask_for_plans, follow, report, report_all
from tests.api.torture.fleet import Fleet, running_fleet
from tests.jobs import DOCUMENT
from tests.postgres import PostgresServer

Disturbance: TypeAlias = Callable[[Fleet, random.Random], None]


def kill_one(fleet: Fleet, draw: random.Random) -> None:
    """Kill one server at a random moment of its life, its start included, and start it again."""
    replica, moment = draw.choice(fleet.replicas), draw.random()
    if moment < 0.1:
        time.sleep(draw.uniform(0.0, 1.5))
    elif moment < 0.5:
        replica.wait_until_listening()
        time.sleep(draw.expovariate(1.0))
    else:
        replica.wait_until_ready()
        time.sleep(draw.uniform(0.0, 2.0))
    replica.kill()
    replica.start()


def torture(store: str, folder: Path, *, replicas: int, rounds: int, disturb: Disturbance) -> None:
    """Disturb servers while clients report, follow and ask for plans; then compare everybody's books."""
    ledger, stop, draw = Ledger(), threading.Event(), random.Random(rounds)
    with running_fleet(store, folder, replicas=replicas) as fleet, ThreadPoolExecutor(8) as threads:
        callers = [Caller(fleet, stop, name) for name in (*NODES, "ahead")]
        reader, follower = Caller(fleet, threading.Event(), "reader"), Caller(fleet, threading.Event(), "follower")
        for replica in fleet.replicas:
            replica.wait_until_listening()  # one that cannot start is told now, not waited for
        assert reader.put(f"/v1/jobs/{JOB}", {"job": DOCUMENT})["epoch"] == 1
        # Where plans are not ready every report waits for solver processes, which start anew with each server.
        report_all(reader, ledger)
        work = [threads.submit(report, caller, ledger, node) for caller, node in zip(callers, NODES, strict=False)]
        work.append(threads.submit(ask_for_plans, callers[-1], fleet, ledger))
        following = threads.submit(follow, follower, fleet, ledger)
        try:
            for _ in range(rounds):
                disturb(fleet, draw)
                raise_failures([*work, following])
            stop.set()
            for done in work:
                done.result()
            last = reader.get(f"/v1/jobs/{JOB}")["epoch"]
            until(lambda: len(ledger.streamed) >= last, [following])
        except BaseException:
            fleet.is_lost = True
            raise
        finally:
            stop.set()
            follower.stop.set()
        num_epochs = check_epochs(reader, ledger)
        check_operations(reader, ledger)
        following.result()
        figures = (
            f"{rounds} disturbances, {fleet.num_starts} starts, {len(ledger.told)} events, "
            f"{num_epochs} epochs, {len(ledger.operations)} operations ({len(ledger.interrupted)} interrupted), "
            f"{sum(caller.num_lost for caller in callers)} requests without an answer"
        )
        sys.stderr.write(f"\n{figures}\n")
        for caller in (*callers, reader, follower):
            caller.close()
    check_store(store, ledger)
    if rounds >= 100:
        assert ledger.interrupted, "no operation was ever cut short"


def until(is_so: Callable[[], bool], work: Sequence[Future[None]]) -> None:
    """Wait until something is so, or work has failed."""
    while not is_so():
        raise_failures(work)
        time.sleep(0.05)


def raise_failures(work: Sequence[Future[None]]) -> None:
    """Raise what work has failed with."""
    for done in work:
        if done.done():
            done.result()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kills", [2, pytest.param(200, marks=pytest.mark.slow)])
def test_a_server_killed_at_any_moment_loses_nothing(tmp_path: Path, kills: int) -> None:
    """No acknowledged event is lost, none is applied twice, epochs have no gap, plans are made to the end, the file is sound."""
    path = tmp_path / "replan.db"
    torture(str(path), tmp_path, replicas=1, rounds=kills, disturb=kill_one)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rounds", [2, pytest.param(200, marks=pytest.mark.slow)])
def test_servers_and_their_database_killed_at_any_moment_lose_nothing(
    tmp_path: Path, postgres_server: PostgresServer, rounds: int
) -> None:
    """The same with two servers on PostgreSQL, which is itself stopped or killed in a third of the rounds."""

    def disturb(fleet: Fleet, draw: random.Random) -> None:
        if draw.random() < 2 / 3:
            kill_one(fleet, draw)
            return
        time.sleep(draw.expovariate(1.0))
        postgres_server.stop(draw.choice([signal.SIGINT, signal.SIGQUIT, signal.SIGKILL]))
        time.sleep(draw.uniform(0.0, 1.0))
        postgres_server.start()

    torture(postgres_server.make_database(), tmp_path, replicas=2, rounds=rounds, disturb=disturb)
