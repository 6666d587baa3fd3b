"""Two servers on one PostgreSQL: what one of them accepts, clients of the other see."""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx2
import pytest

from tests.jobs import ServedJob
from tests.postgres import PostgresServer
from tests.serving import Server, serving

# Streams that were not told of an epoch would not show it before the test's time limit.
ENVIRONMENT = {"REPLAN_HEARTBEAT_S": "600", "REPLAN_CHANGE_RATE": "0"}
NODES = ("n00", "n05", "n02", "n07")
"""One node of each slot."""


@pytest.fixture(scope="module")
def servers(postgres_server: PostgresServer) -> Iterator[list[Server]]:
    """Two servers on one database; each test has a job of its own."""
    url = postgres_server.make_database()
    with ExitStack() as stack:
        yield [stack.enter_context(serving(url, "--processes", "1", environment=ENVIRONMENT)) for _ in range(2)]


@pytest.fixture
def jobs(servers: list[Server], request: pytest.FixtureRequest) -> list[ServedJob]:
    """A registered job, once as each server's client sees it."""
    seen = [ServedJob(server.client, re.sub(r"\W+", "-", request.node.name)[:100]) for server in servers]
    assert seen[0].register().status_code == 201
    return seen


class Follower:
    """Reads a stream and notes when each epoch came."""

    def __init__(self, server: Server, job: ServedJob) -> None:
        self.seen: dict[int, tuple[float, bytes]] = {}
        self.is_open = threading.Event()
        self._url = f"{server.client.base_url}{job.path}/stream"

    def follow(self, last: int) -> None:
        """Read up to an epoch."""
        with httpx2.Client(timeout=120) as client, client.stream("GET", self._url) as answer:
            assert answer.status_code == 200
            epoch = 0
            for line in answer.iter_lines():
                if line.startswith("id: "):
                    epoch = int(line[4:])
                elif line.startswith("data: "):
                    self.seen[epoch] = (time.monotonic(), line[6:].encode())
                    self.is_open.set()
                    if epoch >= last:
                        return


@pytest.mark.parametrize("rounds", [5, pytest.param(100, marks=pytest.mark.slow)])
def test_events_at_both_servers_come_one_after_the_other(
    servers: list[Server], jobs: list[ServedJob], rounds: int
) -> None:
    """Four clients report at two servers at once: each report is one epoch, and the streams of both show all of them."""
    with ThreadPoolExecutor(8) as threads:
        last = 1 + 2 * rounds * len(NODES)
        followers = [Follower(server, job) for server, job in zip(servers, jobs, strict=True)]
        following = [threads.submit(follower.follow, last) for follower in followers]
        for follower in followers:
            follower.is_open.wait()
        told: dict[int, tuple[float, bytes]] = {}

        def report(job: ServedJob, node: str) -> None:
            for number in range(rounds):
                for kind in ("node_failed", "node_recovered"):
                    answer = job.post(kind, node, key=f"{node}-{kind}-{number}")
                    assert answer.status_code == 201, answer.text
                    told[answer.json()["epoch"]] = (time.monotonic(), answer.content)

        work = [threads.submit(report, jobs[i % 2], node) for i, node in enumerate(NODES)]
        for done in [*work, *following]:
            done.result()
        assert sorted(told) == list(range(2, last + 1))
        for follower in followers:
            assert sorted(follower.seen) == list(range(1, last + 1))
            assert {epoch: body for epoch, (_, body) in follower.seen.items() if epoch > 1} == {
                epoch: body for epoch, (_, body) in told.items()
            }
        late = [follower.seen[epoch][0] - at for follower in followers for epoch, (at, _) in told.items()]
        sys.stderr.write(
            f"\n{len(told)} events at two servers; the last stream shows one {max(late):.3f} s after its answer\n"
        )
        # Each report names what was down when it was applied: nothing of the other server's was overlooked.
        down: set[str] = set()
        for epoch in range(2, last + 1):
            failed = set(json.loads(told[epoch][1])["failed_workers"])
            assert len(failed ^ down) == 1
            down = failed
        assert not down


def test_one_key_at_both_servers_is_one_event(jobs: list[ServedJob]) -> None:
    """A report that is sent to both servers at once, as by a client that did not wait, makes one epoch."""
    with ThreadPoolExecutor(2) as threads:
        for number in range(30):
            kind = "node_recovered" if number % 2 else "node_failed"
            send: Callable[[ServedJob], httpx2.Response] = lambda job, k=kind, n=number: job.post(k, "n06", key=str(n))  # noqa: E731
            answers = list(threads.map(send, jobs))
            assert sorted(answer.status_code for answer in answers) == [200, 201]
            assert answers[0].content == answers[1].content
        assert [job.current()["epoch"] for job in jobs] == [31, 31]


def test_compare_and_set_at_both_servers_lets_one_pass(jobs: list[ServedJob]) -> None:
    """Of two reports that expect the same epoch one is accepted and the other told the new one."""
    with ThreadPoolExecutor(2) as threads:
        send: Callable[[tuple[ServedJob, str]], httpx2.Response] = lambda pair: pair[0].post(  # noqa: E731
            "node_failed", pair[1], expected_epoch=1
        )
        answers = sorted(
            threads.map(send, zip(jobs, ("n00", "n05"), strict=True)), key=lambda answer: answer.status_code
        )
        assert [answer.status_code for answer in answers] == [201, 409]
        assert (answers[1].json()["code"], answers[1].json()["current_epoch"]) == ("epoch_conflict", 2)
