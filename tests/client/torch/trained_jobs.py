"""Small jobs that tests train through failures, and the same training in one process."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from replan_client.client import Client
from replan_client.epochs import Epoch
from replan_client.errors import ClientError
from replan_client.torch.limits import Limits
from replan_client.torch.seeds import forward_seed
from replan_client.torch.trainer import Trainer
from replan_client.torch.training import Training
from replan_client.torch.training_result import IterationReport
from torch import Tensor, nn
from torch.distributed import TCPStore

from tests.client.torch.dying import die_when
from tests.client.torch.processes import Child, Here, Processes

WIDTH = 6
BATCH = 4
LIMITS = Limits(
    heartbeat_interval_s=0.2,
    heartbeat_timeout_s=2.0,
    start_timeout_s=60.0,
    link_timeout_s=20.0,
    join_timeout_s=40.0,
    plan_timeout_s=60.0,
    poll_s=0.01,
)
"""Short times, for tests that stop and kill processes."""


class Annealed(nn.Module):
    """Grows what passes it a little with each optimizer step, which it counts in an extra state: nowhere else does it stand."""

    def __init__(self) -> None:
        super().__init__()
        self.num_steps = 0

    def get_extra_state(self) -> dict[str, Any]:
        """The count."""
        return {"steps": torch.tensor(self.num_steps)}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Take another one's count."""
        self.num_steps = int(state["steps"])

    def count(self) -> None:
        """After a step."""
        self.num_steps += 1

    def forward(self, value: Tensor) -> Tensor:
        """Run it."""
        return value * (1 + 0.01 * self.num_steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedJob:
    """A job, its model and its data. Stages and data follow from seeds, so that every process makes the same.

    Parameters
    ----------
    document
        The job document.
    num_pipelines, num_slots, num_stages
        What stands in it.
    num_microbatches
        Of each pipeline, or one a pipeline.
    num_iterations
        Iterations to train.
    dtype
        Of parameters and data.
    """

    document: Mapping[str, Any]
    num_pipelines: int
    num_slots: int
    num_stages: int
    num_microbatches: int | tuple[int, ...]
    num_iterations: int = 12
    dtype: torch.dtype = torch.float64

    @property
    def names(self) -> list[str]:
        """All workers."""
        return [f"{k}/{s}" for k in range(self.num_pipelines) for s in range(self.num_slots)]

    @property
    def microbatches(self) -> list[tuple[int, int]]:
        """All microbatches: home pipeline and number."""
        given = self.num_microbatches
        counts = (given,) * self.num_pipelines if isinstance(given, int) else given
        return [(pipeline, microbatch) for pipeline, count in enumerate(counts) for microbatch in range(count)]

    def build_stage(self, stage: int) -> nn.Module:
        """Module of a stage."""
        with torch.random.fork_rng():
            torch.manual_seed(1000 + stage)
            inner = nn.Sequential(
                nn.Linear(WIDTH, 2 * WIDTH), nn.Tanh(), nn.Dropout(0.1), nn.Linear(2 * WIDTH, WIDTH), Annealed()
            )
        return inner.to(self.dtype)

    def make_optimizer(self, module: nn.Module) -> torch.optim.Optimizer:
        """Optimizer of a stage."""
        optimizer = torch.optim.AdamW(module.parameters(), lr=0.01, weight_decay=0.1)
        counting = [part for part in module.modules() if isinstance(part, Annealed)]
        optimizer.register_step_post_hook(lambda *_: [part.count() for part in counting])
        return optimizer

    def data(self, iteration: int, pipeline: int, microbatch: int) -> tuple[Tensor, Tensor]:
        """Inputs and labels of a microbatch."""
        draw = torch.Generator().manual_seed(iteration * 10_000 + pipeline * 100 + microbatch)
        values = torch.randn(2, BATCH, WIDTH, generator=draw, dtype=self.dtype)
        return values[0], values[1]

    def learning_rate(self, iteration: int) -> float:
        """Falls from iteration to iteration."""
        return 0.01 / (1 + 0.1 * iteration)

    def training(self, **changes: Any) -> Training:
        """What workers are told."""
        fields: dict[str, Any] = {
            "build_stage": self.build_stage,
            "make_optimizer": self.make_optimizer,
            "data": self.data,
            "loss_fn": nn.functional.mse_loss,
            "num_iterations": self.num_iterations,
            "learning_rate": self.learning_rate,
            "seed": 7,
        }
        return Training(**fields | changes)


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What a worker tells the test at its end; plain values, since they go through a pipe."""

    completed: int | None
    parameters: dict[str, Any]
    losses: dict[int, dict[tuple[int, int], float]]
    generations: tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What a test wants of one worker beside training.

    Parameters
    ----------
    dies_at
        Iteration and F in it, counted from 1, in which it kills itself (SIGKILL).
    waits_after
        Iteration after which it waits until the test has set the store's key ``go``.
    pause_s
        Seconds to sleep after each iteration.
    rejoins
        Whether it reports its recovery where it is down.
    dies_when
        A point of :mod:`tests.client.torch.dying`, and how many times it comes there until it kills itself.
    store_port
        Port of the store, where it is not the test's.
    raises
        Where its code raises, and in which iteration: "build" of a stage, whatever the iteration, the "data" of microbatch 0.1,
        in "report", where checkpoints are written, or a "device" that fails in a forward.
    """

    dies_at: tuple[int, int] | None = None
    waits_after: int | None = None
    pause_s: float = 0.0
    rejoins: bool = False
    dies_when: tuple[str, int] | None = None
    store_port: int | None = None
    raises: tuple[str, int] | None = None


class _Act:
    """Carries out a part."""

    def __init__(self, here: Here, part: Part) -> None:
        self._here = here
        self._part = part
        self._store = here.store()
        self._next_iteration = 0
        self._num_forwards = 0

    def module(self, module: nn.Module) -> nn.Module:
        """Count a module's forwards."""
        module.register_forward_hook(lambda *_: self._forward())
        return module

    def build(self, job: TrainedJob, stage: int) -> nn.Module:
        """A stage whose forwards are counted."""
        if self._part.raises is not None and self._part.raises[0] == "build":
            raise KeyError(f"no stage {stage}")
        return self.module(job.build_stage(stage))

    def data(self, job: TrainedJob, iteration: int, pipeline: int, microbatch: int) -> tuple[Tensor, Tensor]:
        """The job's data, but for a microbatch that cannot be read."""
        if (pipeline, microbatch) == (0, 1) and self._part.raises == ("data", iteration):
            raise ValueError("label 17 is out of range\nof 16")
        return job.data(iteration, pipeline, microbatch)

    def completed(self, report: IterationReport) -> None:
        """After each iteration."""
        if self._part.raises == ("report", report.iteration):
            raise OSError("no space left for checkpoints")
        self._next_iteration, self._num_forwards = report.iteration + 1, 0
        self._here.report((report.iteration, report.epoch, report.position.slot))
        if report.iteration == self._part.waits_after:
            while not self._store.check(["go"]):
                time.sleep(0.02)
        time.sleep(self._part.pause_s)

    def _forward(self) -> None:
        self._num_forwards += 1
        if self._part.raises == ("device", self._next_iteration):
            raise torch.AcceleratorError("CUDA error: uncorrectable ECC error encountered")
        if self._part.dies_at == (self._next_iteration, self._num_forwards):
            os.kill(os.getpid(), signal.SIGKILL)


def train_worker(
    here: Here, url: str, job_id: str, job: TrainedJob, part: Part = Part(), limits: Limits = LIMITS
) -> Trained | tuple[str, str]:
    """Train as the worker that ``here.name`` is; reports each iteration. At a client's error its code and message."""
    act = _Act(here, part)
    if part.dies_when is not None:
        die_when(*part.dies_when)
    port = part.store_port
    store = here.store() if port is None else TCPStore("127.0.0.1", port, None, False, timeout=timedelta(seconds=30))
    training = job.training(
        build_stage=lambda stage: act.build(job, stage),
        data=lambda *index: act.data(job, *index),
        on_iteration=act.completed,
    )
    with Client(url, attempt_s=5.0, total_s=20.0) as client:
        trainer = Trainer(client, job_id, here.name, store, training, rejoin=part.rejoins, limits=limits)
        try:
            result = trainer.train()
        except ClientError as error:
            return error.code, str(error)
    return Trained(
        completed=result.completed,
        parameters={
            f"{stage}.{name}": parameter.detach().clone().numpy()
            for stage, module in result.modules.items()
            for name, parameter in module.named_parameters()
        },
        losses={iteration: dict(losses) for iteration, losses in result.losses.items()},
        generations=result.generations,
    )


def _reference(job: TrainedJob) -> tuple[dict[str, Any], dict[int, dict[tuple[int, int], float]]]:
    """Parameters and losses of the same training in one process, with the whole batch."""
    training = job.training()
    modules = [job.build_stage(stage) for stage in range(job.num_stages)]
    optimizers = [job.make_optimizer(module) for module in modules]
    weight = 1 / len(job.microbatches)
    losses: dict[int, dict[tuple[int, int], float]] = {}
    for iteration in range(job.num_iterations):
        losses[iteration] = {}
        for pipeline, microbatch in job.microbatches:
            value, labels = job.data(iteration, pipeline, microbatch)
            for stage, module in enumerate(modules):
                torch.manual_seed(forward_seed(training.seed, iteration, stage, pipeline, microbatch))
                value = module(value)
            loss = training.loss_fn(value, labels)
            losses[iteration][pipeline, microbatch] = loss.item()
            (loss * weight).backward()
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = job.learning_rate(iteration)
            optimizer.step()
            optimizer.zero_grad()
    parameters = {
        f"{stage}.{name}": parameter.detach().numpy()
        for stage, module in enumerate(modules)
        for name, parameter in module.named_parameters()
    }
    return parameters, losses


def largest_difference(job: TrainedJob, results: Sequence[Trained], *, has_all: bool = True) -> float:
    """Largest difference from the reference, relative to the largest element of each parameter and to each loss.

    ``has_all``: whether every stage has to be there.
    """
    expected, losses = _reference(job)
    worst = 0.0
    seen = set()
    for result in results:
        assert result.completed == job.num_iterations
        for name, value in result.parameters.items():
            seen.add(name)
            worst = max(worst, abs(value - expected[name]).max() / abs(expected[name]).max())
        for iteration, found in result.losses.items():
            for microbatch, loss in found.items():
                worst = max(worst, abs(loss / losses[iteration][microbatch] - 1))
    assert seen == set(expected) or not has_all
    return float(worst)


def job_document(
    num_pipelines: int, costs: Sequence[int], *, num_slots: int | None = None, **changes: Any
) -> dict[str, Any]:
    """A job document: unequal stages, one node a worker, and all that migrations are weighed with.

    Parameters
    ----------
    num_pipelines
        Pipelines.
    costs
        Time of F, I and W of each stage, microseconds.
    num_slots
        Slots; as many as stages where not given.
    changes
        Fields that differ.
    """
    slots = num_slots or len(costs)
    return {
        "schema_version": 1,
        "name": "trained",
        "topology": {"nodes": f"n[00-{num_pipelines * slots - 1:02d}]", "gpus_per_node": 1},
        "layout": {"pipeline_parallel": slots, "data_parallel": num_pipelines, "rank_order": "pp-dp"},
        "microbatches": 4,
        "stage_costs": {"parameter_bytes": 1000, "optimizer_state_bytes": 2000, "activation_bytes": 1},
        "stages": [{"forward_us": cost, "input_grad_us": cost, "weight_grad_us": cost} for cost in costs],
        "recovery": {"mean_time_between_failures_s": 3600, "repair_s": 3600, "copy_bytes_per_s": 10**9},
        **changes,
    }


def trained_job(document: Mapping[str, Any], **fields: Any) -> TrainedJob:
    """The job that a document describes."""
    layout, counts = document["layout"], document["microbatches"]
    return TrainedJob(
        document=document,
        num_pipelines=layout["data_parallel"],
        num_slots=layout["pipeline_parallel"],
        num_stages=len(document["stages"]),
        num_microbatches=counts if isinstance(counts, int) else tuple(counts),
        **fields,
    )


def start_all(
    group: Processes,
    url: str,
    job_id: str,
    job: TrainedJob,
    parts: Mapping[str, Part] | None = None,
    *,
    others: Part = Part(),
    limits: Limits = LIMITS,
) -> dict[str, Child]:
    """Register a job and start its workers, some with parts of their own."""
    with Client(url) as client:
        client.register_job(job_id, job.document)
    return {
        name: group.start(name, train_worker, url, job_id, job, (parts or {}).get(name, others), limits)
        for name in job.names
    }


def wait_for_iteration(child: Child, iteration: int) -> None:
    """Wait until a worker has completed an iteration."""
    while child.next_report()[0] < iteration:
        pass


def wait_for_newcomer(group: Processes, url: str, job_id: str, worker: str) -> Epoch:
    """Wait until a worker that was down is live again, and there to be let in."""
    with Client(url) as client:
        epoch = client.current_epoch(job_id)
        while epoch is None or not epoch.is_live(worker):
            epoch = client.current_epoch(job_id, after=None if epoch is None else epoch.epoch, wait_s=30)
    attempt = 0
    while not group.store.check([f"replan/{job_id}/{epoch.epoch}.{attempt}/member/{worker}"]):
        time.sleep(0.02)
    return epoch


def results_of(children: dict[str, Child]) -> list[Trained]:
    """Results of workers that came to the end."""
    found = [child.result() for child in children.values()]
    assert all(isinstance(result, Trained) for result in found), found
    return found
