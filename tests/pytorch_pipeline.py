"""PyTorch's own pipelining run on a schedule file, by one process a rank on gloo, and the gradients that it should reach.

Every microbatch has inputs and labels by its home pipeline and number, every stage parameters by its number, so that any
process can make them.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

from tests.client.torch.processes import Here, processes

WIDTH = 4
ROWS = 2
"""Rows of one microbatch."""

LIMIT_S = 60.0

Gradients = dict[int, list[torch.Tensor]]
"""Gradients of each stage's parameters."""


def make_stage(stage: int) -> nn.Module:
    """Parameters of a stage, the same in every process."""
    module = nn.Sequential(nn.Linear(WIDTH, WIDTH, dtype=torch.float64), nn.Tanh())
    draw = torch.Generator().manual_seed(1000 + stage)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw, dtype=torch.float64) / 2)
    return module


def batch(microbatches: Sequence[tuple[int, int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and labels of microbatches, given by home pipeline and number, one below the other."""
    parts = []
    for home, j in microbatches:
        draw = torch.Generator().manual_seed(100 * home + j)
        parts.append(torch.randn((2, ROWS, WIDTH), generator=draw, dtype=torch.float64))
    whole = torch.cat(parts, dim=1)
    return whole[0], whole[1]


def loss_of(output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean over the rows."""
    return ((output - labels) ** 2).mean()


def reference(num_stages: int, microbatches: Sequence[tuple[int, int]]) -> Gradients:
    """Gradients of the mean loss over these microbatches, from one process that runs all at once."""
    stages = [make_stage(v) for v in range(num_stages)]
    inputs, labels = batch(microbatches)
    loss_of(nn.Sequential(*stages)(inputs), labels).backward()
    return {v: [p.grad for p in module.parameters() if p.grad is not None] for v, module in enumerate(stages)}


def run_file(path: Path, slot_stages: Sequence[Sequence[int]], microbatches: Sequence[tuple[int, int]]) -> Gradients:
    """Gradients that PyTorch reaches with a schedule file.

    Parameters
    ----------
    path
        The schedule file.
    slot_stages
        Stages of each rank.
    microbatches
        Home pipeline and number of each microbatch, by its number in the file.
    """
    with processes(limit_s=LIMIT_S) as group:
        ranks = group.start_all(range(len(slot_stages)), _work, slot_stages, microbatches, path)
        return {
            stage: [torch.tensor(value, dtype=torch.float64) for value in values]
            for rank in ranks
            for stage, values in rank.result().items()
        }


def _work(
    here: Here, slot_stages: Sequence[Sequence[int]], microbatches: Sequence[tuple[int, int]], path: Path
) -> dict[int, list[list[float]]]:
    """Run a schedule file once as the rank that the process is named after; gradients of its stages."""
    dist.init_process_group(
        "gloo",
        store=here.store(),
        rank=int(here.name),
        world_size=len(slot_stages),
        timeout=datetime.timedelta(seconds=LIMIT_S / 2),
    )
    modules = {v: make_stage(v) for v in slot_stages[int(here.name)]}
    num_stages = sum(map(len, slot_stages))
    stages = [PipelineStage(module, v, num_stages, torch.device("cpu")) for v, module in modules.items()]
    schedule = _PipelineScheduleRuntime(stages, len(microbatches), loss_fn=loss_of)
    schedule._load_csv(str(path), format="compute_only")
    inputs, labels = batch(microbatches)
    schedule.step(
        *([inputs] if 0 in modules else []),
        target=labels if num_stages - 1 in modules else None,
        losses=[] if num_stages - 1 in modules else None,
    )
    # Who leaves first would break what others still wait for.
    dist.barrier()
    dist.destroy_process_group()
    return {v: [p.grad.tolist() for p in module.parameters() if p.grad is not None] for v, module in modules.items()}
