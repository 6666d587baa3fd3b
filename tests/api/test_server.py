"""A real ``replan serve`` process over real HTTP, with the real planner: restarts, kills, loads and bad input."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from api.answers import PlanSummary, WorkerProgram
from planner.deadlock import require_deadlock_free
from planner.formats.documents import parse_document
from planner.formats.plan_file import load_plan
from planner.operation import Worker
from planner.plan_check import check_plan
from planner.program import program_from_dict
from planner.programs import join_programs
from tests.serving import REPLAN, Server, serving

EXAMPLE = Path(__file__).parents[2] / "examples" / "recycle-worked-example.yaml"
JOB: dict[str, Any] = parse_document(EXAMPLE.read_text(), format="yaml")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server with two solver processes for all tests that leave it as it was."""
    with serving(tmp_path_factory.mktemp("store") / "plans.db", "--processes", "2") as running:
        yield running


def is_gone(pid: int) -> bool:
    """Whether a process is no more, or is a zombie that its new parent has not reaped yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def until_gone(pids: list[int]) -> None:
    """Wait until processes are gone; the test's own time limit ends a wait in vain."""
    while not all(is_gone(pid) for pid in pids):
        time.sleep(0.02)


def test_worked_example_plan_and_programs(server: Server) -> None:
    """The worked example with one failed node has period 27 (9 microbatches x 3 on each of 2 workers), proved, and programs."""
    answer = server.post(JOB, "n06")
    assert answer.status_code == 201
    summary = PlanSummary.model_validate(answer.json())
    assert (summary.status, summary.period_us, summary.bound_us) == ("optimal", 27, 27)
    assert summary.failed_workers == ["1/2"]
    location = answer.headers["location"]
    plan = load_plan(server.client.get(location).content)
    check_plan(plan)
    assert plan.plan_id == summary.plan_id
    fetched = []
    for k in range(3):
        for s in range(4):
            program = server.client.get(f"{location}/programs/{Worker(k, s)}")
            if (k, s) == (1, 2):
                assert (program.status_code, program.json()["code"]) == (404, "not_found")
                continue
            document = WorkerProgram.model_validate(program.json())
            assert document.plan_id == summary.plan_id
            # Rank 4k + s is the only GPU of worker k/s.
            assert server.client.get(f"{location}/programs/rank:{4 * k + s}").content == program.content
            fetched.append(program_from_dict(document.model_dump(exclude={"plan_id"})))
    require_deadlock_free(join_programs(fetched, num_slots=4, num_stages=4, microbatches=(6, 6, 6)))


def test_the_service_answers_as_the_command_line_does(server: Server, tmp_path: Path) -> None:
    """The same job, failures and seed give the same plan id over HTTP and from ``replan plan``."""
    command = [REPLAN, "plan", str(EXAMPLE), "--fail", "n05", "--json", "-o", str(tmp_path / "plan.json")]
    printed = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    answer = server.post(JOB, "n05")
    assert answer.json()["plan_id"] == printed["plan_id"]
    assert answer.json().keys() == printed.keys() - {"output"}
    stored = server.client.get(answer.headers["location"]).json()
    assert stored["content"] == json.loads((tmp_path / "plan.json").read_bytes())["content"]


def test_health_answers_while_every_solver_is_busy(server: Server) -> None:
    """Eight clients ask for different plans at once and all get them; health is answered in between."""
    fails = [f"n{node:02d}" for node in (0, 1, 2, 3, 4, 7, 8, 9)]
    with ThreadPoolExecutor(8) as threads:
        answers = [threads.submit(server.post, JOB, fail) for fail in fails]
        health = server.client.get("/healthz")
        found = [answer.result() for answer in answers]
    assert health.status_code == 200
    assert [answer.status_code for answer in found] == [201] * 8
    assert len({answer.json()["plan_id"] for answer in found}) == 8


def changed(**changes: object) -> dict[str, object]:
    """The example's job with some fields changed."""
    return JOB | changes


@pytest.mark.parametrize(
    ("fail", "job", "status", "code", "part"),
    [
        (["n12"], JOB, 422, "failure_invalid", "n12"),
        (["n[00"], JOB, 422, "hostlist_malformed", "n[00"),
        (["rank:12"], JOB, 422, "failure_invalid", "12"),
        (["worker:3/0"], JOB, 422, "failure_invalid", "3/0"),
        (["n00", "n04", "n08"], JOB, 409, "stage_lost", "slots [0]"),
        ([], changed(colour="red"), 422, "job_invalid", "colour"),
        ([], changed(microbatches="six"), 422, "job_invalid", "microbatches"),
        ([], changed(stage_costs=JOB["stage_costs"] | {"forward_us": -1}), 422, "job_invalid", "forward_us"),
        ([], changed(layout=JOB["layout"] | {"data_parallel": 4}), 422, "job_invalid", "16"),
        ([], changed(layout=JOB["layout"] | {"rank_order": "pp-pp"}), 422, "job_invalid", "pp-pp"),
        (
            [],
            changed(stage_costs=JOB["stage_costs"] | {"activation_bytes": 10}, capacity_bytes=4),
            409,
            "memory_too_small",
            "6 bytes are missing",
        ),
        (["n00"], changed(optimizer_state="sharded"), 409, "optimizer_shard_lost", "0/0"),
    ],
)
def test_unsound_requests_get_their_code(
    server: Server, fail: list[str], job: object, status: int, code: str, part: str
) -> None:
    """Each unsound job or failure set is a problem with its own code and names what is wrong."""
    answer = server.post(job, *fail)
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert part in answer.json()["detail"]


@pytest.mark.parametrize("degrade", ["worker:1/2=0", "worker:1/2=1.5", "worker:1/2=nan", "worker:1/2"])
def test_speeds_out_of_range_are_refused(server: Server, degrade: str) -> None:
    """A speed factor outside (0, 1], or none, is refused with the text that was given."""
    answer = server.client.post("/v1/plans", json={"job": JOB, "failures": {"degrade": [degrade]}})
    assert (answer.status_code, answer.json()["code"]) == (422, "failure_invalid")
    assert "worker:1/2" in answer.json()["detail"]


def test_a_body_of_200_megabytes_is_cut_off(server: Server) -> None:
    """A body far over the limit is refused after the limit, declared or in chunks, and the server goes on."""
    for chunked in (True, False):
        sent = 0

        def chunks() -> Iterator[bytes]:
            nonlocal sent
            for _ in range(200):
                sent += 2**20
                yield b" " * 2**20

        headers = {"Content-Type": "application/json"} | ({} if chunked else {"Content-Length": str(200 * 2**20)})
        answer = httpx2.post(server.client.base_url.join("/v1/plans"), content=chunks(), headers=headers, timeout=60)
        assert (answer.status_code, answer.json()["code"]) == (413, "document_limit")
        assert sent < 100 * 2**20
    assert server.client.get("/healthz").status_code == 200


def test_a_plan_outlives_a_killed_server_and_its_children_do_not(tmp_path: Path) -> None:
    """After kill -9 the solver processes are gone, and the next server on the store serves the acknowledged plan."""
    store = tmp_path / "plans.db"
    with serving(store) as first:
        answer = first.post(JOB, "n06")
        content = first.client.get(answer.headers["location"]).content
        children = first.children()
        assert children
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
        until_gone(children)
    with serving(store, ready=False) as second:
        assert second.client.get(answer.headers["location"]).content == content
        again = second.post(JOB, "n06")
        assert (again.status_code, again.content) == (200, answer.content)


def test_stops_cleanly_and_replaces_a_killed_solver(tmp_path: Path) -> None:
    """A killed solver process is replaced; on SIGTERM the server ends with status 0 and leaves no process behind."""
    with serving(tmp_path / "plans.db", "--processes", "1") as server:
        (child,) = server.children()
        os.kill(child, signal.SIGKILL)
        until_gone([child])
        assert server.post(JOB, "n06").status_code == 201
        children = server.children()
        assert child not in children
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait() == 0
        assert all(is_gone(pid) for pid in children)


@pytest.mark.slow
def test_says_why_it_cannot_start(tmp_path: Path) -> None:
    """A port in use and a store that cannot be opened are told in words, with an exit status of their own."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [REPLAN, "serve", "--port", str(port), "--store", str(tmp_path / "plans.db"), "--json"]
        busy = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (busy.returncode, json.loads(busy.stderr)["code"]) == (7, "listen_failed")
    assert str(port) in json.loads(busy.stderr)["detail"]
    command = [REPLAN, "serve", "--port", "0", "--store", str(tmp_path / "missing" / "plans.db"), "--json"]
    lost = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (lost.returncode, json.loads(lost.stderr)["code"]) == (7, "store_failed")
    assert busy.stdout == lost.stdout == ""
