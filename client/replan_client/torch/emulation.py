"""Compute that only waits: a plan runs with real messages and in its real order, but without a model.

Waits are exact to some ten microseconds: most of one is slept, so that many workers can share few cores, and the end is spun,
since a sleeper is woken late. A wait counts from when its operation is called: what the executor does between operations adds
to the period, as it does in training.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from replan_client.operation import Kind, Operation
from replan_client.program import Program
from replan_client.torch.spec import TensorSpec

SPIN_NS = 150_000
"""Last part of a wait that is spun rather than slept: sleepers wake up to a tenth of a millisecond late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatedStage:
    """What one stage takes; times in microseconds, sizes in bytes, all at least 0.

    Parameters
    ----------
    forward_us, input_grad_us, weight_grad_us
        F, I and W of one microbatch; B waits for I and W.
    optimizer_us
        One step of the optimizer.
    input_bytes
        Activation of one microbatch that comes from the stage before, and gradient that goes back to it.
    gradient_bytes
        Gradients that are summed over the slot's workers.

    Raises
    ------
    ValueError
        If a value is negative or not finite.
    """

    forward_us: float
    input_grad_us: float
    weight_grad_us: float
    optimizer_us: float = 0.0
    input_bytes: int = 0
    gradient_bytes: int = 0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"a stage's {name} is {value}; expected at least 0")

    def operation_us(self, kind: Kind) -> float:
        """What an operation takes."""
        if kind is Kind.F:
            return self.forward_us
        if kind is Kind.I:
            return self.input_grad_us
        return self.weight_grad_us if kind is Kind.W else self.input_grad_us + self.weight_grad_us


class EmulatedCompute:
    """A worker's stages, as a :class:`~replan_client.torch.compute.Compute` of waits.

    Messages hold bytes that say nothing. Any program of these stages can be run, split or fused.

    Parameters
    ----------
    stages
        Every stage of the model, in order.
    held
        Numbers of those that this worker holds.
    device
        Where messages and gradients are.
    wait
        Waits some microseconds.
    """

    def __init__(
        self,
        stages: Sequence[EmulatedStage],
        held: Sequence[int],
        *,
        device: torch.device | str = "cpu",
        wait: Callable[[float], None] | None = None,
    ) -> None:
        self._all = tuple(stages)
        self._held = tuple(sorted(held))
        self._wait = wait_us if wait is None else wait
        # What is sent is only read, so one tensor does for all messages of a size.
        self._messages = {
            size: torch.zeros(size, dtype=torch.uint8, device=device) for size in {s.input_bytes for s in stages}
        }
        self._gradients: Mapping[int, torch.Tensor] = {
            v: torch.zeros(-(-self._all[v].gradient_bytes // 4), dtype=torch.float32, device=device) for v in self._held
        }

    @property
    def stages(self) -> tuple[int, ...]:
        """Stages held here, ascending."""
        return self._held

    @property
    def num_stages(self) -> int:
        """Number of stages of the whole model."""
        return len(self._all)

    def check(self, program: Program) -> None:
        """Refuse nothing: a wait can follow on any other."""

    def message_spec(self, message: Operation) -> TensorSpec:
        """As many bytes as go over the boundary, before the stage for an activation and behind it for a gradient."""
        boundary = message.stage if message.kind is Kind.F else message.stage + 1
        return TensorSpec(shape=(self._all[boundary].input_bytes,), dtype=torch.uint8)

    def start(self, iteration: int) -> None:
        """Begin an iteration; nothing is left of the one before."""

    def run(self, operation: Operation, message: torch.Tensor | None) -> torch.Tensor | None:
        """Wait as long as the operation takes; its result is as large as it should be, or ``None`` where there is none."""
        del message
        self._wait(self._all[operation.stage].operation_us(operation.kind))
        if operation.kind is Kind.W:
            return None
        boundary = operation.stage + 1 if operation.kind is Kind.F else operation.stage
        return self._messages[self._all[boundary].input_bytes] if 0 < boundary < len(self._all) else None

    def reduce(self, stage: int, weight: float, all_reduce: Callable[[Sequence[torch.Tensor]], None]) -> None:
        """Sum as many bytes as the stage has gradients."""
        del weight
        all_reduce([self._gradients[stage]])

    def step(self, stage: int) -> None:
        """Wait as long as the optimizer takes."""
        self._wait(self._all[stage].optimizer_us)

    def finish(self) -> dict[tuple[int, int], float]:
        """End an iteration, without a loss."""
        return {}


def wait_us(length_us: float) -> None:
    """Wait, exactly and with little work.

    Parameters
    ----------
    length_us
        Microseconds, at least 0.
    """
    ends = time.perf_counter_ns() + round(length_us * 1000)
    asleep = ends - SPIN_NS - time.perf_counter_ns()
    if asleep > 0:
        time.sleep(asleep / 1e9)
    while time.perf_counter_ns() < ends:
        pass
