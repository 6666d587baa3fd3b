"""The client: tries, time-outs, and what it makes of answers."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cli.errors import ExitCode, ServiceError, exit_code_of
from cli.main import run
from cli.service.client import ServiceClient, parse_address
from tests.cli.service.scripted import Script, answer, scripted

PROBLEM = {"type": "urn:replan:problem:not_found", "title": "Not Found", "status": 404, "code": "not_found"}


@contextmanager
def client_of(*answers: bytes, timeout_s: float = 20.0) -> Iterator[tuple[ServiceClient, Script, list[float]]]:
    """A client of a scripted server, and the seconds it would have waited."""
    waited: list[float] = []
    with (
        scripted(answers) as script,
        ServiceClient(parse_address(script.url), "rpk_a_b", timeout_s, sleep=waited.append) as client,
    ):
        yield client, script, waited


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://replan", "http://replan:80"),
        ("https://Replan.example/a/b/", "https://replan.example:443/a/b"),
        ("http://[::1]:9/", "http://[::1]:9"),
    ],
)
def test_addresses(url: str, expected: str) -> None:
    """Ports are filled in, a path before /v1 is kept."""
    assert str(parse_address(url)) == expected


@pytest.mark.parametrize(
    "url",
    [
        *(
            "",
            "replan:8080",
            "ftp://replan",
            "http://",
            "http://user:word@replan",
            "http://replan/?a=b",
            "http://replan/#a",
        ),
        *("http://replan:99999", "http://re plan", "http://replan/\r\nX: y", "file:///etc/passwd"),
    ],
)
def test_what_is_no_address(url: str) -> None:
    """Each is refused before anything is sent."""
    with pytest.raises(ValueError):
        parse_address(url)
    assert run(["jobs", "list", "--server", url]) == ExitCode.USAGE


def test_a_request_is_sent_as_it_should_be() -> None:
    """Parts of the path are quoted; body, key and idempotency key are there."""
    with client_of(answer(200, '{"a": 1}')) as (client, script, waited):
        found = client.send("POST", "jobs", "a/b c", "events", body={"x": "é"}, idempotency_key="k1")
    assert (found.document(), waited) == ({"a": 1}, [])
    head, _, body = script.requests[0].partition("\r\n\r\n")
    assert head.startswith("POST /v1/jobs/a%2Fb%20c/events HTTP/1.1\r\n")
    assert {"Authorization: Bearer rpk_a_b", "Idempotency-Key: k1", "Content-Type: application/json"} < set(
        head.split("\r\n")
    )
    assert json.loads(body) == {"x": "é"}
    assert "rpk_a_b" not in repr(client)


def test_lost_answers_are_asked_for_again_with_the_same_key() -> None:
    """Closed, cut short, overloaded, told to wait: one report, four tries, one key."""
    answers = (
        b"",
        answer(200, '{"a"', length=100),
        answer(503, json.dumps(PROBLEM | {"code": "overloaded", "detail": "busy"}), "Retry-After: 7"),
        answer(200, "{}"),
    )
    with client_of(*answers) as (client, script, waited):
        assert client.send("POST", "jobs", "j", "events", body={}, idempotency_key="k1").status == 200
    assert len(script.requests) == 4
    assert len({request for request in script.requests if "Idempotency-Key: k1\r\n" in request}) == 1
    # Waits grow from 0.2 s by half more or less; the third is what the service asks for.
    assert 0.1 <= waited[0] <= 0.3
    assert 0.2 <= waited[1] <= 0.6
    assert waited[2] == 7


def test_tries_end_with_the_time() -> None:
    """A service that asks for more time than there is gets its answer shown."""
    busy = answer(503, json.dumps(PROBLEM | {"code": "overloaded", "detail": "busy"}), "Retry-After: 60")
    with client_of(busy) as (client, script, waited), pytest.raises(ServiceError, match="busy") as caught:
        client.get("jobs")
    assert (caught.value.code, exit_code_of(caught.value), waited) == ("overloaded", ExitCode.SERVICE, [])
    assert len(script.requests) == 1


def test_nobody_there() -> None:
    """The address, the reason and the number of tries."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with (
        ServiceClient(parse_address(f"http://127.0.0.1:{port}"), timeout_s=60, sleep=lambda _: None) as client,
        pytest.raises(ServiceError, match=rf"127.0.0.1:{port}: Connection refused \(tried 8 times") as caught,
    ):
        client.get("jobs")
    assert (caught.value.code, exit_code_of(caught.value)) == ("service_unreachable", ExitCode.SERVICE)


def test_an_answer_in_drops_ends_in_time() -> None:
    """Each drop comes in time; the whole does not, and no answer is taken for whole."""
    with client_of(answer(200, " " * 10, length=10**6), timeout_s=0.5) as (client, _, _waited):
        ticks = iter([0.0, 0.0, 0.0, 9.0, 9.0, 9.0, 9.0, 9.0])
        client.clock = lambda: next(ticks)
        with pytest.raises(ServiceError, match="the answer did not end in time"):
            client.get("jobs")


def test_a_silent_server_ends_in_time() -> None:
    """It takes the connection and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = parse_address(f"http://127.0.0.1:{silent.getsockname()[1]}")
        with ServiceClient(address, timeout_s=0.2) as client, pytest.raises(ServiceError, match="it took too long"):
            client.get("jobs")


def test_a_deletion_whose_answer_was_lost() -> None:
    """The second try finds nothing because the first did it; without a first try it is an error."""
    gone = answer(404, json.dumps(PROBLEM | {"detail": "no such job"}))
    with client_of(b"", gone) as (client, _, _waited):
        assert client.send("DELETE", "jobs", "j").status == 204
    with client_of(gone) as (client, _, _waited), pytest.raises(ServiceError, match="no such job"):
        client.send("DELETE", "jobs", "j")


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (404, "not_found", ExitCode.INPUT),
        (409, "epoch_conflict", ExitCode.CONFLICT),
        (422, "idempotency_key_reused", ExitCode.CONFLICT),
        (409, "already_failed", ExitCode.INPUT),
        (422, "unknown_node", ExitCode.INPUT),
        (409, "stage_lost", ExitCode.NO_PLAN),
        (401, "key_missing", ExitCode.SERVICE),
        (403, "scope_too_small", ExitCode.SERVICE),
        (500, "internal", ExitCode.SERVICE),
        (500, "schedule_invalid", ExitCode.SERVICE),
        (422, "something_new", ExitCode.INPUT),
    ],
)
def test_problems(status: int, code: str, expected: ExitCode) -> None:
    """Code, detail, places and where the log tells more; the exit status is that of the same error here."""
    document = PROBLEM | {
        "code": code,
        "detail": "what was\x1b[2J wrong",
        "errors": [{"pointer": "/kind", "detail": "is none"}],
        "instance": "urn:uuid:1",
    }
    with client_of(answer(status, json.dumps(document))) as (client, _, _waited), pytest.raises(ServiceError) as caught:
        client.get("jobs")
    assert caught.value.message == ("what was�[2J wrong\n/kind: is none\nthe service's log tells more under urn:uuid:1")
    assert (caught.value.code, caught.value.status, exit_code_of(caught.value)) == (code, status, expected)


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (200, "<html>hello</html>", ExitCode.SERVICE),
        (200, "[]", ExitCode.SERVICE),
        (200, "[" * 100_000, ExitCode.SERVICE),
        (302, "", ExitCode.SERVICE),
        (404, "<h1>nginx</h1>", ExitCode.INPUT),
        (500, "", ExitCode.SERVICE),
        (400, '{"code": 7, "detail": "x"}', ExitCode.INPUT),
        (400, '{"code": "a", "detail": ["x"]}', ExitCode.INPUT),
        (400, '{"code": "A b", "detail": "x"}', ExitCode.INPUT),
        (400, '{"code": "a", "detail": "x", "errors": 7}', ExitCode.INPUT),
    ],
)
def test_what_is_no_answer_of_the_service(status: int, body: str, expected: ExitCode) -> None:
    """A proxy's page, a redirect, and malformed problems: said so, and nowhere followed."""
    with (
        client_of(answer(status, body, "Location: http://127.0.0.1:1/")) as (client, script, _),
        pytest.raises(ServiceError, match=f"status {status} came with what is no answer of RePlan") as caught,
    ):
        client.get("jobs").document()
    assert (caught.value.code, exit_code_of(caught.value)) == ("service_answer_invalid", expected)
    assert len(script.requests) == 1


def test_garbage_instead_of_http() -> None:
    """Another protocol on that port."""
    other = [b"SSH-2.0-OpenSSH_9.2\r\n"] * 8
    with client_of(*other) as (client, _, _waited), pytest.raises(ServiceError, match=r"SSH-2\.0-OpenSSH_9\.2"):
        client.get("jobs")


def test_key_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The key is the file's one line; what is no key is refused and not shown."""
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_text("rpk_a_secret\n")
    bad.write_text("two\nlines")
    with scripted([answer(200, '{"jobs": [], "next": null}')]) as script:
        assert run(["jobs", "list", "--server", script.url, "--key-file", str(good)]) == ExitCode.OK
    assert "Authorization: Bearer rpk_a_secret\r\n" in script.requests[0]
    assert capsys.readouterr().out == "no jobs\n"
    for path in (bad, tmp_path / "none"):
        assert run(["jobs", "list", "--server", script.url, "--key-file", str(path)]) == ExitCode.INPUT
    shown = capsys.readouterr().err
    assert "holds no API key" in shown
    assert "lines" not in shown


def test_errors_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """With --json the service's problem comes out as one object."""
    conflict = PROBLEM | {"status": 409, "code": "epoch_conflict", "detail": "epoch 3 is current"}
    with scripted([answer(409, json.dumps(conflict))]) as script:
        arguments = ["report", "j", "--failed", "n1", "--expected-epoch", "2", "--server", script.url, "--json"]
        assert run(arguments) == ExitCode.CONFLICT
    shown = json.loads(capsys.readouterr().err)
    assert (shown["code"], shown["detail"], shown["title"], shown["exit_code"]) == (
        *("epoch_conflict", "epoch 3 is current"),
        *("conflict", 8),
    )
    assert json.loads(script.requests[0].partition("\r\n\r\n")[2]) == {
        "kind": "node_failed",
        "nodes": ["n1"],
        "ranks": [],
        "workers": [],
        "expected_epoch": 2,
    }
    assert re.search(r"Idempotency-Key: [0-9a-f-]{36}\r\n", script.requests[0])
