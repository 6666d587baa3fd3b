"""A stage: one part of the model, run microbatch by microbatch with its backward whole or in two halves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight

from replan_client.torch.errors import StageShapeError

Microbatch: TypeAlias = tuple[int, int]
"""Home pipeline and number of a microbatch."""

LossFunction: TypeAlias = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Loss of one microbatch, a scalar, from the last stage's output and the labels."""


@dataclass(slots=True)
class _Held:
    """What is kept of a microbatch between its operations; every field goes as soon as nothing needs it."""

    input: torch.Tensor | None
    output: torch.Tensor | None
    gradient: torch.Tensor | None = None
    parameter_groups: list[dict[str, Any]] | None = None


class Stage:
    """Runs F, I, W and B of one module; gradients of its parameters add up in ``.grad`` until they are taken away.

    The first stage's input gets no gradient, since nobody needs it: its I only keeps the gradient it is given and its W is
    the whole backward, as in PyTorch's pipelining.

    Parameters
    ----------
    index
        The stage, ``0..num_stages - 1``.
    num_stages
        Stages of the whole model.
    module
        Takes one tensor and gives one.
    loss_fn
        For the last stage.

    Raises
    ------
    ValueError
        If the last stage has no loss function.
    """

    def __init__(self, index: int, num_stages: int, module: nn.Module, *, loss_fn: LossFunction | None = None) -> None:
        self.index = index
        self.module = module
        self.is_first = index == 0
        self.is_last = index == num_stages - 1
        if self.is_last and loss_fn is None:
            raise ValueError(f"stage {index} is the last one and needs a loss function")
        self._loss_fn = loss_fn
        self._held: dict[Microbatch, _Held] = {}

    @property
    def num_held(self) -> int:
        """Microbatches whose F has run and whose W or B has not."""
        return len(self._held)

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Parameters that are trained, in the module's order."""
        return [parameter for parameter in self.module.parameters() if parameter.requires_grad]

    def forward(
        self, microbatch: Microbatch, value: torch.Tensor, *, seed: int, labels: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Run F.

        Parameters
        ----------
        microbatch
            Which one; a name only.
        value
            Input of the stage.
        seed
            Seed of everything random in it, 0 to 2^63 - 1.
        labels
            What the last stage's output is compared with.

        Returns
        -------
        torch.Tensor
            The activation for the next stage, or the loss.

        Raises
        ------
        StageShapeError
            If the loss is no scalar.
        """
        value = value.detach()
        if not self.is_first:
            value.requires_grad_()
        devices = [value.device] if value.device.type == "cuda" else []
        with torch.random.fork_rng(devices), torch.enable_grad():
            torch.manual_seed(seed)
            output = self.module(value)
            if self.is_last:
                assert self._loss_fn is not None
                output = self._loss_fn(output, labels)
                if output.numel() != 1:
                    raise StageShapeError(
                        f"the loss function gives a tensor of shape {list(output.shape)}; expected one number",
                        hint="take the mean over the microbatch",
                    )
        result: torch.Tensor = output.detach()
        # The split backward detaches the output in place, which views refuse.
        self._held[microbatch] = _Held(value, output.clone() if output._is_view() else output)
        return result

    def input_grad(self, microbatch: Microbatch, gradient: torch.Tensor | None) -> torch.Tensor | None:
        """Run I; the gradient of the stage's input, ``None`` for the first stage.

        Parameters
        ----------
        microbatch
            One whose F has run.
        gradient
            Of the stage's output; ``None`` for the last stage.
        """
        held = self._held[microbatch]
        if self.is_first:
            held.gradient = gradient
            return None
        assert held.input is not None
        found, held.parameter_groups = stage_backward_input(
            [held.output], None if gradient is None else [gradient], [held.input], iter(self.parameters)
        )
        result = torch.zeros_like(held.input) if found[0] is None else found[0]
        # The graph holds the input to the end of W, and would hold its gradient with it.
        held.input.grad = None
        held.input = held.output = None
        return result

    def weight_grad(self, microbatch: Microbatch) -> None:
        """Run W of a microbatch whose I has run."""
        held = self._held.pop(microbatch)
        if held.parameter_groups is None:
            self._whole(held, held.gradient)
            return
        parameters = self.parameters
        sums = [parameter.grad for parameter in parameters]
        for parameter in parameters:
            parameter.grad = None
        stage_backward_weight(iter(parameters), held.parameter_groups)
        for parameter, total in zip(parameters, sums, strict=True):
            found, parameter.grad = parameter.grad, total
            if found is not None and total is None:
                # What PyTorch gives may be the very tensor that is sent as the input's gradient, or another parameter's.
                parameter.grad = found.clone()
            elif found is not None:
                parameter.grad += found

    def backward(self, microbatch: Microbatch, gradient: torch.Tensor | None) -> torch.Tensor | None:
        """Run B, the whole backward; takes and gives what I does."""
        held = self._held.pop(microbatch)
        self._whole(held, gradient)
        if self.is_first:
            return None
        assert held.input is not None
        return torch.zeros_like(held.input) if held.input.grad is None else held.input.grad

    def drop(self) -> None:
        """Forget all microbatches and gradients, as of an iteration that broke."""
        self._held.clear()
        for parameter in self.parameters:
            parameter.grad = None

    @staticmethod
    def _whole(held: _Held, gradient: torch.Tensor | None) -> None:
        assert held.output is not None
        # Without parameters before it, and without a gradient of its input, there is nothing to do.
        if held.output.requires_grad:
            torch.autograd.backward(held.output, gradient)
