"""Small problems that the solver tests share."""

from __future__ import annotations

from collections.abc import Iterable

from planner.operation import Worker
from planner.problem import Optimizer, Problem, Slot, Stage


def unit_problem(
    pipelines: int,
    slots: int,
    microbatches: int,
    *,
    dead: Iterable[tuple[int, int]] = (),
    capacity: int | None = None,
    optimizer: Optimizer = Optimizer.STAGGERED,
) -> Problem:
    """Problem whose F, I and W all take 1 us; a microbatch holds 1 byte, all of it up to its W."""
    stage = Stage(forward_ns=1000, input_grad_ns=1000, weight_grad_ns=1000, activation_bytes=1, weight_grad_bytes=1)
    return Problem(
        stages=(stage,) * slots,
        slots=tuple(Slot(stages=(s,), capacity_bytes=capacity) for s in range(slots)),
        microbatches=(microbatches,) * pipelines,
        optimizer=optimizer,
        dead=frozenset(Worker(k, s) for k, s in dead),
    )
