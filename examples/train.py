"""Train a small model as one worker of a job: ``python train.py PIPELINE/SLOT``."""

import os
import sys
from pathlib import Path

import torch
from replan_client.client import Client
from replan_client.torch.trainer import Trainer
from replan_client.torch.training import Training
from replan_client.torch.training_result import IterationReport
from torch import nn

FIRST = int(os.environ.get("FIRST_ITERATION", "0"))  # of the checkpoint to begin with
CHECKPOINTS = Path("checkpoints")  # a folder that all workers share
EVERY = 10


def build_stage(stage: int) -> nn.Module:
    """One part of the model: takes one tensor, gives one."""
    torch.manual_seed(stage)
    return nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 16))


def make_optimizer(module: nn.Module) -> torch.optim.Optimizer:
    """Optimizer of one stage."""
    return torch.optim.AdamW(module.parameters(), lr=1e-3)


def data(iteration: int, pipeline: int, microbatch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and labels of one microbatch, the same whoever runs it."""
    draw = torch.Generator().manual_seed(1_000_000 * iteration + 1_000 * pipeline + microbatch)
    inputs = torch.randn(8, 16, generator=draw)
    return inputs, inputs.roll(1, dims=1)


def save(report: IterationReport) -> None:
    """Write a checkpoint now and then; peers hold the same, so whoever comes first writes it."""
    done = report.iteration + 1
    for stage, module in report.modules.items():
        path = CHECKPOINTS / f"{done}-{stage}.pt"
        if done % EVERY == 0 and not path.exists():
            fresh = path.with_suffix(f".{report.position.pipeline}")
            torch.save([module.state_dict(), report.optimizers[stage].state_dict()], fresh)
            fresh.replace(path)


def restore(stage: int, module: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Begin a stage with what a checkpoint has of it."""
    parameters, state = torch.load(CHECKPOINTS / f"{FIRST}-{stage}.pt")
    module.load_state_dict(parameters)
    optimizer.load_state_dict(state)


def training() -> Training:
    """What is trained; the profiler asks for it too."""
    return Training(
        build_stage=build_stage,
        make_optimizer=make_optimizer,
        data=data,
        loss_fn=nn.functional.mse_loss,
        num_iterations=30,
        first_iteration=FIRST,
        restore=restore if FIRST else None,
        on_iteration=save,
    )


if __name__ == "__main__":
    store = torch.distributed.TCPStore(os.environ["STORE_HOST"], int(os.environ["STORE_PORT"]), is_master=False)
    with Client(os.environ["REPLAN_SERVER"]) as client:
        Trainer(client, os.environ["JOB_ID"], sys.argv[1], store, training(), rejoin=True).train()
