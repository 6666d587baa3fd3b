"""One worker of the demonstration: a trainer in a process of its own."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import Any

from torch.distributed import TCPStore

from replan_client.client import Client
from replan_client.torch.demo.child import Child
from replan_client.torch.demo.errors import DemoFailedError
from replan_client.torch.demo.messages import Completed, InForward, Trained
from replan_client.torch.demo.scenario import Kill, Scenario
from replan_client.torch.demo.task import make_training
from replan_client.torch.limits import Limits
from replan_client.torch.trainer import Trainer
from replan_client.torch.training_result import GenerationRecord, IterationReport


class _Part:
    """What a worker does beside training: tells of it, waits to be killed, waits for whoever comes back."""

    def __init__(self, child: Child, scenario: Scenario, kill: Kill | None) -> None:
        self._child = child
        self._kill = kill
        self._waits_after = None if scenario.comes_back is None else scenario.comes_back.iteration
        self._next_iteration = 0
        self._num_forwards = 0

    def forward(self) -> None:
        """In the middle of each F."""
        self._num_forwards += 1
        kill = self._kill
        if kill is not None and (kill.iteration, kill.forward) == (self._next_iteration, self._num_forwards):
            self._child.tell(InForward(iteration=kill.iteration, forward=kill.forward))
            self._child.hear(None)

    def completed(self, report: IterationReport) -> None:
        """After each iteration."""
        self._next_iteration, self._num_forwards = report.iteration + 1, 0
        self._child.tell(
            Completed(
                iteration=report.iteration,
                epoch=report.epoch,
                position=report.position,
                losses=dict(report.losses),
                events=report.events,
            )
        )
        if report.iteration == self._waits_after:
            # Until all may go on. Run again after a roll back, this iteration is waited for no second time.
            self._waits_after = None
            self._child.hear(None)


def train_worker(
    child: Child, scenario: Scenario, url: str, job_id: str, port: int, limits: Limits, kill: Kill | None
) -> Trained:
    """Train as the worker that ``child.name`` is."""
    part = _Part(child, scenario, kill)
    training = make_training(scenario, on_iteration=part.completed, on_forward=None if kill is None else part.forward)
    store = TCPStore("127.0.0.1", port, None, False, timeout=timedelta(seconds=limits.plan_timeout_s))
    with Client(url) as client:
        # Whoever is taken for dead, because this machine is too busy, comes back by itself.
        result = Trainer(client, job_id, child.name, store, training, rejoin=True, limits=limits).train()
    if result.completed not in (None, scenario.num_iterations):
        raise DemoFailedError(f"worker {child.name} ended after {result.completed} iterations")
    return Trained(
        completed=result.completed,
        parameters={
            f"{stage}.{name}": parameter.detach().clone().numpy()
            for stage, module in result.modules.items()
            for name, parameter in module.named_parameters()
        },
        generations=tuple(map(_plain, result.generations)),
    )


def _plain(record: GenerationRecord) -> dict[str, Any]:
    """A record in values that need no torch to be read."""
    donor = record.received_from
    return asdict(record) | {"position": str(record.position), "received_from": None if donor is None else str(donor)}
