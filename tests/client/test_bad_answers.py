"""Answers that are not those asked for: changed, cut, mixed up, too large, late, or of something else altogether."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest
from replan_client.errors import (
    AccessError,
    AnswerError,
    AnswerTooLargeError,
    ClientError,
    DigestMismatchError,
    OlderEpochError,
    ProgramFormatError,
    ProgramMismatchError,
    ServiceFaultError,
    ServiceUnreachableError,
    UnavailableError,
)
from replan_client.jobs import Event

from tests.cli.service.scripted import answer, scripted
from tests.client.clients import connected
from tests.client.proxy import Passing, Proxy, proxied
from tests.jobs import DOCUMENT
from tests.serving import Server

JOB = "bad-answers"


@contextmanager
def dripping() -> Iterator[str]:
    """A server whose answer comes letter by letter and never ends."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        is_over = threading.Event()

        def serve() -> None:
            with suppress(OSError), listener.accept()[0] as connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 X\r\nContent-Length: 100000\r\n\r\n")
                while not is_over.wait(0.05):
                    connection.sendall(b" ")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            is_over.set()
            thread.join(10)


@pytest.fixture(scope="module")
def url(server: Server) -> str:
    """A service with a job at epoch 3: n06 is down, then n07 too."""
    url = str(server.client.base_url).rstrip("/")
    with connected("sync", url) as client:
        client.register_job(JOB, DOCUMENT)
        client.report(JOB, Event(kind="node_failed", nodes=("n06",)))
        client.report(JOB, Event(kind="node_failed", nodes=("n07",)))
    return url


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    """A proxy of it."""
    with proxied(url) as running:
        yield running


def programs_only(change: Callable[[Passing], Passing]) -> Callable[[Passing], Passing]:
    """A change to answers with programs."""
    return lambda passing: change(passing) if "/programs/" in passing.target else passing


def unpacked(passing: Passing, **fields: Any) -> Passing:
    """An answer with other fields in its JSON, not packed."""
    body = gzip.decompress(passing.body) if passing.headers.get("content-encoding") == "gzip" else passing.body
    headers = {name: value for name, value in passing.headers.items() if name != "content-encoding"}
    return replace(passing, headers=headers, body=json.dumps(json.loads(body) | fields).encode())


def test_a_proxy_that_changes_nothing_is_not_noticed(proxy: Proxy, url: str, kind: str) -> None:
    """The proxy of these tests passes everything on as it is; the client sends its key and takes gzip."""
    with connected(kind, proxy.url, api_key="rpk_1_2") as client, connected(kind, url) as direct:
        assert client.program(JOB, 2, "rank:2") == direct.program(JOB, 2, "0/2")
        assert client.current_epoch(JOB, after=1) == direct.current_epoch(JOB)
    for request in proxy.requests:
        assert request.headers["authorization"] == "Bearer rpk_1_2"
        assert request.headers["accept-encoding"] == "gzip"
    # The second program asked for needs no epoch any more.
    assert [request.target.rpartition("/")[2] for request in proxy.requests] == [
        "2",
        "rank:2",
        "current?after=1&wait=0.000",
    ]


@pytest.mark.parametrize("worker", ["0/1", "2/2"])
def test_another_workers_program_is_refused(proxy: Proxy, url: str, kind: str, worker: str) -> None:
    """A program that belongs to another worker of the same epoch."""
    with connected("sync", url) as client:
        stolen = client.program(JOB, 2, worker).program.to_dict()
    proxy.after = programs_only(lambda passing: unpacked(passing, **stolen))
    with connected(kind, proxy.url) as client, pytest.raises(ProgramMismatchError, match=f"position {worker}"):
        client.program(JOB, 2, "0/2")


@pytest.mark.parametrize(("old", "new"), [(1, 2), (2, 3), (1, 3), (3, 2)])
def test_another_epochs_program_is_refused(proxy: Proxy, kind: str, old: int, new: int) -> None:
    """A cache that answers with the program of the epoch before, or the one behind, tag and all."""
    with connected(kind, proxy.url) as client:
        before = client.program(JOB, old, "0/2")
        kept: list[Passing] = []

        def swap(passing: Passing) -> Passing:
            return replace(kept[0], target=passing.target)

        with connected(kind, proxy.url) as other:
            proxy.after = programs_only(lambda passing: kept.append(passing) or passing)  # type: ignore[func-returns-value]
            other.program(JOB, old, "0/2")
        proxy.after = programs_only(swap)
        with pytest.raises(ProgramMismatchError) as caught:
            client.program(JOB, new, "0/2")
        assert caught.value.code == "program_mismatch"
        assert "do not run it" in str(caught.value)
        # What was refused is not kept: the right one is found as soon as it comes.
        proxy.after = lambda passing: passing
        assert client.program(JOB, new, "0/2").plan_id != before.plan_id


def test_another_epochs_program_names_who_is_gone(proxy: Proxy, url: str, kind: str) -> None:
    """A client that knows of one epoch only sees that the program sends to a worker that is down."""
    with connected("sync", url) as client:
        old = client.program(JOB, 1, "1/1").program.to_dict()
    proxy.after = programs_only(lambda passing: unpacked(passing, **old))
    with connected(kind, proxy.url) as client, pytest.raises(ProgramMismatchError, match="nobody stands at 1/2"):
        client.program(JOB, 2, "1/1")


def test_another_plans_program_is_refused(proxy: Proxy, kind: str) -> None:
    """Its tag names one plan, its body another."""
    proxy.after = programs_only(lambda passing: unpacked(passing, plan_id="0" * 64))
    with connected(kind, proxy.url) as client, pytest.raises(ProgramMismatchError, match="its tag"):
        client.program(JOB, 2, "0/2")

    def retag(passing: Passing) -> Passing:
        changed = unpacked(passing, plan_id="0" * 64)
        return replace(changed, headers=changed.headers | {"etag": 'W/"' + "0" * 64 + '/0/2"'})

    with connected(kind, proxy.url) as client:
        proxy.after = lambda passing: passing
        client.program(JOB, 2, "0/1")
        proxy.after = programs_only(retag)
        with pytest.raises(ProgramMismatchError, match="other programs of that epoch carry out"):
            client.program(JOB, 2, "0/2")


@pytest.mark.parametrize("tag", [None, '"abc"', 'W/"' + "0" * 64 + '"'])
def test_a_program_without_its_tag_is_refused(proxy: Proxy, kind: str, tag: str | None) -> None:
    """Nothing would say which worker a rank's program is for."""

    def change(passing: Passing) -> Passing:
        headers = {name: value for name, value in passing.headers.items() if name != "etag"}
        return replace(passing, headers=headers if tag is None else headers | {"etag": tag})

    proxy.after = programs_only(change)
    with connected(kind, proxy.url) as client, pytest.raises(ProgramMismatchError, match="tag"):
        client.program(JOB, 2, "rank:2")


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"instructions": ["COMPUTE zero"]}, ProgramFormatError),
        ({"instructions": "COMPUTE 0F0.0"}, ProgramFormatError),
        ({"more": 1}, ProgramFormatError),
        ({"plan_id": 7}, AnswerError),
        ({"plan_id": "abc"}, ProgramMismatchError),
        ({"instructions": ["ALL_REDUCE 2 pipelines 1-2 weight 1/18"]}, ProgramMismatchError),
    ],
)
def test_programs_of_another_form_are_refused(
    proxy: Proxy, kind: str, fields: dict[str, Any], error: type[ClientError]
) -> None:
    """Unknown instructions and keys, and an all-reduce without the worker itself; the message says whose program it is."""
    proxy.after = programs_only(lambda passing: unpacked(passing, **fields))
    with connected(kind, proxy.url) as client, pytest.raises(error, match="worker 0/2 in epoch 2 of job 'bad-answers'"):
        client.program(JOB, 2, "0/2")


def test_epochs_of_another_job_or_number_are_refused(proxy: Proxy, kind: str) -> None:
    """An answer that belongs to another request."""
    with connected(kind, proxy.url) as client:
        proxy.after = lambda passing: unpacked(passing, job="other")
        for call in (lambda: client.current_epoch(JOB), lambda: client.epoch(JOB, 2)):
            with pytest.raises(AnswerError, match="job 'other'"):
                call()
        proxy.after = lambda passing: unpacked(passing, epoch=3)
        with pytest.raises(AnswerError, match="epoch 3 of job"):
            client.epoch(JOB, 2)
        with pytest.raises(AnswerError, match="about epoch 3"):
            client.acknowledgements(JOB, 2)
        proxy.after = lambda passing: unpacked(passing, id="other")
        with pytest.raises(AnswerError, match="'other'"):
            client.register_job(JOB, DOCUMENT)


def test_an_older_epoch_is_refused(proxy: Proxy, kind: str) -> None:
    """The current epoch never goes back, unless the client begins anew."""
    with connected(kind, proxy.url) as client:
        assert client.current_epoch(JOB).epoch == 3
        old = client.epoch(JOB, 2)
        proxy.after = lambda passing: replace(passing, status=200, body=json.dumps(dict(old.body)).encode())
        for after in (None, 2, 3):
            with pytest.raises(OlderEpochError, match=r"gave epoch 2 .* it gave 3 before") as caught:
                client.current_epoch(JOB, after=after)
            assert caught.value.code == "epoch_older"
    with connected(kind, proxy.url) as client:
        assert client.current_epoch(JOB).epoch == 2


def test_an_epoch_that_the_caller_has_is_not_newer(proxy: Proxy, kind: str) -> None:
    """A server that answers with the same epoch again has nothing newer."""
    with connected(kind, proxy.url) as client:
        body = json.dumps(dict(client.epoch(JOB, 3).body)).encode()
        proxy.after = lambda passing: replace(passing, status=200, body=body)
        assert client.current_epoch(JOB, after=3) is None


def test_digests_are_compared(proxy: Proxy, kind: str) -> None:
    """An answer with a digest of its bytes as they are sent is refused where they differ."""

    def digested(changed: bytes | None) -> Callable[[Passing], Passing]:
        def change(passing: Passing) -> Passing:
            digest = base64.b64encode(hashlib.sha256(passing.body).digest()).decode()
            body = passing.body if changed is None else changed
            return replace(
                passing, headers=passing.headers | {"repr-digest": f"sha-512=:AA==:, sha-256=:{digest}:"}, body=body
            )

        return change

    with connected(kind, proxy.url) as client:
        expected = client.program(JOB, 2, "0/2")
    with connected(kind, proxy.url) as client:
        proxy.after = digested(None)
        assert client.program(JOB, 2, "0/2") == expected
    with connected(kind, proxy.url) as client:
        document = {"plan_id": expected.plan_id, **expected.program.to_dict()}
        proxy.after = programs_only(digested(gzip.compress(json.dumps(document).encode())))
        with pytest.raises(DigestMismatchError) as caught:
            client.program(JOB, 2, "0/2")
        assert caught.value.code == "digest_mismatch"


def test_a_program_changed_on_its_way_is_refused(proxy: Proxy, kind: str) -> None:
    """One weight that is another in a program that is sound otherwise: the service's digest tells."""

    def change(passing: Passing) -> Passing:
        text = gzip.decompress(passing.body)
        assert b"weight 1/18" in text
        return replace(passing, body=gzip.compress(text.replace(b"weight 1/18", b"weight 1/19")))

    proxy.passes_digests = True
    with connected(kind, proxy.url) as client:
        assert str(client.program(JOB, 2, "0/2").program.worker) == "0/2"
    proxy.after = programs_only(change)
    with connected(kind, proxy.url) as client, pytest.raises(DigestMismatchError):
        client.program(JOB, 2, "0/2")


@pytest.mark.parametrize(
    ("headers", "body", "match"),
    [
        ({"content-encoding": "gzip"}, b"no gzip", "no sound gzip"),
        ({"content-encoding": "gzip"}, gzip.compress(b"{}")[:-6], "cut short"),
        ({"content-encoding": "gzip"}, gzip.compress(b"{}") + b"more", "something follows"),
        ({"content-encoding": "br"}, b"{}", "coding 'br'"),
        ({}, b"<html>Welcome</html>", "is no JSON: '<html>Welcome"),
        ({}, b"", "is no JSON"),
        ({}, b"[" * 10**5, "is no JSON"),
        ({}, b'{"epoch": NaN}', "is no JSON"),
        ({}, b"[]", r"is \[\]; expected a JSON object"),
        ({}, b'{"job": "bad-answers", "epoch": true}', "'epoch' is True; expected an integer"),
        ({}, b'{"job": "bad-answers", "epoch": 0}', "'epoch' is 0; expected an integer from 1 on"),
        ({}, b'{"epoch": 3}', "has no 'job'"),
        ({}, b'{"job": "bad-answers", "epoch": 3, "plan": null, "problem": null}', "or neither"),
    ],
)
def test_what_is_no_epoch_is_refused(proxy: Proxy, kind: str, headers: dict[str, str], body: bytes, match: str) -> None:
    """Each time what was found and expected stands in the message."""
    proxy.after = lambda passing: Passing("GET", passing.target, headers=headers, body=body)
    with connected(kind, proxy.url) as client, pytest.raises(AnswerError, match=match):
        client.current_epoch(JOB)


@pytest.mark.parametrize("how", ["announced", "sent", "unpacked"])
def test_answers_beyond_the_limit_are_refused(proxy: Proxy, kind: str, how: str) -> None:
    """Whether it says so beforehand, goes on and on, or unpacks to more than it looks."""
    body = gzip.compress(b" " * 10**6) if how == "unpacked" else b" " * 50_000
    headers = {"content-encoding": "gzip"} if how == "unpacked" else {}
    assert len(body) < 10_000 or how != "unpacked"
    if how == "sent":
        head = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
        with (
            scripted([head + body]) as script,
            connected(kind, script.url, max_answer_bytes=10_000) as client,
            pytest.raises(AnswerTooLargeError, match="goes on, beyond the limit of 10000 bytes"),
        ):
            client.current_epoch(JOB)
        return
    proxy.after = lambda passing: Passing("GET", passing.target, headers=headers, body=body)
    with connected(kind, proxy.url, max_answer_bytes=10_000) as client, pytest.raises(AnswerTooLargeError) as caught:
        client.current_epoch(JOB)
    assert caught.value.code == "answer_too_large"


def test_redirects_are_not_followed(proxy: Proxy, kind: str) -> None:
    """The key stays where it was sent."""
    proxy.before = lambda request: Passing("GET", request.target, 307, {"location": f"{proxy.url}/elsewhere"})
    with connected(kind, proxy.url, api_key="rpk_1_2") as client, pytest.raises(AnswerError, match="not followed"):
        client.current_epoch(JOB)
    assert len(proxy.requests) == 1


def test_an_unasked_304_is_refused(proxy: Proxy, kind: str) -> None:
    """There is nothing that could be unchanged."""
    proxy.before = lambda request: Passing("GET", request.target, 304)
    with connected(kind, proxy.url) as client, pytest.raises(AnswerError, match="was not asked so"):
        client.current_epoch(JOB)


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (401, "key_missing", AccessError),
        (500, "internal", ServiceFaultError),
        (500, "made_up_tomorrow", ServiceFaultError),
    ],
)
def test_problems_end_a_request_at_once(
    proxy: Proxy, kind: str, status: int, code: str, error: type[ClientError]
) -> None:
    """A refusal and a fault are not asked for again; a code of a later version is kept."""
    problem = {"code": code, "detail": "so\x1b[2Jit is", "status": status, "instance": "urn:uuid:1"}
    proxy.before = lambda request: Passing("GET", request.target, status, body=json.dumps(problem).encode())
    with connected(kind, proxy.url) as client, pytest.raises(error, match="urn:uuid:1") as caught:
        client.current_epoch(JOB)
    assert (caught.value.code, len(proxy.requests)) == (code, 1)
    assert "\x1b" not in str(caught.value)


def test_a_web_page_is_no_problem(proxy: Proxy, kind: str) -> None:
    """What stands before the service answers with a page: 404 is final, after 502 the client comes again."""
    proxy.before = lambda request: Passing("GET", request.target, 404, body=b"<html>nothing here")
    with connected(kind, proxy.url) as client, pytest.raises(AnswerError, match="status 404 came with"):
        client.current_epoch(JOB)
    assert len(proxy.requests) == 1
    waits = ["0", "0", "1000"]
    proxy.before = lambda request: Passing(
        "GET", request.target, 502, {"retry-after": waits.pop(0)}, b"<html>bad gateway"
    )
    with connected(kind, proxy.url) as client, pytest.raises(UnavailableError, match="502"):
        client.current_epoch(JOB)
    # The third answer asks for more time than there is.
    assert waits == []


def test_a_report_whose_answers_are_lost_is_applied_once(url: str, kind: str) -> None:
    """Cut short, told to come again, and answered at last: one key all along, one epoch."""
    job = f"{JOB}-lost-{kind}"
    with proxied(url) as proxy:
        with connected(kind, url) as direct:
            direct.register_job(job, DOCUMENT)
        tries: list[str] = []

        def spoil(passing: Passing) -> Passing:
            if passing.method != "POST":
                return passing
            tries.append(proxy.requests[-1].headers["idempotency-key"])
            if len(tries) == 1:
                # The service has done it; its answer is lost with the connection.
                return replace(passing, status=503, headers={"retry-after": "0"}, body=b"lost")
            return passing

        proxy.after = spoil
        with connected(kind, proxy.url) as client:
            epoch = client.report(job, Event(kind="node_failed", nodes=("n06",)))
        assert (epoch.epoch, len(tries), len(set(tries))) == (2, 2, 1)
        with connected(kind, url) as direct:
            assert direct.current_epoch(job).epoch == 2


def test_nobody_there(kind: str) -> None:
    """The address, the reason and the number of tries."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with (
        connected(kind, f"http://127.0.0.1:{port}", attempt_s=0.2, total_s=0.5) as client,
        pytest.raises(ServiceUnreachableError, match=rf"no answer from http://127.0.0.1:{port}: .*\(tried") as caught,
    ):
        client.current_epoch(JOB)
    assert caught.value.code == "service_unreachable"
    assert caught.value.hint is not None


def test_a_silent_service(kind: str) -> None:
    """It takes the connection and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with (
            connected(kind, url, attempt_s=0.1, total_s=0.2) as client,
            pytest.raises(ServiceUnreachableError, match=r"took longer|did not end"),
        ):
            client.current_epoch(JOB)


def test_a_slow_service(proxy: Proxy, url: str, kind: str) -> None:
    """The first answers take too long, the next one comes: nothing but the wait is noticed."""
    waits = [0.6, 0.6]

    def slow(passing: Passing) -> Passing:
        if waits:
            time.sleep(waits.pop())
        return passing

    proxy.after = slow
    with connected(kind, proxy.url, attempt_s=0.3, total_s=60) as client:
        assert client.current_epoch(JOB).epoch == 3
    assert waits == []


def test_an_answer_in_drops(kind: str) -> None:
    """Each drop comes in time; the whole does not, and no answer is taken for whole."""
    with (
        scripted([answer(200, "{}", length=10)]) as script,
        connected(kind, script.url, attempt_s=0.3, total_s=0.3) as client,
        pytest.raises(ServiceUnreachableError),
    ):
        client.current_epoch(JOB)
    with (
        dripping() as url,
        connected(kind, url, attempt_s=1.0, total_s=1.0) as client,
        pytest.raises(ServiceUnreachableError, match=r"did not end within (1|0\.\d+) s"),
    ):
        client.current_epoch(JOB)
