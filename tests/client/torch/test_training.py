"""Real workers that train with a real service while some of them are killed, move and come back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch, the extra of replan-client, is not installed")


from tests.client.torch.processes import processes  # noqa: E402
from tests.client.torch.trained_jobs import (  # noqa: E402
    LIMITS,
    Part,
    Trained,
    job_document,
    largest_difference,
    start_all,
    train_worker,
    trained_job,
    wait_for_iteration,
    wait_for_newcomer,
)

PATIENT = replace(LIMITS, heartbeat_timeout_s=4.0)
"""Nine processes on a busy machine: only who was killed is to be taken for dead."""
UNEQUAL = job_document(3, (3, 2, 1), capacity_bytes=3)
JOBS = {
    "1f1b": UNEQUAL,
    "tight": UNEQUAL | {"capacity_bytes": 2},
    "global": UNEQUAL | {"optimizer": "global"},
    "v": job_document(3, (2, 1, 1, 2), num_slots=2, placement="v"),
}


@pytest.mark.parametrize(
    ("kind", "dtype", "tolerance"),
    [
        pytest.param("1f1b", "float64", 1e-12, id="1f1b"),
        pytest.param("tight", "float64", 1e-12, id="tight", marks=pytest.mark.slow),
        pytest.param("global", "float64", 1e-12, id="global", marks=pytest.mark.slow),
        pytest.param("v", "float64", 1e-12, id="v", marks=pytest.mark.slow),
        pytest.param("1f1b", "float32", 1e-5, id="1f1b-float32", marks=pytest.mark.slow),
        pytest.param("tight", "float32", 1e-5, id="tight-float32", marks=pytest.mark.slow),
        pytest.param("global", "float32", 1e-5, id="global-float32", marks=pytest.mark.slow),
        pytest.param("v", "float32", 1e-5, id="v-float32", marks=pytest.mark.slow),
    ],
)
def test_two_kills_a_migration_and_a_return_change_nothing(url: str, kind: str, dtype: str, tolerance: float) -> None:
    """After twelve iterations with all of that, parameters and losses are those of the undisturbed run."""
    job, job_id = trained_job(JOBS[kind], dtype=getattr(torch, dtype)), f"{kind}-{dtype}"
    second, last = f"1/{job.num_slots - 1}", f"2/{job.num_slots - 1}"
    parts = {name: Part(waits_after=8) for name in job.names}
    parts |= {"0/0": Part(dies_at=(2, 3)), second: Part(dies_at=(5, 2), waits_after=8)}
    with processes(limit_s=150) as group:
        children = start_all(group, url, job_id, job, parts, limits=PATIENT)
        wait_for_iteration(children[last], 6)
        back = group.start("0/0", train_worker, url, job_id, job, Part(rejoins=True), PATIENT)
        epoch = wait_for_newcomer(group, url, job_id, "0/0")
        group.store.set("go", "1")
        survivors = {name: child for name, child in children.items() if name not in ("0/0", second)}
        results: dict[str, Any] = {name: child.result() for name, child in {**survivors, "back": back}.items()}
    assert all(isinstance(result, Trained) for result in results.values()), results
    assert largest_difference(job, list(results.values())) <= tolerance
    moves = [
        record
        for name, result in results.items()
        for record in result.generations
        if name != "back" and str(record.position) != name and record.received_bytes
    ]
    assert moves, "somebody moved, and copied what it had to run"
    (joined, *_) = results["back"].generations
    assert joined.epoch >= epoch.epoch
    assert joined.received_from is not None
    assert joined.first_iteration > 8
