"""Real workers that die at each point of coming together, and at the end."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch, the extra of replan-client, is not installed")

from replan_client.client import Client  # noqa: E402
from replan_client.program import Compute  # noqa: E402
from torch.distributed import TCPStore  # noqa: E402

from tests.client.torch.processes import Child, ChildFailedError, Here, processes  # noqa: E402
from tests.client.torch.trained_jobs import (  # noqa: E402
    Part,
    job_document,
    largest_difference,
    results_of,
    start_all,
    train_worker,
    trained_job,
    wait_for_iteration,
    wait_for_newcomer,
)

pytestmark = pytest.mark.slow
SMALL = trained_job(job_document(2, (3, 2, 1), recovery={}))
"""Nobody moves in it, so both workers of each slot stay there."""
MOVING = trained_job(job_document(2, (3, 2, 1)))


def died(child: Child) -> bool:
    """Whether a worker was killed; waits for its end."""
    try:
        child.result()
    except ChildFailedError as error:
        return "exit code -9" in str(error)
    return False


@pytest.mark.parametrize(
    ("worker", "point", "count"),
    [
        # The first generation: peers take the state of pipeline 0.
        ("0/2", "member", 1),
        ("1/2", "ready", 1),
        ("0/2", "give", 1),
        ("1/2", "take", 1),
        ("0/2", "copied", 1),
        ("1/2", "begin", 1),
        ("0/2", "end", 1),
        # The one after another worker's death: a second failure while the first is worked around.
        ("0/2", "member", 2),
        ("1/2", "ready", 2),
        ("0/2", "copied", 2),
        ("0/2", "begin", 2),
    ],
)
def test_a_death_at_any_point_is_lived_through(url: str, worker: str, point: str, count: int) -> None:
    """Whatever it was about to do, the others come to the end with the right numbers."""
    parts = {worker: Part(dies_when=(point, count))}
    if count > 1:
        parts["1/1"] = Part(dies_at=(3, 2))
    with processes(limit_s=150) as group:
        children = start_all(group, url, f"{worker.replace('/', '.')}-{point}-{count}", SMALL, parts)
        for name in parts:
            assert died(children.pop(name))
        results = results_of(children)
    assert largest_difference(SMALL, results) <= 1e-12


@pytest.mark.parametrize(("worker", "point"), [("1/0", "give"), ("0/0", "take"), ("0/0", "copied"), ("0/0", "begin")])
def test_a_death_while_one_comes_back_is_lived_through(url: str, worker: str, point: str) -> None:
    """The returning worker, or the donor that it copies from, dies in the middle; then it comes back once more."""
    job = trained_job(job_document(3, (3, 2, 1), recovery={}))
    job_id = f"back-{worker.replace('/', '.')}-{point}"
    # 1/0 gives nothing at the start: only pipeline 0 does, and 0/0 is dead when it is asked for the first time.
    parts = {"0/0": Part(dies_at=(2, 2)), "1/0": Part(waits_after=6)}
    if worker == "1/0":
        parts["1/0"] = Part(waits_after=6, dies_when=(point, 1))
    first = Part(rejoins=True, dies_when=(point, 1)) if worker == "0/0" else Part(rejoins=True)
    with processes(limit_s=200) as group:
        children = start_all(group, url, job_id, job, parts, others=Part(waits_after=6))
        wait_for_iteration(children["2/2"], 6)
        children["0/0"] = group.start("0/0", train_worker, url, job_id, job, first)
        wait_for_newcomer(group, url, job_id, "0/0")
        group.store.set("go", "1")
        assert died(children.pop(worker))
        results = results_of(children)
    assert largest_difference(job, results) <= 1e-12


def test_workers_without_microbatches_are_lived_with(url: str) -> None:
    """Pipelines that compute nothing keep step with the others, and are as good as any where others die."""
    job = trained_job(job_document(3, (3, 2, 1), recovery={}, microbatches=[1, 0, 0]))
    with processes(limit_s=150) as group:
        children = start_all(group, url, "idle", job, others=Part(pause_s=0.1))
        with Client(url) as client:
            programs = [client.program("idle", 1, name).program for name in job.names]
        loaded = [any(isinstance(i, Compute) for i in program.instructions) for program in programs]
        assert loaded.count(True) == 3
        for name, iteration in (("0/1", 3), ("1/0", 5), ("0/0", 7)):
            wait_for_iteration(children[name], iteration)
            children.pop(name).kill()
        results = results_of(children)
    assert largest_difference(job, results) <= 1e-12


def test_a_state_is_taken_from_a_worker_that_moves_away(url: str) -> None:
    """The only holder of a slot's state moves to another slot in the epoch in which somebody comes to its place."""
    with processes(limit_s=150) as group:
        parts = {"0/0": Part(dies_at=(2, 2)), "1/1": Part(dies_at=(5, 2))}
        children = start_all(group, url, "away", MOVING, parts, others=Part(waits_after=8))
        # 0/2 stands at 0/0, 1/2 alone in slot 2.
        wait_for_iteration(children["1/2"], 8)
        children["0/0"] = group.start("0/0", train_worker, url, "away", MOVING, Part(rejoins=True))
        epoch = wait_for_newcomer(group, url, "away", "0/0")
        group.store.set("go", "1")
        children.pop("1/1")
        results = results_of(children)
    # The service sends 1/2 to 1/1 and 0/2 home, and knows nobody that 0/2 could copy from.
    assert epoch.moved == {"1/2": "1/1"}
    assert [m.copy_from for m in epoch.migrations if m.worker == "0/2"] == [None]
    assert largest_difference(MOVING, results) <= 1e-12


def host_store(here: Here) -> None:
    """Host a store until killed."""
    store = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False, timeout=timedelta(seconds=30))
    here.report(store.port)
    while True:
        store.wait(["never"], timedelta(seconds=1000))


def test_a_store_that_dies_ends_training_with_its_name(url: str) -> None:
    """Nobody hangs when the store is gone: all say so."""
    with processes(limit_s=100) as group:
        host = group.start("store", host_store)
        part = Part(store_port=host.next_report(), pause_s=0.3)
        children = start_all(group, url, "store", SMALL, others=part)
        wait_for_iteration(children["0/0"], 2)
        host.kill()
        found: list[Any] = [child.result() for child in children.values()]
    assert [code for code, _ in found] == ["rendezvous_failed"] * 6
    assert all("store of job 'store' does not answer" in message for _, message in found)
