"""Small models trained by several processes, and the same training in one: what tests of the executor compare.

Children import this module: it knows nothing of the planner, whose libraries take long to load.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from replan_client.operation import Worker, parse_worker
from replan_client.program import Program, parse_program
from replan_client.torch.links import Links
from replan_client.torch.module_compute import ModuleCompute
from replan_client.torch.runner import IterationResult, Runner
from replan_client.torch.seeds import forward_seed
from replan_client.torch.shapes import agree_on_specs
from replan_client.torch.spec import TensorSpec
from torch import nn

from tests.client.torch.processes import Here, Processes

Arrays = dict[str, npt.NDArray[Any]]
"""Parameters and buffers of one stage by name."""

BATCH = 3
"""Samples in a microbatch."""
WIDTHS = (5, 7, 6, 9, 4, 8, 3, 6, 2)
"""Features before each stage and after the last: no two neighbours are equal."""


@dataclass(frozen=True, kw_only=True)
class PlannedJob:
    """A job's plan: programs by worker as text, and the peaks that the plan says."""

    num_stages: int
    slot_stages: tuple[tuple[int, ...], ...]
    microbatches: tuple[int, ...]
    programs: Mapping[str, str] = field(hash=False)
    peak_in_flight: tuple[int, ...]
    """For each slot, most microbatches between F and the end of W."""
    peak_before_input_grad: tuple[int, ...]
    """For each slot, most microbatches between F and the end of I."""

    @property
    def positions(self) -> tuple[Worker, ...]:
        """Live workers."""
        return tuple(parse_worker(name) for name in self.programs)

    def program(self, worker: Worker) -> Program:
        """Program of one worker."""
        return parse_program(self.programs[str(worker)])


def build_stage(stage: int, dtype: torch.dtype) -> nn.Module:
    """A stage's module, the same wherever it is built; neighbours have other widths, and one in three drops out."""
    torch.manual_seed(100 + stage)
    wide, out = WIDTHS[stage], WIDTHS[stage + 1]
    layers: list[nn.Module] = [nn.Linear(wide, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, out)]
    if stage % 3 == 1:
        layers.insert(2, nn.Dropout(0.3))
    return nn.Sequential(*layers).to(dtype)


def make_optimizer(module: nn.Module) -> torch.optim.Optimizer:
    """An optimizer with a state, so that a wrong step shows later too."""
    return torch.optim.AdamW(module.parameters(), lr=0.01, weight_decay=0.1)


def loss_fn(output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean squared error."""
    return nn.functional.mse_loss(output, labels)


def make_data(num_stages: int, dtype: torch.dtype) -> Callable[[int, int, int], tuple[torch.Tensor, torch.Tensor]]:
    """Random inputs and labels, told apart by iteration, pipeline and microbatch."""

    def data(iteration: int, pipeline: int, microbatch: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(1_000_000 * iteration + 1_000 * pipeline + microbatch)
        inputs = torch.randn(BATCH, WIDTHS[0], generator=generator, dtype=dtype)
        return inputs, torch.randn(BATCH, WIDTHS[num_stages], generator=generator, dtype=dtype)

    return data


def arrays_of(module: nn.Module) -> Arrays:
    """A module's parameters and buffers."""
    return {name: value.detach().clone().numpy() for name, value in module.state_dict().items()}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one worker, or the one process of the reference, ends with."""

    stages: dict[int, Arrays]
    losses: tuple[dict[tuple[int, int], float], ...]
    """Of each iteration."""
    iterations: tuple[IterationResult, ...] = ()


def reference(
    num_stages: int, microbatches: Sequence[int], num_iterations: int, dtype: torch.dtype, seed: int = 0
) -> Outcome:
    """The same training in one process: the whole batch of each iteration, one loss, no pipeline."""
    modules = [build_stage(v, dtype) for v in range(num_stages)]
    optimizers = [make_optimizer(module) for module in modules]
    data, losses = make_data(num_stages, dtype), []
    for iteration in range(num_iterations):
        found = {}
        for k, count in enumerate(microbatches):
            for j in range(count):
                value, labels = data(iteration, k, j)
                for v, module in enumerate(modules):
                    torch.manual_seed(forward_seed(seed, iteration, v, k, j))
                    value = module(value)
                found[k, j] = loss_fn(value, labels)
        (sum(found.values(), torch.zeros((), dtype=dtype)) / len(found)).backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        losses.append({key: float(loss.detach()) for key, loss in found.items()})
    return Outcome(stages={v: arrays_of(module) for v, module in enumerate(modules)}, losses=tuple(losses))


def make_compute(
    store: dist.Store,
    job: PlannedJob,
    slot: int,
    dtype: torch.dtype,
    *,
    modules: Mapping[int, nn.Module] | None = None,
    limit_s: float = 60,
) -> ModuleCompute:
    """The stages of a slot, or other modules in their place."""
    if modules is None:
        modules = {v: build_stage(v, dtype) for v in job.slot_stages[slot]}
    specs = agree_on_specs(
        dist.PrefixStore("specs", store),
        modules,
        TensorSpec(shape=(BATCH, WIDTHS[0]), dtype=dtype),
        num_stages=job.num_stages,
        timeout_s=limit_s,
    )
    return ModuleCompute(
        modules,
        {v: make_optimizer(module) for v, module in modules.items()},
        specs,
        num_stages=job.num_stages,
        data=make_data(job.num_stages, dtype),
        loss_fn=loss_fn,
    )


def train_worker(here: Here, job: PlannedJob, num_iterations: int, dtype_name: str) -> Outcome:
    """Train as one worker, in a child of its own."""
    me, dtype = parse_worker(here.name), getattr(torch, dtype_name)
    store = here.store()
    modules = {v: build_stage(v, dtype) for v in job.slot_stages[me.slot]}
    compute = make_compute(store, job, me.slot, dtype, modules=modules, limit_s=here.limit_s)
    program = job.program(me)
    with Links(dist.PrefixStore("links", store), job.positions, me, timeout_s=here.limit_s) as links:
        runner = Runner(links, compute)
        results = tuple(runner.run_iteration(iteration, program) for iteration in range(num_iterations))
        assert compute.num_held == 0
        # Nobody leaves while somebody may still wait for it.
        links.barrier()
    return Outcome(
        stages={v: arrays_of(module) for v, module in modules.items()},
        losses=tuple(result.losses for result in results),
        iterations=results,
    )


def train(group: Processes, job: PlannedJob, num_iterations: int, dtype: torch.dtype) -> dict[Worker, Outcome]:
    """Train with one process a live worker."""
    name = str(dtype).removeprefix("torch.")
    children = group.start_all(job.positions, train_worker, job, num_iterations, name)
    return {parse_worker(child.name): child.result() for child in children}


def largest_difference(found: Mapping[str, Any], expected: Mapping[str, Any]) -> float:
    """Largest difference of two stages' arrays, relative to the largest element of each."""
    assert set(found) == set(expected)
    return max(
        float(np.abs(found[name] - value).max() / max(np.abs(value).max(), 1e-300)) for name, value in expected.items()
    )
