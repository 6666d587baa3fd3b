"""The problem every solver is given: stages, slots, microbatches, who is dead and who is slow.

A problem is pure numbers. Where a worker sits in a cluster, and which job it came from, is no part of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from planner.errors import MemoryTooSmallError, ProblemError, StageLostError
from planner.operation import Kind, Worker

FULL_SPEED_PPM = 1_000_000
"""Speed of a healthy worker, in parts per million."""

MAX_OPERATIONS = 12_000_000
"""Most operations a problem may have: ``3 * stages * microbatches``. A job may have fewer: see :mod:`planner.job`."""


class Optimizer(StrEnum):
    """When slots synchronise at the end of an iteration."""

    STAGGERED = "staggered"
    """Each slot all-reduces and steps once its own live workers are done."""
    GLOBAL = "global"
    """All slots wait for each other before any steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Costs of one stage for one microbatch, at full speed.

    ``transfer_ns`` is the time from the end of this stage's F until the next stage may use its output, when another
    worker runs the next stage; the gradient takes as long on its way back. The last stage's is not used.
    A microbatch holds ``activation_bytes`` from the start of F to the end of I (or of B), then
    ``weight_grad_bytes`` of it to the end of W. A stage that is not ``splittable`` runs B, never I and W.
    """

    forward_ns: int
    input_grad_ns: int
    weight_grad_ns: int
    transfer_ns: int = 0
    activation_bytes: int = 0
    weight_grad_bytes: int = 0
    splittable: bool = True

    def __post_init__(self) -> None:
        for name in (
            "forward_ns",
            "input_grad_ns",
            "weight_grad_ns",
            "transfer_ns",
            "activation_bytes",
            "weight_grad_bytes",
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 0:
                raise ProblemError(f"a stage's {name} is {value!r}; expected an integer, at least 0")
        if self.weight_grad_bytes > self.activation_bytes:
            raise ProblemError(
                f"a stage keeps {self.weight_grad_bytes} weight-gradient bytes of {self.activation_bytes} activation bytes; "
                "expected at most as many"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One position along the pipelines: the stages its workers hold, in model order, and what they share.

    ``sync_ns`` is all-reduce plus optimizer step; ``capacity_bytes`` is each worker's memory for activations, ``None``
    where memory does not bind.
    """

    stages: tuple[int, ...]
    sync_ns: int = 0
    capacity_bytes: int | None = None

    def __post_init__(self) -> None:
        if not self.stages or any(a >= b for a, b in zip(self.stages, self.stages[1:], strict=False)):
            raise ProblemError(f"a slot holds stages {self.stages}; expected at least one, in increasing order")
        if self.sync_ns < 0:
            raise ProblemError(f"a slot's sync_ns is {self.sync_ns}; expected at least 0")
        if self.capacity_bytes is not None and self.capacity_bytes < 0:
            raise ProblemError(f"a slot's capacity_bytes is {self.capacity_bytes}; expected at least 0 or none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One instance: every microbatch through every stage on live workers, in the shortest period.

    Parameters
    ----------
    stages
        ``V`` stages in model order.
    slots
        ``P`` slots; together they hold each stage exactly once.
    microbatches
        Number of microbatches whose home is each of the ``D`` pipelines; at least one in all.
    optimizer
        Whether slots step on their own or wait for each other.
    dead
        Workers that are down.
    speeds_ppm
        Speed of each degraded live worker, 1 to 999,999 parts per million; all others run at full speed.

    Raises
    ------
    ProblemError
        If the parts do not fit together.
    """

    stages: tuple[Stage, ...]
    slots: tuple[Slot, ...]
    microbatches: tuple[int, ...]
    optimizer: Optimizer = Optimizer.STAGGERED
    dead: frozenset[Worker] = frozenset()
    speeds_ppm: Mapping[Worker, int] = field(default_factory=dict)
    slot_of_stage: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.stages or not self.slots or not self.microbatches:
            raise ProblemError("a problem needs at least one stage, one slot and one pipeline")
        holders = Counter(v for slot in self.slots for v in slot.stages)
        wrong = [v for v in range(len(self.stages)) if holders[v] != 1] + [
            v for v in holders if v >= len(self.stages) or v < 0
        ]
        if wrong:
            raise ProblemError(
                f"stages {wrong[:8]} are not held by exactly one slot; expected each of 0..{len(self.stages) - 1} once"
            )
        if any(count < 0 for count in self.microbatches) or sum(self.microbatches) < 1:
            raise ProblemError(
                f"microbatch counts {self.microbatches[:8]}: expected each at least 0 and one at least 1"
            )
        if 3 * len(self.stages) * sum(self.microbatches) > MAX_OPERATIONS:
            raise ProblemError(
                f"{sum(self.microbatches)} microbatches through {len(self.stages)} stages are more than "
                f"{MAX_OPERATIONS} operations"
            )
        for worker in (*self.dead, *self.speeds_ppm):
            if not (0 <= worker.pipeline < len(self.microbatches) and 0 <= worker.slot < len(self.slots)):
                raise ProblemError(
                    f"worker {worker} does not exist; expected pipelines 0..{len(self.microbatches) - 1}, "
                    f"slots 0..{len(self.slots) - 1}"
                )
        for worker, speed in self.speeds_ppm.items():
            if not 0 < speed < FULL_SPEED_PPM:
                raise ProblemError(f"worker {worker} has speed {speed} ppm; expected 1 to {FULL_SPEED_PPM - 1}")
            if worker in self.dead:
                raise ProblemError(f"worker {worker} is both dead and degraded")
        by_stage = {v: s for s, slot in enumerate(self.slots) for v in slot.stages}
        object.__setattr__(self, "slot_of_stage", tuple(by_stage[v] for v in range(len(self.stages))))

    @property
    def num_pipelines(self) -> int:
        """``D``, the number of pipelines."""
        return len(self.microbatches)

    @property
    def num_slots(self) -> int:
        """``P``, the number of slots."""
        return len(self.slots)

    @property
    def num_stages(self) -> int:
        """``V``, the number of stages."""
        return len(self.stages)

    @property
    def num_microbatches(self) -> int:
        """All microbatches of one iteration, over all pipelines: the global batch."""
        return sum(self.microbatches)

    @property
    def num_operations(self) -> int:
        """Operations of a schedule that splits every backward: ``3 * V * sum(M)``."""
        return 3 * self.num_stages * self.num_microbatches

    def is_live(self, worker: Worker) -> bool:
        """Whether the worker can run operations."""
        return worker not in self.dead

    def live_pipelines(self, slot: int) -> tuple[int, ...]:
        """Pipelines whose worker in ``slot`` is live, ascending."""
        return tuple(k for k in range(self.num_pipelines) if Worker(k, slot) not in self.dead)

    def speed_ppm(self, worker: Worker) -> int:
        """Speed of a worker in parts per million of a healthy one's."""
        return self.speeds_ppm.get(worker, FULL_SPEED_PPM)

    def duration_ns(self, kind: Kind, stage: int, worker: Worker) -> int:
        """Time ``worker`` takes for an operation: the cost at full speed over its speed, rounded up.

        B takes as long as the worker's I and W together.
        """
        cost, speed = self.stages[stage], self.speed_ppm(worker)
        if kind is Kind.F:
            return scaled_ns(cost.forward_ns, speed)
        if kind is Kind.I:
            return scaled_ns(cost.input_grad_ns, speed)
        if kind is Kind.W:
            return scaled_ns(cost.weight_grad_ns, speed)
        return scaled_ns(cost.input_grad_ns, speed) + scaled_ns(cost.weight_grad_ns, speed)

    def transfer_ns(self, stage: int, source: Worker, target: Worker) -> int:
        """Time over the boundary between ``stage`` and ``stage + 1``; 0 where both run on one worker."""
        return 0 if source == target else self.stages[stage].transfer_ns

    def require_plannable(self) -> None:
        """Check that a plan can exist at all.

        Raises
        ------
        StageLostError
            If a slot has no live worker.
        MemoryTooSmallError
            If some slot's memory does not hold one microbatch through all of the slot's stages on one worker, as (13b) in
            ``docs/model.md`` asks: such a job cannot run fault-free either, unless its pipelines help each other.
        """
        dead = Counter(worker.slot for worker in self.dead)
        lost = [s for s in range(self.num_slots) if dead[s] == self.num_pipelines]
        if lost:
            stages = [v for s in lost for v in self.slots[s].stages]
            raise StageLostError(
                f"slots {lost} (stages {stages}) have no live worker left: no peer holds their parameters",
                hint="restore a checkpoint on replacement nodes",
            )
        for s, slot in enumerate(self.slots):
            need = self._least_bytes(slot)
            if slot.capacity_bytes is not None and slot.capacity_bytes < need:
                through = f"stage {slot.stages[0]}" if len(slot.stages) == 1 else f"stages {slot.stages} on one worker"
                raise MemoryTooSmallError(
                    f"slot {s} has {slot.capacity_bytes} bytes for activations, one microbatch through {through} needs "
                    f"{need}: {need - slot.capacity_bytes} bytes are missing",
                    hint="use smaller microbatches, recompute activations, or raise capacity_bytes",
                )

    def _least_bytes(self, slot: Slot) -> int:
        """Peak bytes of a single microbatch whose stages in ``slot`` all run on one worker and whose W follow at once.

        All its forwards in the slot precede its first input gradient there.
        """
        return sum(self.stages[v].activation_bytes for v in slot.stages)


def scaled_ns(cost_ns: int, speed_ppm: int) -> int:
    """Cost at full speed stretched by a speed in parts per million, rounded up to a nanosecond.

    Examples
    --------
    >>> scaled_ns(100, 700_000)
    143
    """
    return -(-cost_ns * FULL_SPEED_PPM // speed_ppm)
