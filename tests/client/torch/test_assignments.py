"""What a worker is told while it trains: refusals, pages of something else and old answers do not end it unless they last."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from replan_client.client import Client
from replan_client.errors import AnswerError, ClientError, JobDeletedError, NotFoundError
from replan_client.jobs import Event
from replan_client.torch.assignments import AssignmentFeed

from tests.client.proxy import Passing, Proxy, proxied
from tests.jobs import DOCUMENT
from tests.serving import Server

LONG_S = 60.0
WORKER = "0/2"
PAGE = Passing("GET", "", 404, body=b"<html>nothing here")
"""What stands before a service answers while that is started anew."""


@pytest.fixture
def job_id(request: pytest.FixtureRequest) -> str:
    """A job of the test's own."""
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name)


@pytest.fixture
def client(server: Server, job_id: str) -> Iterator[Client]:
    """A client of the service, at which the job is registered."""
    with Client(str(server.client.base_url)) as connection:
        connection.register_job(job_id, DOCUMENT)
        yield connection


@contextmanager
def fed(server: Server, job_id: str, **options: float) -> Iterator[tuple[Proxy, threading.Event, AssignmentFeed]]:
    """A feed through a proxy that shows a page in the place of all answers while the event is set, and of streams always."""
    is_away = threading.Event()
    with proxied(str(server.client.base_url).rstrip("/")) as proxy:
        proxy.before = lambda request: PAGE if is_away.is_set() or "/stream" in request.target else None
        with Client(proxy.url) as client:
            feed = AssignmentFeed(client, job_id, WORKER, **options)
            try:
                yield proxy, is_away, feed
            finally:
                feed.close()


def wait_for_request(proxy: Proxy, part: str) -> None:
    """Wait until a target with this part was asked for; the test's own limit ends a wait in vain."""
    while not any(part in request.target for request in proxy.requests):
        time.sleep(0.01)


def test_pages_of_something_else_are_got_over(server: Server, client: Client, job_id: str) -> None:
    """A new epoch whose program cannot be fetched is fetched once that is over."""
    with fed(server, job_id) as (proxy, is_away, feed):
        first = feed.wait_newer(0, LONG_S)
        assert first is not None
        is_away.set()
        client.report(job_id, Event(kind="node_failed", nodes=("n06",)))
        wait_for_request(proxy, "epochs/2/programs")
        assert feed.latest == first
        is_away.clear()
        second = feed.wait_newer(1, LONG_S)
        assert second is not None
        assert (second.number, second.program is not None, "1/2" in second.names) == (2, True, False)


def test_old_answers_are_got_over(server: Server, client: Client, job_id: str) -> None:
    """Where long polls for the third epoch are answered from a cache, it is found all the same."""
    stale = json.dumps(dict(client.epoch(job_id, 1).body)).encode()
    with fed(server, job_id) as (proxy, _, feed):
        proxy.after = lambda passing: (
            replace(passing, status=200, body=stale) if "after=2" in passing.target else passing
        )
        for number, node in ((2, "n06"), (3, "n07")):
            assert feed.wait_newer(number - 2, LONG_S) is not None
            client.report(job_id, Event(kind="node_failed", nodes=(node,)))
        third = feed.wait_newer(2, LONG_S)
        assert third is not None
        assert third.number == 3


def test_what_lasts_ends_it(server: Server, client: Client, job_id: str) -> None:
    """Pages that go on for longer than they may are told to whoever asks."""
    with fed(server, job_id, patience_s=0.2) as (_, is_away, feed):
        assert feed.wait_newer(0, LONG_S) is not None
        is_away.set()
        client.report(job_id, Event(kind="node_failed", nodes=("n06",)))
        with pytest.raises(AnswerError, match="nothing here"):
            feed.wait_newer(1, LONG_S)


@pytest.mark.parametrize(("is_page", "error"), [(True, AnswerError), (False, NotFoundError)])
def test_what_is_wrong_from_the_beginning_ends_it_at_once(
    server: Server, is_page: bool, error: type[ClientError]
) -> None:
    """A wrong URL is not waited for, nor a wrong job for longer than it may take to be registered."""
    with fed(server, "nobody-registered-this", registration_s=LONG_S if is_page else 0) as (_, is_away, feed):
        if is_page:
            is_away.set()
        with pytest.raises(error):
            feed.wait_newer(0, LONG_S)


def test_workers_may_start_before_their_job_is_registered(
    server: Server, job_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The job is waited for, which the log says at once; where it does not come in time, the error says how long that was."""
    with caplog.at_level(logging.WARNING, "replan_client"):
        with fed(server, job_id, registration_s=LONG_S) as (proxy, _, feed):
            wait_for_request(proxy, "epochs/current")
            while "is not registered yet" not in caplog.text:
                time.sleep(0.01)
            with Client(str(server.client.base_url)) as client:
                client.register_job(job_id, DOCUMENT)
            first = feed.wait_newer(0, LONG_S)
            assert first is not None
            assert (first.number, first.program is not None) == (1, True)
        with (
            fed(server, "nobody-registered-this", registration_s=0.6) as (_, _, feed),
            pytest.raises(
                NotFoundError, match=r"job 'nobody-registered-this' was not registered within 0.6 s: there is no job"
            ),
        ):
            feed.wait_newer(0, LONG_S)
    assert caplog.text.count("is not registered yet") == 2


def test_a_deleted_job_ends_it(server: Server, client: Client, job_id: str) -> None:
    """That does not pass."""
    with fed(server, job_id) as (_, _, feed):
        assert feed.wait_newer(0, LONG_S) is not None
        server.client.delete(f"/v1/jobs/{job_id}")
        with pytest.raises(JobDeletedError):
            feed.wait_newer(1, LONG_S)
