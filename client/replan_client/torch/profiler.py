"""Measure what the stages of a model cost: times of their operations, bytes that their microbatches hold, their optimizers.

Each stage is run by the executor's own :class:`~replan_client.torch.module_compute.ModuleCompute`, so that what is measured
is what will run. Times and bytes are taken in separate runs, since counting bytes takes time.

What the planner asks about memory is when it comes and goes: a microbatch holds ``activation_bytes`` from the start of F to
the end of I and ``weight_grad_bytes`` of them from there to the end of W. PyTorch's split backward may hold *more* after I
than before it: what W needs of the forward is still there, and gradients within the stage are kept beside it.
``activation_bytes`` is then raised to that, since a part cannot be larger than the whole.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.utils._pytree import tree_iter

from replan_client.operation import Kind, Operation
from replan_client.torch.module_compute import ModuleCompute
from replan_client.torch.profiler_clock import Clock, time_laps
from replan_client.torch.profiler_errors import ProfileError
from replan_client.torch.profiler_memory import meter
from replan_client.torch.profiler_result import StageProfile
from replan_client.torch.shapes import StageSpec, output_spec
from replan_client.torch.spec import TensorSpec, spec_of
from replan_client.torch.training import Training


def profile_stages(
    training: Training,
    num_stages: int,
    *,
    device: torch.device | str = "cpu",
    repeats: int = 10,
    warm_up: int = 3,
) -> tuple[StageProfile, ...]:
    """Measure every stage of a model, one after the other.

    Only one stage at a time is on the device. Its input is what the stage before really gave for the first microbatch.

    Parameters
    ----------
    training
        What is trained, as it is given to :class:`~replan_client.torch.trainer.Trainer`. Nothing of it changes but the state
        of PyTorch's random numbers.
    num_stages
        ``V``, 1 or more.
    device
        Where stages are run.
    repeats
        Runs of each operation that count, 1 or more.
    warm_up
        Runs before them that do not, 1 or more.

    Raises
    ------
    ProfileError
        If there is no stage or no run to measure.
    StageShapeError
        If a stage does not take what the one before gives.

    Examples
    --------
    >>> from replan_client.torch.training import Training
    >>> training = Training(
    ...     build_stage=lambda stage: torch.nn.Linear(8, 8),
    ...     make_optimizer=lambda module: torch.optim.Adam(module.parameters()),
    ...     data=lambda iteration, pipeline, microbatch: (torch.ones(4, 8), torch.ones(4, 8)),
    ...     loss_fn=torch.nn.functional.mse_loss,
    ...     num_iterations=1,
    ... )
    >>> first, last = profile_stages(training, 2)
    >>> first.parameter_bytes == 4 * (8 * 8 + 8), first.output_bytes == 4 * 4 * 8, first.forward_us > 0
    (True, True, True)
    """
    if num_stages < 1 or repeats < 1 or warm_up < 1:
        raise ProfileError(
            f"{num_stages} stages, {repeats} runs after {warm_up} to warm up: expected at least 1 of each"
        )
    device = torch.device(device)
    given: torch.Tensor | None = None
    profiles = []
    for stage in range(num_stages):
        subject = _build(training, stage, num_stages, given, device)
        profiles.append(_profile(subject, repeats, warm_up))
        given = subject.run(Kind.F) if stage < num_stages - 1 else None
        # Off the device before the next one is built.
        del subject
    return tuple(profiles)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subject:
    """One stage on the device, with its input; nothing stands for the first stage's, which comes from the data."""

    stage: int
    module: nn.Module
    optimizer: torch.optim.Optimizer
    compute: ModuleCompute
    given: torch.Tensor | None
    gives: TensorSpec | None
    device: torch.device

    @property
    def is_splittable(self) -> bool:
        return not self.compute.unsplittable

    def run(self, kind: Kind, message: torch.Tensor | None = None) -> torch.Tensor | None:
        """Run an operation of the first microbatch; F takes its own input unless another one is given."""
        if kind is Kind.F and message is None:
            message = self.given
        return self.compute.run(Operation(kind, self.stage, 0, 0), message)

    def gradient(self) -> torch.Tensor | None:
        """A gradient as the next stage would send it."""
        return None if self.gives is None else torch.randn(self.gives.shape, dtype=self.gives.dtype, device=self.device)


def _build(
    training: Training, stage: int, num_stages: int, given: torch.Tensor | None, device: torch.device
) -> _Subject:
    module = training.build_stage(stage).to(device)
    optimizer = training.make_optimizer(module)
    taken = spec_of(training.data(training.first_iteration, 0, 0)[0] if given is None else given)
    spec = StageSpec(input=taken, output=output_spec(stage, module, taken, device=device))
    compute = ModuleCompute(
        {stage: module},
        {stage: optimizer},
        {stage: spec},
        num_stages=num_stages,
        data=training.data,
        loss_fn=training.loss_fn,
        seed=training.seed,
        device=device,
    )
    compute.start(training.first_iteration)
    return _Subject(
        stage=stage,
        module=module,
        optimizer=optimizer,
        compute=compute,
        given=given,
        gives=None if stage == num_stages - 1 else spec.output,
        device=device,
    )


def _profile(subject: _Subject, repeats: int, warm_up: int) -> StageProfile:
    device, splittable = subject.device, subject.is_splittable
    gradient = subject.gradient()
    backward = (Kind.I, Kind.W) if splittable else (Kind.B,)

    def run(clock: Clock, *kinds: Kind) -> None:
        clock.mark()
        for kind in kinds:
            subject.run(kind, gradient if kind in (Kind.I, Kind.B) else None)
            clock.mark()

    forward_us, whole_us = time_laps(device, lambda clock: run(clock, Kind.F, Kind.B), repeats=repeats, warm_up=warm_up)
    _, *backward_us = time_laps(device, lambda clock: run(clock, Kind.F, *backward), repeats=repeats, warm_up=warm_up)
    # Gradients are there now, so what follows only adds to them, as all microbatches but the first one do.
    activation, kept, workspace = _bytes(subject, backward)
    (optimizer_us,) = time_laps(device, lambda clock: _step(subject, clock), repeats=repeats, warm_up=warm_up)
    parameters = list(subject.module.parameters())
    return StageProfile(
        stage=subject.stage,
        forward_us=forward_us,
        input_grad_us=backward_us[0],
        weight_grad_us=backward_us[1] if splittable else 0.0,
        backward_us=whole_us,
        splittable=splittable,
        activation_bytes=activation,
        weight_grad_bytes=kept,
        workspace_bytes=workspace,
        parameter_bytes=_size(*parameters, *subject.module.buffers()),
        gradient_bytes=_size(*(parameter for parameter in parameters if parameter.requires_grad)),
        optimizer_state_bytes=_size(*tree_iter(dict(subject.optimizer.state))),
        optimizer_us=optimizer_us,
        output_bytes=0 if gradient is None else _size(gradient),
    )


def _bytes(subject: _Subject, backward: tuple[Kind, ...]) -> tuple[int, int, int]:
    """Bytes held by a microbatch to the end of I and to the end of W (0 after B), and the most that an operation adds."""
    with meter(subject.device) as counted:
        # A message of its own, which goes when nobody needs it any more, as a received one does.
        message = None if subject.given is None else subject.given.clone()
        subject.run(Kind.F, message)
        del message
        held, peaks = [counted.held()], [counted.peak()]
        for kind in backward:
            counted.reset_peak()
            subject.run(kind, None if kind is Kind.W else subject.gradient())
            held.append(counted.held())
            peaks.append(counted.peak())
    kept = held[1] if len(backward) == 2 else 0
    activation = max(held[0], kept)
    extra = max(peak - base for peak, base in zip(peaks, (activation, activation, kept), strict=False))
    return activation, kept, max(0, extra)


def _step(subject: _Subject, clock: Clock) -> None:
    """Weigh the gradients and step, as at the end of an iteration; nobody else's are added."""
    for parameter in subject.module.parameters():
        parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
    clock.mark()
    subject.compute.reduce(subject.stage, 1.0, lambda _: None)
    subject.compute.step(subject.stage)
    clock.mark()


def _size(*values: object) -> int:
    """Bytes of the tensors among some values."""
    return sum(value.numel() * value.element_size() for value in values if isinstance(value, torch.Tensor))
