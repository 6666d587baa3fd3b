"""What a runner runs: the operations of one worker's stages, whatever they are made of.

:class:`Compute` is all that :class:`~replan_client.torch.runner.Runner` knows of them. Real modules are behind
:class:`~replan_client.torch.module_compute.ModuleCompute`; waits in their place make an emulation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from replan_client.operation import Operation
from replan_client.program import Program
from replan_client.torch.spec import TensorSpec


class Compute(Protocol):
    """The stages that one worker holds.

    For each iteration a runner calls :meth:`start`, then :meth:`run` for each operation, :meth:`reduce` for each stage,
    :meth:`step` for each stage, all in the order of the program, and :meth:`finish`.
    """

    @property
    def stages(self) -> tuple[int, ...]:
        """Stages held here, ascending."""

    @property
    def num_stages(self) -> int:
        """Number of stages of the whole model."""

    def check(self, program: Program) -> None:
        """Refuse a program that cannot be run here, before anything of it is run.

        What every compute needs is checked already: the program is for this worker, and for stages held here.
        """

    def message_spec(self, message: Operation) -> TensorSpec:
        """What a message is like: the activation that F of its stage takes, or the gradient that its I or B takes."""

    def start(self, iteration: int) -> None:
        """Begin an iteration: no gradients and no microbatches are left of the one before, even of a broken one."""

    def run(self, operation: Operation, message: torch.Tensor | None) -> torch.Tensor | None:
        """Run one operation.

        Parameters
        ----------
        operation
            The operation.
        message
            Activation or gradient that it takes; ``None`` for F of the first stage, for I and B of the last, and for W.

        Returns
        -------
        torch.Tensor or None
            Of F the activation for the next stage, of I and B the gradient for the stage before. ``None`` for F of the
            last stage, for I and B of the first, and for W.
        """

    def reduce(self, stage: int, weight: float, all_reduce: Callable[[Sequence[torch.Tensor]], None]) -> None:
        """Turn the gradients of a stage into those of the whole iteration.

        Parameters
        ----------
        stage
            The stage.
        weight
            Weight of each microbatch's gradient, over 0 and at most 1.
        all_reduce
            Sums tensors over the slot's live workers, in place; all of them must call it with the same shapes and types.
        """

    def step(self, stage: int) -> None:
        """Step the stage's parameters."""

    def finish(self) -> dict[tuple[int, int], float]:
        """End an iteration; returns the losses of the microbatches ``(pipeline, microbatch)`` whose last stage ran here."""
