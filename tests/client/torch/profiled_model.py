"""A model as a training script defines it, for the profiler's command."""

from __future__ import annotations

import torch
from replan_client.torch.training import Training
from torch import nn

WIDTH = 32


def training() -> Training:
    """Three stages or more of a layer with dropout each."""
    inputs, labels = torch.randn(WIDTH, WIDTH), torch.randn(WIDTH, WIDTH)
    return Training(
        build_stage=lambda _: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Dropout(0.1)),
        make_optimizer=lambda module: torch.optim.AdamW(module.parameters()),
        data=lambda *_: (inputs, labels),
        loss_fn=nn.functional.mse_loss,
        num_iterations=1,
    )


def no_training() -> int:
    """Give something else."""
    return 7
