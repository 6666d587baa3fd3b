"""What is trained, as all workers of a job are told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from replan_client.errors import ArgumentError
from replan_client.torch.module_compute import Data
from replan_client.torch.stage import LossFunction
from replan_client.torch.training_result import IterationReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What is trained, the same for all workers of a job.

    What these functions and modules raise ends training for all workers, with the name of the one in which it was raised: a peer
    that took over would meet the same. A worker that is to be worked around, since its node is at fault, ends its process, as by
    ``raise SystemExit``; with a CUDA device that fails it does so by itself.

    Parameters
    ----------
    build_stage
        Makes the module of a stage: one tensor in, one out; the last stage's output goes to ``loss_fn``. It is called for any
        stage at any time, since a worker may move. At the start all peers take the parameters of the lowest pipeline's worker.
        What modules keep beside parameters and persistent buffers has to stand in their extra states, to be copied with them.
    make_optimizer
        Makes the optimizer of a stage's module, from that module's parameters alone. Its state is made of tensors and numbers.
    data
        Inputs and labels of ``(iteration, pipeline, microbatch)``, the same whoever asks. Inputs go to the first stage, labels
        to ``loss_fn``.
    loss_fn
        Mean loss of one microbatch from output and labels.
    num_iterations
        Iteration to stop before.
    first_iteration
        Iteration to begin with: the job's state is then that before it, as a checkpoint has it.
    restore
        Puts a checkpoint's state into a stage, given its number, module and optimizer, before the first iteration of the job;
        ``None``: they are begun with as they were made.
    learning_rate
        Learning rate in an iteration, for all groups of all optimizers; ``None``: what the optimizers have. A scheduler object
        would count iterations that are run again twice.
    on_iteration
        Called after each iteration that this worker completed, with the state that it left: the place to write checkpoints.
    seed
        Of the random numbers that modules draw, which do not depend on who runs a microbatch.

    Raises
    ------
    ArgumentError
        If the iterations do not ascend from 0.
    """

    build_stage: Callable[[int], nn.Module]
    make_optimizer: Callable[[nn.Module], torch.optim.Optimizer]
    data: Data
    loss_fn: LossFunction
    num_iterations: int
    first_iteration: int = 0
    restore: Callable[[int, nn.Module, torch.optim.Optimizer], None] | None = None
    learning_rate: Callable[[int], float] | None = None
    on_iteration: Callable[[IterationReport], None] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.first_iteration <= self.num_iterations:
            raise ArgumentError(
                f"iterations from {self.first_iteration} to before {self.num_iterations}; expected numbers from 0 on that ascend"
            )
