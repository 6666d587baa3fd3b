"""How a real server process starts, ends and is killed, and what it does while its database is away."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from api.security.authenticator import FRESH_S
from planner.formats.documents import parse_document
from tests.jobs import ServedJob
from tests.postgres import PostgresServer
from tests.serving import REPLAN, Server, serving

EXAMPLES = Path(__file__).parents[2] / "examples"
JOB: dict[str, Any] = parse_document((EXAMPLES / "recycle-worked-example.yaml").read_text(), format="yaml")
# No schedule of this job is known that meets the bound: the search goes on until its deadline.
LONG_JOB: dict[str, Any] = parse_document((EXAMPLES / "uneven-stages.yaml").read_text(), format="yaml")


def eventually(is_so: Callable[[], bool]) -> None:
    """Wait until something is so; the test's own time limit ends a wait in vain."""
    while not is_so():
        time.sleep(0.05)


def parent_of(pid: int) -> int | None:
    """Parent of a process; ``None`` where it is gone or a zombie."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state == "Z" else int(parent)


def descendants(pid: int) -> set[int]:
    """Processes that a process started, and those that these started; zombies are none."""
    parents: dict[int, int] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdecimal() and (parent := parent_of(int(path.name))) is not None:
            parents[int(path.name)] = parent
    found, todo = set[int](), {pid}
    while todo:
        todo = {child for child, parent in parents.items() if parent in todo}
        found |= todo
    return found


def living(pids: set[int]) -> set[int]:
    """Those that still run."""
    return {pid for pid in pids if parent_of(pid) is not None}


def refused(*options: str, environment: dict[str, str] | None = None) -> tuple[int, dict[str, Any]]:
    """Exit status and error of a server that does not start."""
    command = [REPLAN, "serve", "--port", "0", "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=environment)
    assert done.stdout == ""
    return done.returncode, json.loads(done.stderr)


def post_long(server: Server, seconds: float) -> httpx2.Response:
    """Ask for a plan that takes as long as it may."""
    options = {"deadline_s": seconds}
    return server.client.post(
        "/v1/plans", json={"job": LONG_JOB, "failures": {"fail": ["worker:0/1"]}, "options": options}
    )


@pytest.mark.slow
def test_a_database_that_hangs_keeps_nobody_waiting(postgres_server: PostgresServer) -> None:
    """While PostgreSQL is frozen known keys fetch programs from memory, an event is refused, and then all goes on."""
    with serving(
        postgres_server.make_database(), "--require-keys", "--create-key", "--processes", "2", ready=False
    ) as server:
        key = next(line for line in server.process.stdout if '"key"' in line).split('"')[3]  # type: ignore[union-attr]
        server.client.headers["Authorization"] = f"Bearer {key}"
        eventually(lambda: server.client.get("/readyz").status_code == 200)
        job = ServedJob(server.client, "job")
        job.register()
        job.report("node_failed", "n06")
        assert job.get("epochs/2/programs/0/0").status_code == 200
        server.client.timeout = httpx2.Timeout(20)  # what hangs would take longer
        postgres_server.freeze()
        try:
            time.sleep(FRESH_S)  # until the key is to be looked up again
            assert job.get("epochs/2/programs/0/0").status_code == 200
            for _ in range(3):
                answer = job.post("node_failed", "n07")
                assert (answer.status_code, answer.json()["code"]) == (503, "store_failed")
            assert server.client.get("/readyz").status_code == 503
            assert server.client.get("/healthz").status_code == 200
            assert job.get("epochs/2/programs/0/1").status_code == 200
        finally:
            postgres_server.thaw()
        eventually(lambda: server.client.get("/readyz").status_code == 200)
        assert job.report("node_failed", "n07")["epoch"] == 3


@pytest.mark.slow
def test_a_killed_server_leaves_no_process(tmp_path: Path) -> None:
    """After SIGKILL in the middle of a solve neither solver processes nor the searches that they started are left."""
    with serving(tmp_path / "replan.db", "--processes", "2") as server, ThreadPoolExecutor() as threads:
        asking = threads.submit(post_long, server, 8)
        # Two solver processes, and the watcher and the worker of the exact search that one of them has started.
        eventually(lambda: len(descendants(server.process.pid)) >= 4)
        pids = descendants(server.process.pid)
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        eventually(lambda: not living(pids))
        with pytest.raises(httpx2.TransportError):
            asking.result()


@pytest.mark.slow
def test_a_server_told_to_stop_answers_what_it_was_asked(tmp_path: Path) -> None:
    """On SIGTERM it says that it is not ready while it still listens, answers the request at hand, and ends with status 0."""
    environment = {"REPLAN_DRAIN_DELAY_S": "1"}
    options = ("--processes", "1")
    with serving(tmp_path / "replan.db", *options, environment=environment) as server, ThreadPoolExecutor() as threads:
        asking = threads.submit(post_long, server, 3)
        time.sleep(0.3)  # a request that comes later still finds the server listening
        pids = descendants(server.process.pid)
        server.process.send_signal(signal.SIGTERM)
        with httpx2.Client(base_url=server.client.base_url, timeout=30) as other:
            eventually(lambda: other.get("/readyz").status_code == 503)
            assert "stop" in other.get("/readyz").json()["status"]
            assert other.get("/healthz").status_code == 200
            assert "\nreplan_draining 1.0\n" in other.get("/metrics").text
        assert asking.result().status_code == 201
        assert server.process.wait() == 0
        assert not living(pids)


@pytest.mark.slow
def test_a_second_signal_cuts_the_waiting_short(tmp_path: Path) -> None:
    """Told twice, the server does not wait for load balancers any longer."""
    environment = {"REPLAN_DRAIN_DELAY_S": "600"}
    with serving(tmp_path / "replan.db", "--processes", "1", ready=False, environment=environment) as server:
        eventually(lambda: server.client.get("/healthz").status_code == 200)
        server.process.send_signal(signal.SIGTERM)
        eventually(lambda: server.client.get("/readyz").json()["status"] == "the server is about to stop")
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait() == 0


def test_beyond_loopback_nobody_is_let_in_without_a_key(tmp_path: Path) -> None:
    """Without keys the server refuses to start; with --create-key it prints one, which then opens it to its holder alone."""
    store = tmp_path / "replan.db"
    status, error = refused("--host", "0.0.0.0", "--store", str(store))
    assert (status, error["code"]) == (2, "option_invalid")
    assert "keys create" in error["hint"]
    command = [REPLAN, "keys", "create", "--store", str(store), "--name", "worker", "--scope", "read", "--json"]
    with serving(store, "--host", "0.0.0.0", "--processes", "1", "--create-key", ready=False) as server:
        key = next(line for line in server.process.stdout if '"key"' in line).split('"')[3]  # type: ignore[union-attr]
        port = server.client.base_url.port
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            assert client.get("/healthz").status_code == 200
            assert client.get("/v1/plans/x").status_code == 401
            assert client.get("/v1/plans/x", headers={"Authorization": f"Bearer {key}"}).status_code == 404
            # A key made while the server runs is good at once.
            made = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            worker = {"Authorization": f"Bearer {made['key']}"}
            assert client.get("/v1/plans/x", headers=worker).status_code == 404
            assert client.post("/v1/plans", json={"job": {}}, headers=worker).status_code == 403
    with serving(store, "--host", "0.0.0.0", "--processes", "1", ready=False) as again:
        assert again.process.poll() is None


@pytest.mark.parametrize(
    ("variable", "value"), [("REPLAN_QUEUE_LIMIT", "many"), ("REPLAN_TRUSTED_PROXIES", "proxy"), ("REPLAN_PORT", "x")]
)
def test_a_wrong_variable_stops_the_start(tmp_path: Path, variable: str, value: str) -> None:
    """Exit status 2, and the error names the setting and what it holds."""
    command = [REPLAN, "serve", "--store", str(tmp_path / "replan.db"), "--json"]
    environment = {"PATH": "/usr/bin:/bin", variable: value}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=environment)
    error = json.loads(done.stderr.splitlines()[-1])
    assert (done.returncode, error["code"]) == (2, "option_invalid")
    assert variable.removeprefix("REPLAN_").lower() in error["detail"].lower()
    assert repr(value) in error["detail"]


def test_the_log_is_json_and_names_what_nothing_reads(tmp_path: Path) -> None:
    """Every line of the server's log is an object; a misspelt variable is told, and how the server started and ended."""
    path = tmp_path / "log"
    environment = {"REPLAN_PROT": "1"}
    with (
        path.open("w") as log,
        serving(
            tmp_path / "replan.db", "--processes", "1", "--log-level", "info", environment=environment, log=log
        ) as server,
    ):
        assert server.client.post("/v1/plans", content=b"{}").status_code == 415
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait() == 0
    records = [json.loads(line) for line in path.read_text().splitlines()]
    events = [record["event"] for record in records]
    assert any("REPLAN_PROT" in event for event in events)
    assert any("listening on http://127.0.0.1:" in event for event in events)
    assert {"POST /v1/plans", "told to stop; no longer ready"} <= set(events)


@pytest.mark.slow
def test_a_database_that_goes_away_and_comes_back(postgres_server: PostgresServer) -> None:
    """While PostgreSQL is down the server lives, is not ready and lets known keys in; afterwards it is ready by itself."""
    url = postgres_server.make_database()
    with serving(
        url, "--host", "127.0.0.1", "--require-keys", "--create-key", "--processes", "1", ready=False
    ) as server:
        key = next(line for line in server.process.stdout if '"key"' in line).split('"')[3]  # type: ignore[union-attr]
        headers = {"Authorization": f"Bearer {key}"}
        eventually(lambda: server.client.get("/readyz").status_code == 200)
        assert server.client.get("/v1/plans/x", headers=headers).status_code == 404
        postgres_server.stop(signal.SIGQUIT)
        try:
            assert server.client.get("/readyz").status_code == 503
            assert server.client.get("/healthz").status_code == 200
            # The key is taken; it is the plan that cannot be looked up.
            answer = server.client.get("/v1/plans/x", headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (503, "store_failed")
            assert answer.headers["retry-after"]
        finally:
            postgres_server.start()
        eventually(lambda: server.client.get("/readyz").status_code == 200)
        assert server.client.get("/v1/plans/x", headers=headers).status_code == 404
