"""What the service says, and what befalls it, while real workers train."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch, the extra of replan-client, is not installed")

from replan_client.client import Client  # noqa: E402
from replan_client.jobs import Event  # noqa: E402
from replan_client.torch.limits import Limits  # noqa: E402

from tests.client.torch.processes import Child, ChildFailedError, processes  # noqa: E402
from tests.client.torch.trained_jobs import (  # noqa: E402
    Part,
    TrainedJob,
    job_document,
    largest_difference,
    results_of,
    start_all,
    train_worker,
    trained_job,
    wait_for_iteration,
    wait_for_newcomer,
)
from tests.jobs import TIGHT, ServedJob  # noqa: E402
from tests.serving import serving  # noqa: E402

SMALL = trained_job(job_document(2, (3, 2, 1)))
QUICK = Limits(
    heartbeat_interval_s=0.2,
    heartbeat_timeout_s=2.0,
    start_timeout_s=60.0,
    link_timeout_s=5.0,
    join_timeout_s=60.0,
    plan_timeout_s=60.0,
    poll_s=0.01,
)
"""For jobs in which a process stops without hanging up."""
pytestmark = pytest.mark.slow


def reports_of(child: Child) -> list[Any]:
    """All that a worker reports, to its end."""
    reports = []
    while True:
        try:
            reports.append(child.next_report())
        except ChildFailedError:
            return reports


def wait_for_epoch(url: str, job_id: str, number: int) -> None:
    """Wait until a job has come to an epoch."""
    with Client(url) as client:
        assert client.current_epoch(job_id, after=number - 1, wait_s=60) is not None


@pytest.mark.parametrize("rejoins", [False, True])
def test_a_stopped_worker_is_left_behind(url: str, rejoins: bool) -> None:
    """The others go on without it. When it wakes up it is told so, or comes back and copies what it missed."""
    job_id = f"stopped-{rejoins}"
    with processes(limit_s=120) as group:
        children = start_all(
            group,
            url,
            job_id,
            SMALL,
            {"1/1": Part(pause_s=0.1, rejoins=rejoins)},
            others=Part(pause_s=0.1, waits_after=8),
            limits=QUICK,
        )
        sleeper = children.pop("1/1")
        wait_for_iteration(sleeper, 3)
        sleeper.stop()
        wait_for_iteration(children["0/0"], 8)
        sleeper.resume()
        if rejoins:
            wait_for_newcomer(group, url, job_id, "1/1")
            children["1/1"] = sleeper
        else:
            code, message = sleeper.result()
            assert (code, "worker 1/1 is down" in message) == ("worker_excluded", True)
        group.store.set("go", "1")
        results = results_of(children)
    assert largest_difference(SMALL, results) <= 1e-12
    if rejoins:
        assert results[-1].generations[-1].received_from is not None


def test_a_short_stop_is_lived_through(url: str) -> None:
    """A worker that is silent for longer than a message may take, but not long enough to be dead, joins the next attempt."""
    with processes(limit_s=120) as group:
        limits = Limits(
            heartbeat_interval_s=0.2, heartbeat_timeout_s=20.0, link_timeout_s=2.0, join_timeout_s=60.0, poll_s=0.01
        )
        children = start_all(group, url, "short-stop", SMALL, limits=limits)
        wait_for_iteration(children["1/1"], 3)
        children["1/1"].stop()
        time.sleep(4)
        children["1/1"].resume()
        results = results_of(children)
    assert largest_difference(SMALL, results) <= 1e-12
    assert all(result.generations[-1].epoch == 1 for result in results)
    assert any(result.generations[-1].attempt > 0 for result in results)


def test_who_is_reported_dead_leaves_without_loss(url: str) -> None:
    """A worker that somebody reports as failed stops at a boundary; nobody runs an iteration twice for it."""
    with processes(limit_s=120) as group:
        children = start_all(group, url, "reported", SMALL, others=Part(pause_s=0.2))
        wait_for_iteration(children["0/0"], 2)
        with Client(url) as client:
            client.report("reported", Event(kind="node_failed", nodes=("n04",)))
        code, message = children.pop("1/1").result()
        assert code == "worker_excluded", message
        reports = {name: reports_of(child) for name, child in children.items()}
        results = results_of(children)
    assert largest_difference(SMALL, results) <= 1e-12
    for name, found in reports.items():
        iterations = [iteration for iteration, _, _ in found]
        assert iterations == list(range(3 if name == "0/0" else 0, 12))
    assert not any(record.rolled_back for result in results for record in result.generations)


def test_who_is_down_by_its_node_cannot_come_back_by_itself(url: str) -> None:
    """A process that would re-join is told that something else than itself is down."""
    with processes(limit_s=120) as group:
        children = start_all(
            group, url, "by-node", SMALL, {"1/1": Part(pause_s=0.2, rejoins=True)}, others=Part(pause_s=0.2)
        )
        wait_for_iteration(children["0/0"], 2)
        with Client(url) as client:
            client.report("by-node", Event(kind="node_failed", nodes=("n04",)))
        code, message = children.pop("1/1").result()
        assert (code, "cannot come back" in message) == ("worker_excluded", True), message
        assert largest_difference(SMALL, results_of(children)) <= 1e-12


def test_a_lost_stage_ends_training(url: str) -> None:
    """Both workers of a slot die: all others say what is lost, with the service's advice."""
    with processes(limit_s=120) as group:
        parts = {name: Part(dies_at=(3, 2)) for name in ("0/1", "1/1")}
        children = start_all(group, url, "lost", SMALL, parts)
        found = {name: child.result() for name, child in children.items() if name not in parts}
    for code, message in found.values():
        assert code == "stage_lost"
        assert "slots [1]" in message
        assert "checkpoint" in message


def test_a_process_started_anew_before_anybody_noticed_gets_its_state(url: str) -> None:
    """A worker that dies and is started again at once is let in without an epoch of its own."""
    with processes(limit_s=120) as group:
        children = start_all(group, url, "quick", SMALL, {"1/1": Part(dies_at=(3, 2))})
        wait_for_iteration(children["1/1"], 2)
        limits = Limits(heartbeat_interval_s=0.2, heartbeat_timeout_s=30.0, link_timeout_s=20.0, poll_s=0.01)
        children["1/1"].process.join(30)
        children["1/1"] = group.start("1/1", train_worker, url, "quick", SMALL, Part(), limits)
        results = results_of(children)
    assert largest_difference(SMALL, results) <= 1e-12
    (joined,) = results[-2].generations
    assert joined.received_from is not None


def test_the_service_may_be_killed_and_come_back(tmp_path: Path) -> None:
    """Training goes on without it; a failure meanwhile waits for it, and is answered when it is back."""
    store = tmp_path / "replan.db"
    with processes(limit_s=200) as group:
        with serving(store) as server:
            url = str(server.client.base_url)
            children = start_all(
                group, url, "restart", SMALL, {"1/1": Part(dies_at=(8, 2), pause_s=0.1)}, others=Part(pause_s=0.1)
            )
            wait_for_iteration(children["0/0"], 2)
            server.process.kill()
        wait_for_iteration(children["0/0"], 6)
        children.pop("1/1").process.join(60)
        with serving(store, "--port", url.rpartition(":")[2].strip("/")):
            results = results_of(children)
    assert largest_difference(SMALL, results) <= 1e-12
    assert all(result.generations[-1].epoch > 1 for result in results)


def test_a_better_plan_is_taken_up_without_loss(tmp_path: Path) -> None:
    """An improved epoch, found by a server that took the job over, is switched to between two iterations: none is run twice."""
    job = TrainedJob(document=TIGHT, num_pipelines=3, num_slots=4, num_stages=4, num_microbatches=16, num_iterations=20)
    hasty = {"REPLAN_EVENT_DEADLINE_S": "0.001", "REPLAN_IMPROVEMENT_THRESHOLD": "0"}
    never, patient = ({"REPLAN_IMPROVEMENT_DEADLINE_S": deadline} for deadline in ("0.001", "3"))
    store = tmp_path / "replan.db"
    with processes(limit_s=200) as group:
        with serving(store, "--processes", "2", environment=hasty | never) as server:
            url = str(server.client.base_url)
            children = start_all(group, url, "better", job, others=Part(waits_after=6, pause_s=0.3))
            for child in children.values():
                wait_for_iteration(child, 6)
        port = url.rpartition(":")[2].strip("/")
        with serving(store, "--processes", "2", "--port", port, environment=hasty | patient) as server:
            better = ServedJob(server.client, "better").wait_for("improved", after=1)
            group.store.set("go", "1")
            reports = {name: reports_of(child) for name, child in children.items()}
            results = results_of(children)
    assert largest_difference(job, results) <= 1e-12
    for found in reports.values():
        assert [iteration for iteration, _, _ in found] == list(range(7, 20))
        assert [found[0][1], found[-1][1]] == [1, better["epoch"]]
    assert not any(record.rolled_back or record.attempt for result in results for record in result.generations)
