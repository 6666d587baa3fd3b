"""The stages of one worker as real modules with their optimizers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import torch
from torch import nn

from replan_client.operation import Kind, Operation
from replan_client.program import Compute as ComputeInstruction
from replan_client.program import Program
from replan_client.torch.errors import SharedParameterError, StageShapeError, UnsplittableStageError
from replan_client.torch.seeds import forward_seed
from replan_client.torch.shapes import StageSpec
from replan_client.torch.spec import TensorSpec, spec_of
from replan_client.torch.splitting import why_not_splittable
from replan_client.torch.stage import LossFunction, Stage

Data: TypeAlias = Callable[[int, int, int], tuple[torch.Tensor, torch.Tensor]]
"""Inputs and labels by iteration, home pipeline and microbatch; the same on every worker, which only asks for what it needs."""


class ModuleCompute:
    """Real modules.

    Buffers that F changes, such as the running means of batch normalisation, follow the microbatches that ran here:
    unlike parameters they differ between peers, as in PyTorch's own data parallelism.

    Parameters
    ----------
    modules
        Module of each stage held here, on ``device``, in training mode.
    optimizers
        Optimizer of each of them.
    specs
        What each takes and gives.
    num_stages
        Stages of the whole model.
    data
        Gives inputs to the first stage and labels to the last.
    loss_fn
        Loss of one microbatch.
    seed
        Seed of all that is random in the modules, the job's.
    device
        Where the modules are.

    Raises
    ------
    SharedParameterError
        If two stages held here have a parameter in common.
    """

    def __init__(
        self,
        modules: Mapping[int, nn.Module],
        optimizers: Mapping[int, torch.optim.Optimizer],
        specs: Mapping[int, StageSpec],
        *,
        num_stages: int,
        data: Data,
        loss_fn: LossFunction,
        seed: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        self._stages = {v: Stage(v, num_stages, modules[v], loss_fn=loss_fn) for v in sorted(modules)}
        self._num_stages = num_stages
        self._optimizers = dict(optimizers)
        self._specs = dict(specs)
        self._data = data
        self._seed = seed
        self._device = torch.device(device)
        self._iteration = 0
        self._losses: dict[tuple[int, int], torch.Tensor] = {}
        self._refuse_shared()
        self._unsplittable = {
            v: reason
            for v, stage in self._stages.items()
            if not stage.is_first
            and (reason := why_not_splittable(stage.module, self._specs[v].input, device=self._device)) is not None
        }

    @property
    def stages(self) -> tuple[int, ...]:
        """Stages held here, ascending."""
        return tuple(self._stages)

    @property
    def num_stages(self) -> int:
        """Number of stages of the whole model."""
        return self._num_stages

    @property
    def unsplittable(self) -> dict[int, str]:
        """Stages held here that only run B, and why."""
        return dict(self._unsplittable)

    @property
    def num_held(self) -> int:
        """Microbatches whose F has run and whose W or B has not, summed over the stages."""
        return sum(stage.num_held for stage in self._stages.values())

    def check(self, program: Program) -> None:
        """Refuse a program that splits the backward of a stage which cannot.

        Raises
        ------
        UnsplittableStageError
            Naming the stage and the operation.
        """
        for instruction in program.instructions:
            if isinstance(instruction, ComputeInstruction) and instruction.operation.kind in (Kind.I, Kind.W):
                operation = instruction.operation
                if operation.stage in self._unsplittable:
                    raise UnsplittableStageError(
                        f"the program has {operation}, but the backward of stage {operation.stage} cannot be split: "
                        f"{self._unsplittable[operation.stage]}",
                        hint=f"say `splittable: false` for stage {operation.stage} in the job file and plan again",
                    )

    def message_spec(self, message: Operation) -> TensorSpec:
        """What a message is like."""
        spec = self._specs[message.stage]
        return spec.input if message.kind is Kind.F else spec.output

    def start(self, iteration: int) -> None:
        """Begin an iteration without anything of the one before."""
        self._iteration = iteration
        self._losses = {}
        for stage in self._stages.values():
            stage.drop()

    def run(self, operation: Operation, message: torch.Tensor | None) -> torch.Tensor | None:
        """Run one operation."""
        stage, microbatch = self._stages[operation.stage], (operation.pipeline, operation.microbatch)
        if operation.kind is Kind.F:
            return self._forward(stage, operation, message)
        if operation.kind is Kind.I:
            return stage.input_grad(microbatch, message)
        if operation.kind is Kind.B:
            return stage.backward(microbatch, message)
        stage.weight_grad(microbatch)
        return None

    def reduce(self, stage: int, weight: float, all_reduce: Callable[[Sequence[torch.Tensor]], None]) -> None:
        """Weigh the gradients and sum them over the slot; a parameter that no microbatch anywhere used keeps none."""
        parameters = self._stages[stage].parameters
        if not parameters:
            return
        # Optimizers tell no gradient from one of zeros, and a peer may have had no microbatch at all.
        uses = torch.tensor([float(parameter.grad is not None) for parameter in parameters], device=self._device)
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad.mul_(weight) for p in parameters]
        all_reduce([uses, *gradients])
        for parameter, gradient, use in zip(parameters, gradients, uses.tolist(), strict=True):
            parameter.grad = gradient if use else None

    def step(self, stage: int) -> None:
        """Step a stage's optimizer and drop the gradients."""
        self._optimizers[stage].step()
        for parameter in self._stages[stage].parameters:
            parameter.grad = None

    def finish(self) -> dict[tuple[int, int], float]:
        """Losses of the microbatches whose last stage ran here."""
        return {microbatch: float(loss) for microbatch, loss in self._losses.items()}

    def _forward(self, stage: Stage, operation: Operation, message: torch.Tensor | None) -> torch.Tensor | None:
        labels = None
        microbatch = (operation.pipeline, operation.microbatch)
        if stage.is_first or stage.is_last:
            inputs, labels = self._data(self._iteration, *microbatch)
            message = inputs.to(self._device) if stage.is_first else message
            labels = labels.to(self._device) if stage.is_last else None
        assert message is not None
        # A receiver has made its buffer by now: gloo ends the process that gets more than it expects.
        spec = self._specs[stage.index]
        if stage.is_first and spec_of(message) != spec.input:
            raise StageShapeError(
                f"the data gives {spec_of(message)} for microbatch {operation.pipeline}.{operation.microbatch} of iteration "
                f"{self._iteration}; expected {spec.input}",
                hint="give all microbatches the same shape, padded where there is less",
            )
        seed = forward_seed(self._seed, self._iteration, stage.index, *microbatch)
        output = stage.forward(microbatch, message, seed=seed, labels=labels)
        if stage.is_last:
            # A number of its own: some losses leave theirs in memory as large as the output.
            self._losses[microbatch] = output.clone()
            return None
        if spec_of(output) != spec.output:
            raise StageShapeError(
                f"stage {stage.index} gives {spec_of(output)} for microbatch {operation.pipeline}.{operation.microbatch} of "
                f"iteration {self._iteration}; expected {spec.output}",
                hint="the shape must not depend on the numbers",
            )
        return output

    def _refuse_shared(self) -> None:
        holder: dict[int, int] = {}
        for v, stage in self._stages.items():
            for name, parameter in stage.module.named_parameters():
                other = holder.setdefault(id(parameter), v)
                if other != v:
                    raise SharedParameterError(
                        f"stages {other} and {v} share the parameter {name}: its gradients would be summed stage by stage",
                        hint="give each stage a parameter of its own",
                    )
