"""What a service meets in bad times, as its clients see it: typed errors, and nothing of what was acknowledged is lost."""

from __future__ import annotations

import json
import socket
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from api.store import Store
from tests.api.store.test_disk_full import fill, small_disk
from tests.jobs import DOCUMENT, ServedJob, check_problem
from tests.postgres import PostgresServer
from tests.serving import REPLAN, Server, serving

__all__ = ["small_disk"]
_EVENTS = 30


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that takes small bodies only."""
    environment = {"REPLAN_MAX_BODY_BYTES": "4096", "REPLAN_WRITE_TIMEOUT_S": "2"}
    store = tmp_path_factory.mktemp("store") / "bad.db"
    with serving(store, "--processes", "1", environment=environment) as running:
        yield running


def report_until_refused(job: ServedJob, status: int, code: str) -> list[dict[str, object]]:
    """Fail and recover a node until a report is refused, which makes no epoch; the acknowledged ones."""
    told: list[dict[str, object]] = [job.current()]
    while True:
        answer = job.post("node_recovered" if told[-1]["failed_workers"] else "node_failed", "n06")
        if answer.status_code != 201:
            check_problem(answer, status, code)
            assert job.current() == told[-1]
            return told
        told.append(answer.json())


def go_on(job: ServedJob) -> dict[str, object]:
    """Report the other thing of a node that fails and recovers."""
    return job.report("node_recovered" if job.current()["failed_workers"] else "node_failed", "n06")


def test_oversize_reports_are_refused(server: Server) -> None:
    """A body over the limit is refused by its declared length and when it comes in chunks, for each route that takes one."""
    job = ServedJob(server.client, "oversize")
    assert job.register().status_code == 201
    large = json.dumps({"kind": "node_failed", "nodes": "n" * 5000}).encode()
    for method, path in (("POST", f"{job.path}/events"), ("PUT", job.path), ("POST", f"{job.path}/precompute")):
        for body in (large, iter([large[:3000], large[3000:]])):
            answer = server.client.request(method, path, content=body, headers={"Content-Type": "application/json"})
            check_problem(answer, 413, "document_limit")
    assert job.current()["epoch"] == 1


def test_more_failures_than_there_are_workers_cannot_be_tolerated(server: Server) -> None:
    """Neither a registration nor an operation takes a tolerance above the job's twelve workers, or one of too many plans."""
    job = ServedJob(server.client, "tolerant")
    check_problem(job.register(tolerance=13), 422, "option_invalid")
    check_problem(server.client.get(job.path), 404, "not_found")
    assert job.register(tolerance=12).status_code == 201
    check_problem(server.client.post(f"{job.path}/precompute", json={"tolerance": 13}), 422, "option_invalid")
    wide = {
        "topology": {"nodes": "n[00-95]", "gpus_per_node": 1},
        "layout": DOCUMENT["layout"] | {"pipeline_parallel": 16, "data_parallel": 6},
    }
    many = ServedJob(server.client, "many", DOCUMENT | wide)
    check_problem(many.register(tolerance=20, mode="all"), 422, "option_invalid")


def test_streams_that_nobody_reads_hold_up_nobody(server: Server) -> None:
    """Clients that open streams and read nothing do not keep epochs from others."""
    job = ServedJob(server.client, "unread")
    assert job.register().status_code == 201
    host, port = server.client.base_url.host, server.client.base_url.port
    with ExitStack() as stack:
        for _ in range(20):
            idle = stack.enter_context(socket.socket())
            idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            idle.connect((host, port))
            idle.sendall(f"GET {job.path}/stream HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        with server.client.stream("GET", f"{job.path}/stream") as answer:
            lines = answer.iter_lines()
            for number in range(_EVENTS):
                epoch = go_on(job)["epoch"]
                assert epoch == number + 2
                while next(lines) != f"id: {epoch}":
                    pass
        assert job.current()["epoch"] == _EVENTS + 1


def test_a_full_disk_loses_nothing(small_disk: Path) -> None:
    """Reports that do not fit are refused with 503 and make no epoch; once there is room the service goes on by itself."""
    with serving(small_disk / "replan.db", "--processes", "1") as server:
        job = ServedJob(server.client, "full")
        assert job.register().status_code == 201
        for _ in range(4):
            go_on(job)
        ballast = fill(small_disk, leave=256 * 1024)
        told = report_until_refused(job, 503, "store_full")
        assert server.client.get("/healthz").status_code == 200
        assert job.get("epochs/1").status_code == 200, "what is there can still be read"
        ballast.unlink()
        assert go_on(job)["epoch"] == told[-1]["epoch"] + 1  # type: ignore[operator]
        for body in told:
            assert job.get(f"epochs/{body['epoch']}").json() == body
    with closing(sqlite3.connect(small_disk / "replan.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_read_only_database_is_read(postgres_server: PostgresServer) -> None:
    """While PostgreSQL only lets read, epochs are served and reports refused with 503; afterwards they are taken again."""
    url = postgres_server.make_database()
    with serving(url, "--processes", "1") as server:
        job = ServedJob(server.client, "read-only")
        assert job.register().status_code == 201
        before = go_on(job)
        postgres_server.execute("ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
        try:
            told = report_until_refused(job, 503, "store_read_only")
            assert told[0] == before
            check_problem(job.register(tolerance=2), 503, "store_read_only")
            assert job.get(f"epochs/{told[-1]['epoch']}/programs/0/0").status_code == 200
        finally:
            postgres_server.execute("ALTER SYSTEM RESET default_transaction_read_only", "SELECT pg_reload_conf()")
        while (answer := job.post("node_failed", "n07")).status_code == 503:
            time.sleep(0.05)
        assert answer.json()["epoch"] == told[-1]["epoch"] + 1  # type: ignore[operator]


def test_a_database_of_a_newer_version_is_refused_untouched(tmp_path: Path) -> None:
    """The server does not start, names both versions, and leaves every byte as it was."""
    path = tmp_path / "replan.db"
    Store(str(path)).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE replan_schema SET version = 99")
        connection.execute("UPDATE alembic_version SET version_num = '0099'")
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = path.read_bytes()
    command = [REPLAN, "serve", "--port", "0", "--store", str(path), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode != 0
    error = json.loads(done.stderr.splitlines()[-1])
    assert error["code"] == "store_failed"
    assert "version 99" in error["detail"]
    assert path.read_bytes() == content
