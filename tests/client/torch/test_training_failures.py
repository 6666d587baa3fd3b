"""Real workers whose trained code raises: that ends training for all, and names worker and error."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch, the extra of replan-client, is not installed")

from replan_client.client import Client  # noqa: E402

from tests.client.torch.processes import ChildFailedError, processes  # noqa: E402
from tests.client.torch.trained_jobs import (  # noqa: E402
    LIMITS,
    Part,
    job_document,
    largest_difference,
    results_of,
    start_all,
    trained_job,
)

SMALL = trained_job(job_document(3, (3, 2, 1)))
PATIENT = replace(LIMITS, heartbeat_timeout_s=60.0)
"""Where nobody dies, nobody is to be taken for dead, however busy the machine."""


def require_nobody_reported(url: str, job_id: str) -> None:
    """Check that the service was told of no failure: the job is as it was registered."""
    with Client(url) as client:
        epoch = client.current_epoch(job_id)
    assert epoch is not None
    assert (epoch.epoch, epoch.failed_workers) == (1, ())


def test_data_that_cannot_be_read_ends_training_for_all(url: str) -> None:
    """Whoever is to run the microbatch says so, all others name it; no peer tries after it, and nobody is reported as dead."""
    with processes(limit_s=120) as group:
        children = start_all(group, url, "bad-data", SMALL, others=Part(raises=("data", 3)), limits=PATIENT)
        found: dict[str, Any] = {name: child.result() for name, child in children.items()}
    failed = {name for name, (code, _) in found.items() if code == "trained_code_failed"}
    others = {name for name, (code, _) in found.items() if code == "peer_failed"}
    # Inputs are read by who runs the first stage of microbatch 0.1, labels by who runs the last.
    assert 1 <= len(failed) <= 2
    assert failed | others == set(SMALL.names)
    error = "failed in iteration 3: ValueError: label 17 is out of range of 16 ("
    for name in failed:
        assert f"worker {name} {error}" in found[name][1]
    (named,) = {
        message.partition(error)[0].rpartition(" ")[0].rpartition(" ")[2] for _, message in (found[n] for n in others)
    }
    assert named in failed
    for name in others:
        message = found[name][1]
        assert message.startswith(f"training of job 'bad-data' ended: worker {named} {error}")
        assert "trained_jobs.py:" in message
        assert "in data)" in message
        assert "start anew from a checkpoint, with an empty store" in message
    require_nobody_reported(url, "bad-data")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("raises", "error"),
    [
        (("build", 0), "failed before its first iteration: KeyError: 'no stage 1' ("),
        (("report", 4), "failed in iteration 4: OSError: no space left for checkpoints ("),
        # The others have completed all iterations by then, and wait for it.
        (("report", 11), "failed in iteration 11: OSError: no space left for checkpoints ("),
    ],
)
def test_one_worker_whose_code_raises_ends_all(url: str, raises: tuple[str, int], error: str) -> None:
    """Wherever it raises, before the first iteration or behind the last."""
    job_id = f"raises-{raises[0]}-{raises[1]}"
    with processes(limit_s=120) as group:
        children = start_all(group, url, job_id, SMALL, {"1/1": Part(raises=raises)}, limits=PATIENT)
        code, message = children.pop("1/1").result()
        assert code == "trained_code_failed"
        assert f"worker 1/1 {error}" in message
        for child in children.values():
            code, message = child.result()
            assert code == "peer_failed"
            assert f"worker 1/1 {error}" in message
    require_nobody_reported(url, job_id)


@pytest.mark.slow
def test_a_device_that_fails_is_worked_around(url: str) -> None:
    """It is its node's fault: the process ends with PyTorch's own error, the others take over and come to the right numbers."""
    with processes(limit_s=120) as group:
        children = start_all(group, url, "device", SMALL, {"1/1": Part(raises=("device", 3))})
        with pytest.raises(ChildFailedError, match="uncorrectable ECC error"):
            children.pop("1/1").result()
        results = results_of(children)
    assert largest_difference(SMALL, results) <= 1e-12
