"""Precomputing on a real Ray cluster: one that works, one whose solver processes are killed, one that is lost."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from api.precompute.ray_executor import RayExecutor
from api.store import Store
from planner.errors import OptionError
from planner.formats.packed_plan import unpack_plan
from planner.plan_check import check_plan
from tests.precomputing import LONG_JOB, templates
from tests.ray_cluster import RayCluster, ray_cluster
from tests.serving import REPLAN, serving


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    """A cluster with two CPUs."""
    with ray_cluster() as running:
        yield running


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """The file of a job whose searches take all of their time."""
    path = tmp_path / "long.json"
    path.write_text(json.dumps(LONG_JOB))
    return path


def start(job: Path, store: Path, cluster: RayCluster, **variables: str) -> subprocess.Popen[str]:
    """Start precomputing for up to two failures, 15 keys of 0.4 s each, on a cluster."""
    command = [
        REPLAN,
        "precompute",
        str(job),
        "--tolerance",
        "2",
        "--deadline",
        "400ms",
        "--store",
        str(store),
        "--json",
    ]
    environment = dict(cluster.environment) | variables
    pipe = subprocess.PIPE
    return subprocess.Popen([*command, "--ray", cluster.address], stdout=pipe, stderr=pipe, text=True, env=environment)


def eventually(is_so: Callable[[], bool]) -> None:
    """Wait until something is so; the test's own time limit ends a wait in vain."""
    while not is_so():
        time.sleep(0.05)


def result(process: subprocess.Popen[str]) -> tuple[int, dict[str, Any], str]:
    """Exit status, the JSON that was printed last, and all of standard error."""
    out, error = process.communicate()
    return process.returncode, json.loads(out or error[error.index("{") :]), error


@pytest.mark.slow
def test_a_cluster_makes_every_template_though_a_solver_process_is_killed(
    cluster: RayCluster, job: Path, tmp_path: Path
) -> None:
    """All 15 keys are planned and pass every check here; the process that was killed over one of them is replaced."""
    path = tmp_path / "replan.db"
    with start(job, path, cluster) as process:
        eventually(lambda: path.exists() and len(templates(path)) >= 3)
        os.kill(cluster.solvers()[0], signal.SIGKILL)
        status, made, error = result(process)
    assert (status, made["done"], made["failed"]) == (0, 15, 0), error
    assert "ended over a request" in error
    eventually(lambda: not cluster.solvers())
    store = Store(str(path))
    for key in templates(path):
        record = store.template(made["job_sha256"], key)
        assert record is not None
        check_plan(unpack_plan(record.content))
    store.close()


@pytest.mark.slow
def test_a_server_precomputes_on_a_cluster(cluster: RayCluster, tmp_path: Path) -> None:
    """An operation of the server is done by the cluster's solver processes, which are gone when the server is."""
    variables = dict(cluster.environment) | {"REPLAN_RAY_ADDRESS": cluster.address}
    with serving(tmp_path / "replan.db", environment=variables) as server:
        registered = server.client.put("/v1/jobs/long", json={"job": LONG_JOB, "tolerance": 1})
        assert registered.status_code == 201, registered.text
        operation = server.client.post("/v1/jobs/long/precompute", json={"deadline_s": 0.4}).json()
        seen = set[int]()
        while operation["state"] in ("queued", "running"):
            seen.update(cluster.solvers())
            operation = server.client.get(f"/v1/operations/{operation['id']}").json()
        assert (operation["state"], operation["total"], operation["failed"]) == ("done", 5, 0)
        assert seen
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait() == 0
    eventually(lambda: not cluster.solvers())
    assert len(templates(tmp_path / "replan.db")) == 5


@pytest.mark.slow
def test_a_cluster_that_does_not_know_the_token_is_no_cluster(cluster: RayCluster, job: Path, tmp_path: Path) -> None:
    """Another token ends the command with a code of its own, and nothing is planned."""
    with start(job, tmp_path / "replan.db", cluster, RAY_AUTH_TOKEN="0" * 64) as process:
        status, problem, error = result(process)
    assert (status, problem["code"]) == (6, "cluster_unavailable"), error
    assert templates(tmp_path / "replan.db") == {}


@pytest.mark.slow
def test_a_cluster_lost_in_the_middle_ends_the_run_and_loses_nothing(job: Path, tmp_path: Path) -> None:
    """The command says that the cluster is gone and starts none of its own; what was made is kept."""
    path = tmp_path / "replan.db"
    with ray_cluster() as lost, start(job, path, lost) as process:
        eventually(lambda: path.exists() and len(templates(path)) >= 3)
        lost.stop()
        before = templates(path)
        status, problem, error = result(process)
    assert (status, problem["code"]) == (6, "cluster_unavailable"), error
    assert before.items() <= templates(path).items()
    assert len(templates(path)) < 15


def test_only_addresses_of_a_cluster_s_client_server_are_taken() -> None:
    """Other forms, some of which would start a cluster here, are refused before Ray is even looked for."""
    for address in ("local", "auto", "", "127.0.0.1:6379", "ray://", "ray://host", "ray://host:1/x", "ray://u@host:1"):
        with pytest.raises(OptionError):
            asyncio.run(RayExecutor.connect(address))
