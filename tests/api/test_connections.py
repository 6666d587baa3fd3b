"""Connections that are slow, endless, malformed or too many, against a real server process."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.serving import Server, serving

LIMITS = {
    "REPLAN_HEADER_TIMEOUT_S": "0.5",
    "REPLAN_BODY_TIMEOUT_S": "0.5",
    "REPLAN_WRITE_TIMEOUT_S": "1",
    "REPLAN_KEEP_ALIVE_S": "1",
    "REPLAN_MAX_HEADER_BYTES": "4096",
}
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with tight limits."""
    store = tmp_path_factory.mktemp("store") / "replan.db"
    with serving(store, "--processes", "1", ready=False, environment=LIMITS) as running:
        yield running


def connect(server: Server, *, address: str = "127.0.0.1") -> socket.socket:
    """A new connection from an address of loopback."""
    url = server.client.base_url
    assert url.port is not None
    return socket.create_connection((url.host, url.port), timeout=30, source_address=(address, 0))


def until_closed(connection: socket.socket) -> bytes:
    """What arrives until the server ends the connection; the test's own time limit ends a wait in vain."""
    received = bytearray()
    try:
        while data := connection.recv(65536):
            received += data
    except ConnectionError:
        pass
    return bytes(received)


def check_problem(answer: bytes, status: int, code: str) -> None:
    """Check that an answer is a problem document that ends the connection."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), answer
    assert b"application/problem+json" in head
    assert b"connection: close" in head.lower()
    assert json.loads(body)["code"] == code


def used(server: Server, *, address: str = "127.0.0.1") -> socket.socket:
    """A connection on which a request was answered; a client that was itself too slow for the server's limits tries again."""
    while True:
        connection = connect(server, address=address)
        connection.sendall(HEALTH)
        answer = connection.recv(65536)
        if not answer.startswith(b"HTTP/1.1 408 "):
            assert answer.startswith(b"HTTP/1.1 200 "), answer
            return connection
        connection.close()


def require_alive(server: Server) -> None:
    """Check that a new client gets an answer."""
    used(server, address="127.0.0.9").close()


@pytest.mark.parametrize("sent", [b"", b"G", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "])
def test_headers_that_do_not_come_are_waited_for_only_so_long(server: Server, sent: bytes) -> None:
    """A client that sends none or a part of its headers is told so and cut off."""
    with connect(server) as connection:
        connection.sendall(sent)
        check_problem(until_closed(connection), 408, "request_timeout")
    require_alive(server)


def test_headers_that_drip_are_cut_off_too(server: Server) -> None:
    """Sending a little now and then buys no time, also on a connection that was used before."""
    with used(server) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nX: ")
        with pytest.raises(ConnectionError):
            while True:  # ends because the server ends the connection
                connection.sendall(b"x")
                time.sleep(0.1)
    require_alive(server)


@pytest.mark.parametrize(
    "head",
    [
        b"GET /healthz HTTP/1.1\r\nX: " + b"x" * 5000 + b"\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n" + b"".join(b"X-%d: x\r\n" % n for n in range(1000)) + b"\r\n",
        b"GET /" + b"x" * 5000 + b" HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nX: " + b"x" * 200_000,
    ],
    ids=["one", "many", "target", "endless"],
)
def test_long_headers_are_refused(server: Server, head: bytes) -> None:
    """One long header, many short ones, a long target and one that never ends are all 431."""
    with connect(server) as connection:
        connection.sendall(head)
        check_problem(until_closed(connection), 431, "headers_too_large")
    require_alive(server)


@pytest.mark.parametrize(
    "sent", [b"\x00\x01\x02\r\n\r\n", b"HELLO\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02"]
)
def test_what_is_no_http_is_told_so(server: Server, sent: bytes) -> None:
    """Bytes that are no request, such as a TLS greeting, get a problem document and the end of the connection."""
    with connect(server) as connection:
        connection.sendall(sent)
        check_problem(until_closed(connection), 400, "request_malformed")
    require_alive(server)


@pytest.mark.parametrize("framing", [b"Content-Length: 100", b"Transfer-Encoding: chunked"])
def test_a_body_that_does_not_come_is_waited_for_only_so_long(server: Server, framing: bytes) -> None:
    """A body that stops in the middle is 408."""
    with connect(server) as connection:
        connection.sendall(
            b"POST /v1/plans HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + framing
        )
        connection.sendall(b"\r\n\r\n" + (b"{" if b"Length" in framing else b"1\r\n{\r\n"))
        check_problem(until_closed(connection), 408, "request_timeout")
    require_alive(server)


def test_a_body_nobody_asked_for_ends_the_connection(server: Server) -> None:
    """A body or trailers that go on after the answer are not read for ever."""
    with connect(server) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert until_closed(connection).startswith(b"HTTP/1.1 200 ")
    require_alive(server)


def test_requests_sent_together_are_all_answered(server: Server) -> None:
    """Pipelined requests, the last one cut in two, get an answer each, in order."""
    # A busy machine may send the second half too late for the server's limits: then it is tried again.
    while b"HTTP/1.1 408 " in (received := answers_to_four(server)):
        pass
    assert received.count(b"HTTP/1.1 200 ") == 4


def answers_to_four(server: Server) -> bytes:
    """What comes back for three requests and a half, and the other half of the fourth once three are answered."""
    with connect(server) as connection:
        connection.sendall(HEALTH * 3 + HEALTH[:10])
        received = b""
        while received.count(b"HTTP/1.1 200 ") < 3 and (data := connection.recv(65536)):
            received += data
        with suppress(ConnectionError):
            connection.sendall(HEALTH[10:])
        return received + until_closed(connection)


def test_an_answer_nobody_reads_is_given_up(server: Server) -> None:
    """A client that asks for much and reads nothing is cut off; what it did not take is gone."""
    # A busy server may not have come as far as that by the time when a client begins to read: the next one waits longer.
    assert any(num_answers_after(server, pause_s, num_asked=400) < 400 for pause_s in (2.5, 10, 40, 120))
    require_alive(server)


def num_answers_after(server: Server, pause_s: float, *, num_asked: int) -> int:
    """How many large answers come to a client that asks for so many and reads nothing for some seconds."""
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(120)
        url = server.client.base_url
        connection.connect((url.host, url.port))
        connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * num_asked)
        time.sleep(pause_s)
        return until_closed(connection).count(b"HTTP/1.1 200 ")


def test_connections_are_limited_in_all_and_by_address(tmp_path: Path) -> None:
    """Beyond its number an address is 503, beyond the whole number every address is; closed ones make room again."""
    counts = {"REPLAN_MAX_CONNECTIONS": "12", "REPLAN_MAX_CONNECTIONS_PER_ADDRESS": "8"}
    with serving(tmp_path / "replan.db", "--processes", "1", ready=False, environment=counts) as server:
        check_counts(server)


def check_counts(server: Server) -> None:
    """Fill a server that takes 12 connections, 8 of one address."""
    taken: list[socket.socket] = []
    try:
        for _ in range(8):
            taken.append(connect(server, address="127.0.0.2"))
        with connect(server, address="127.0.0.2") as connection:
            check_problem(until_closed(connection), 503, "overloaded")
        require_alive(server)
        for _ in range(4):
            taken.append(connect(server, address="127.0.0.3"))
        with connect(server, address="127.0.0.4") as connection:
            check_problem(until_closed(connection), 503, "overloaded")
    finally:
        for connection in taken:
            connection.close()
    while True:
        with connect(server, address="127.0.0.4") as connection:
            connection.sendall(HEALTH)
            if connection.recv(65536).startswith(b"HTTP/1.1 200 "):
                break
        time.sleep(0.05)
