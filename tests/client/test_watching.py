"""Following a job: by a real service's stream, by long polls where streams do not get through, in spite of trouble."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from replan_client import following
from replan_client.async_client import AsyncClient
from replan_client.client import Client
from replan_client.epochs import Epoch
from replan_client.errors import (
    AccessError,
    AnswerError,
    AnswerTooLargeError,
    ArgumentError,
    ClientError,
    ClosedError,
    EpochConflictError,
    JobDeletedError,
    NotFoundError,
    OlderEpochError,
    ServiceUnreachableError,
)
from replan_client.jobs import Event
from replan_client.watching import EpochWatcher

from tests.cli.service.scripted import scripted
from tests.client.proxy import Passing, proxied
from tests.jobs import DOCUMENT
from tests.serving import Server

LONG_S = 60.0
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\nretry: 1\n\n"
REFUSALS: dict[str, Passing] = {
    "not there": Passing("GET", "", 404, body=b"<html>nothing here"),
    "not allowed": Passing("GET", "", 405),
    "a page": Passing("GET", "", 200, {"content-type": "text/html"}, b"<html>welcome"),
    "bad gateway": Passing("GET", "", 502, body=b"<html>bad gateway"),
    "empty": Passing("GET", "", 200, {"content-type": "text/event-stream"}),
}
"""What something between client and service makes of a stream."""


@pytest.fixture
def url(server: Server) -> str:
    """Where the service is."""
    return str(server.client.base_url).rstrip("/")


@pytest.fixture
def job_id(request: pytest.FixtureRequest) -> str:
    """A job of the test's own."""
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name)


@pytest.fixture
def client(url: str, job_id: str) -> Iterator[Client]:
    """A client of the service, at which the job is registered."""
    with Client(url) as connection:
        connection.register_job(job_id, DOCUMENT)
        yield connection


def failed(*nodes: str) -> Event:
    """Nodes that failed."""
    return Event(kind="node_failed", nodes=nodes)


def wait_for_trouble(watcher: EpochWatcher, kind: type[ClientError]) -> ClientError:
    """Wait until a watcher tells of trouble of a kind; the test's own limit ends a wait in vain."""
    while not isinstance(watcher.trouble, kind):
        time.sleep(0.01)
    trouble = watcher.trouble
    assert trouble is not None
    return trouble


@contextmanager
def watching(url: str, job_id: str, **options: int) -> Iterator[EpochWatcher]:
    """A watcher by a client of its own."""
    with Client(url) as client, EpochWatcher(client, job_id, **options) as watcher:
        yield watcher


def test_epochs_come_as_they_are_made(client: Client, job_id: str) -> None:
    """The current epoch first, then each new one; whoever waits is woken."""
    with EpochWatcher(client, job_id) as watcher:
        first = watcher.wait_newer(0, LONG_S)
        assert first is not None
        assert (first.epoch, watcher.latest) == (1, first)
        assert watcher.wait_newer(1, 0) is None
        found: list[object] = []
        waiting = [threading.Thread(target=lambda: found.append(watcher.wait_newer(1, LONG_S))) for _ in range(3)]
        for thread in waiting:
            thread.start()
        second = client.report(job_id, failed("n06"))
        for thread in waiting:
            thread.join(LONG_S)
        assert found == [second] * 3
        assert (watcher.latest, watcher.trouble) == (second, None)
    with EpochWatcher(client, job_id, after=1) as watcher:
        assert watcher.wait_newer(1, LONG_S) == second
    with pytest.raises(ClosedError):
        watcher.wait_newer(2, LONG_S)
    assert watcher.wait_newer(1, 0) == second
    watcher.close()


def test_a_closed_watcher_wakes_who_waits(client: Client, job_id: str) -> None:
    """Nobody waits on for what will not come."""
    caught: list[BaseException] = []
    watcher = EpochWatcher(client, job_id)
    assert watcher.wait_newer(0, LONG_S) is not None

    def wait() -> None:
        try:
            watcher.wait_newer(1, LONG_S)
        except ClosedError as error:
            caught.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    watcher.close()
    thread.join(LONG_S)
    assert len(caught) == 1


def test_a_watcher_that_is_closed_at_once(client: Client, job_id: str) -> None:
    """However far the thread has come."""
    for _ in range(5):
        EpochWatcher(client, job_id).close()
    assert [t for t in threading.enumerate() if t.name == f"replan-watcher-{job_id}"] == []


def test_a_job_that_is_registered_later_and_deleted(client: Client, url: str, server: Server) -> None:
    """Until then the watcher says that there is none; after its end that it was deleted, to whoever asks."""
    job_id = "later"
    with watching(url, job_id) as watcher:
        wait_for_trouble(watcher, NotFoundError)
        with pytest.raises(NotFoundError, match="'later'"):
            watcher.wait_newer(0, 0)
        client.register_job(job_id, DOCUMENT)
        assert watcher.wait_newer(0, LONG_S) is not None
        server.client.delete(f"/v1/jobs/{job_id}")
        for _ in range(2):
            with pytest.raises(JobDeletedError) as caught:
                watcher.wait_newer(1, LONG_S)
        assert caught.value.code == "job_deleted"
        assert watcher.wait_newer(0, 0) is not None


def test_a_deletion_is_found_out_by_polls(client: Client, url: str, job_id: str, server: Server) -> None:
    """A job that is known and then is not there was deleted, also where no stream says so."""
    with proxied(url) as proxy:
        proxy.before = lambda request: REFUSALS["not there"] if "/stream" in request.target else None
        with watching(proxy.url, job_id) as watcher:
            assert watcher.wait_newer(0, LONG_S) is not None
            server.client.delete(f"/v1/jobs/{job_id}")
            with pytest.raises(JobDeletedError):
                watcher.wait_newer(1, LONG_S)


def test_a_silent_stream_goes_on(client: Client, url: str, job_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is for the first sign of life; a stream that came alive may be silent for longer."""
    monkeypatch.setattr(following, "_FIRST_SIGN_S", 0.5)
    found: list[Epoch] = []
    trouble: list[ClientError | None] = []

    def take(epoch: Epoch) -> None:
        trouble.clear()
        found.append(epoch)

    async def main() -> None:
        async with AsyncClient(url) as connection, asyncio.TaskGroup() as group:
            task = group.create_task(connection.follow(job_id, take, on_trouble=trouble.append))
            while not found:
                await asyncio.sleep(0.01)
            await asyncio.sleep(1.0)
            task.cancel()

    asyncio.run(main())
    assert [epoch.epoch for epoch in found] == [1]
    assert set(trouble) <= {None}


def test_a_watcher_of_no_job(client: Client) -> None:
    """A name that no job has is refused before a thread begins."""
    with pytest.raises(ArgumentError):
        EpochWatcher(client, "a/b")


@pytest.mark.parametrize("how", REFUSALS)
def test_long_polls_take_over_where_streams_are_refused(client: Client, url: str, job_id: str, how: str) -> None:
    """Epochs come all the same, and streams are left alone for a while."""
    with proxied(url) as proxy:
        proxy.before = lambda request: REFUSALS[how] if "/stream" in request.target else None
        with watching(proxy.url, job_id) as watcher:
            assert watcher.wait_newer(0, LONG_S) is not None
            for number, node in enumerate(("n06", "n07"), start=2):
                expected = client.report(job_id, failed(node))
                assert watcher.wait_newer(number - 1, LONG_S) == expected
            assert watcher.trouble is None
    asked = [request.target.rpartition("/")[2] for request in proxy.requests]
    assert asked[:3] == ["stream", "current", "current?after=1&wait=30.000"]
    assert sum(target.startswith("stream") for target in asked) == 1


def test_long_polls_take_over_where_streams_are_held_back(
    client: Client, url: str, job_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something between gathers the stream before it passes it on: no sign of life comes."""
    monkeypatch.setattr(following, "_FIRST_SIGN_S", 0.3)
    is_over = threading.Event()

    def hold(request: Passing) -> Passing | None:
        if "/stream" in request.target:
            is_over.wait(LONG_S)
            return REFUSALS["empty"]
        return None

    with proxied(url) as proxy:
        proxy.before = hold
        with watching(proxy.url, job_id) as watcher:
            assert watcher.wait_newer(0, LONG_S) is not None
            expected = client.report(job_id, failed("n06"))
            assert watcher.wait_newer(1, LONG_S) == expected
        is_over.set()


def test_a_refusal_is_told_and_got_over(client: Client, url: str, job_id: str) -> None:
    """A key that is not known any more: who waits is told at the end of the wait; with the key back epochs come."""
    problem = {"code": "key_missing", "detail": "no such key", "status": 401}
    body = json.dumps(problem).encode()
    with proxied(url) as proxy:
        proxy.before = lambda request: Passing("GET", request.target, 401, body=body)
        with watching(proxy.url, job_id) as watcher:
            wait_for_trouble(watcher, AccessError)
            with pytest.raises(AccessError, match="no such key"):
                watcher.wait_newer(0, 0.05)
            proxy.before = lambda request: REFUSALS["not there"] if "/stream" in request.target else None
            assert watcher.wait_newer(0, LONG_S) == client.current_epoch(job_id)
            assert watcher.trouble is None


def test_a_store_that_was_set_back_is_told(client: Client, url: str, job_id: str) -> None:
    """The service knows fewer epochs than the watcher."""
    with watching(url, job_id, after=7) as watcher:
        wait_for_trouble(watcher, EpochConflictError)
        with pytest.raises(EpochConflictError, match="has epoch 7 already"):
            watcher.wait_newer(7, 0)
        assert watcher.latest is None


def test_an_older_epoch_never_takes_the_place_of_a_newer_one(client: Client, url: str, job_id: str) -> None:
    """Long polls answered from a cache: the newest stays, and who waits is told."""
    second = client.report(job_id, failed("n06"))
    first = client.epoch(job_id, 1)
    with proxied(url) as proxy:

        def stale(passing: Passing) -> Passing:
            return replace(passing, status=200, body=json.dumps(dict(first.body)).encode())

        proxy.before = lambda request: REFUSALS["not there"] if "/stream" in request.target else None
        with watching(proxy.url, job_id) as watcher:
            proxy.after = lambda passing: stale(passing) if "after=" in passing.target else passing
            assert watcher.wait_newer(1, LONG_S) == second
            client.report(job_id, failed("n07"))
            wait_for_trouble(watcher, OlderEpochError)
            # The refused stream and the old epoch are told in turn.
            with pytest.raises(AnswerError):
                watcher.wait_newer(2, 0.1)
            assert watcher.latest == second
            proxy.after = lambda passing: passing
            third = watcher.wait_newer(2, LONG_S)
            assert third is not None
            assert third.epoch == 3


def test_a_service_that_is_away(job_id: str) -> None:
    """Nobody there: there is nothing newer, which is no error; the trouble says why."""
    with watching("http://127.0.0.1:9", job_id) as watcher:
        trouble = wait_for_trouble(watcher, ServiceUnreachableError)
        assert "127.0.0.1:9" in trouble.message
        assert watcher.wait_newer(0, 0.05) is None


def event_of(name: str, number: int, data: str) -> bytes:
    """A server-sent event."""
    return f"id: {number}\nevent: {name}\ndata: {data}\n\n".encode()


@pytest.fixture
def bodies(client: Client, job_id: str) -> list[str]:
    """The job's first three epochs as the service sends them."""
    client.report(job_id, failed("n06"))
    client.report(job_id, failed("n07"))
    return [json.dumps(dict(client.epoch(job_id, number).body)) for number in (1, 2, 3)]


def test_marks_in_a_stream_are_understood(bodies: list[str], job_id: str) -> None:
    """A damaged epoch is passed over, an older one left out, and the next stream begins behind the newest of both."""
    marker = json.dumps({"job": job_id, "epoch": 2, "damaged": True})
    streams = (
        STREAM + event_of("epoch", 1, bodies[0]) + event_of("damaged", 2, marker),
        STREAM + event_of("epoch", 1, bodies[0]),
        STREAM + b": still here\n\n" + event_of("unheard-of", 9, "{}") + event_of("epoch", 3, bodies[2]),
        STREAM + event_of("deleted", 3, "{}"),
    )
    with scripted(streams) as script, watching(script.url, job_id) as watcher:
        newest = watcher.wait_newer(1, LONG_S)
        assert newest is not None
        assert newest.epoch == 3
        with pytest.raises(JobDeletedError):
            watcher.wait_newer(3, LONG_S)
    asked = [request.split(" ")[1].rpartition("/")[2] for request in script.requests]
    assert asked == ["stream", "stream?after=2", "stream?after=2", "stream?after=3"]


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (event_of("epoch", 1, "{}"), AnswerError),
        (event_of("epoch", 1, "no JSON"), AnswerError),
        (event_of("damaged", 1, "{}"), AnswerError),
        (event_of("epoch", 1, " " * 2000), AnswerTooLargeError),
        (b"data: " + b"x" * 2000, AnswerTooLargeError),
    ],
)
def test_events_that_are_none_are_told(job_id: str, event: bytes, error: type[ClientError]) -> None:
    """What cannot be read, or is too large, is trouble; the stream is begun anew."""
    with (
        scripted([STREAM + event] * 2) as script,
        Client(script.url, max_answer_bytes=1000) as client,
        EpochWatcher(client, job_id) as watcher,
    ):
        wait_for_trouble(watcher, error)
        while len(script.requests) < 2:
            time.sleep(0.01)
        assert watcher.latest is None


def test_an_end_that_nobody_foresaw_is_told(client: Client, job_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits gets the thread's own error instead of waiting for ever."""

    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(AsyncClient, "follow", broken)
    with EpochWatcher(client, job_id) as watcher, pytest.raises(RuntimeError, match="broken"):
        watcher.wait_newer(0, LONG_S)


def test_a_job_is_followed_without_a_thread(client: Client, url: str, job_id: str, bodies: list[str]) -> None:
    """All epochs behind one, each once, until the follower is stopped by what it gives them to."""
    found: list[int] = []
    trouble: list[ClientError | None] = []

    async def main() -> None:
        async with AsyncClient(url) as following_client, asyncio.timeout(LONG_S):
            done = asyncio.Event()

            def take(epoch: object) -> None:
                found.append(epoch.epoch)  # type: ignore[attr-defined]
                if len(found) == 2:
                    done.set()

            task = asyncio.create_task(following_client.follow(job_id, take, after=1, on_trouble=trouble.append))
            await done.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert found == [2, 3]
    assert set(trouble) == {None}
