"""A worker that comes when training is over."""

from __future__ import annotations

import logging

import pytest

torch = pytest.importorskip("torch", reason="torch, the extra of replan-client, is not installed")

from replan_client.client import Client  # noqa: E402
from replan_client.torch.failure import WorkerFailure  # noqa: E402
from replan_client.torch.rendezvous import Rendezvous  # noqa: E402
from replan_client.torch.trainer import Trainer  # noqa: E402
from replan_client.torch.training import Training  # noqa: E402
from replan_client.torch.training_errors import PeerFailedError, RendezvousError  # noqa: E402
from torch.distributed import PrefixStore, TCPStore  # noqa: E402


def trainer(client: Client, num_iterations: int, ending: int | WorkerFailure = 30) -> Trainer:
    """Worker 0/0 of a job that ended, after 30 iterations if nothing else is said."""
    store = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    Rendezvous(PrefixStore("replan/job", store), "0/1").mark_finished(ending)
    training = Training(
        build_stage=lambda _: torch.nn.Linear(1, 1),
        make_optimizer=lambda module: torch.optim.SGD(module.parameters()),
        data=lambda *_: (torch.ones(1, 1), torch.ones(1, 1)),
        loss_fn=torch.nn.functional.mse_loss,
        num_iterations=num_iterations,
    )
    return Trainer(client, "job", "0/0", store, training)


def test_who_comes_too_late_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """It ends without a state, and says so."""
    with Client("http://127.0.0.1:9") as client, caplog.at_level(logging.WARNING, "replan_client"):
        result = trainer(client, 30).train()
    assert (result.completed, dict(result.modules)) == (None, {})
    assert "job job: training had ended before 0/0 joined" in caplog.text


def test_a_store_of_shorter_training_is_refused() -> None:
    """More iterations with the store of before would be none at all."""
    with (
        Client("http://127.0.0.1:9") as client,
        pytest.raises(RendezvousError, match=r"ended after 30 iterations; expected 40 .*empty store"),
    ):
        trainer(client, 40).train()


def test_a_store_of_training_that_failed_is_refused() -> None:
    """A worker that is started again after the trained code failed is told what failed, and does not wait for the others."""
    failure = WorkerFailure(worker="1/0", iteration=7, error="ValueError: bad label", place="train.py:41 in data")
    with (
        Client("http://127.0.0.1:9") as client,
        pytest.raises(
            PeerFailedError, match=r"worker 1/0 failed in iteration 7: ValueError: bad label \(train.py:41 in data\)"
        ),
    ):
        trainer(client, 30, failure).train()
