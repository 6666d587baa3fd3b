"""What every bound reads of a problem: workers counted by speed, and the shortest chains through the stages.

Workers are never listed one by one: a slot is its live workers' speeds with a count each, so a job of a thousand pipelines
costs no more than one of ten.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from planner.problem import FULL_SPEED_PPM, Optimizer, Problem, scaled_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerClass:
    """Live workers of one slot that run at one speed.

    ``forward_ns``, ``input_grad_ns`` and ``weight_grad_ns`` hold a duration for each stage of the slot.
    """

    count: int
    speed_ppm: int
    forward_ns: tuple[int, ...]
    input_grad_ns: tuple[int, ...]
    weight_grad_ns: tuple[int, ...]

    @property
    def microbatch_ns(self) -> tuple[int, ...]:
        """F + I + W of one microbatch, for each stage of the slot."""
        rows = zip(self.forward_ns, self.input_grad_ns, self.weight_grad_ns, strict=True)
        return tuple(sum(row) for row in rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotView:
    """One slot as the bounds see it.

    Parameters
    ----------
    index
        Slot.
    stages
        Its stages in model order.
    classes
        Its live workers by speed, fastest first.
    capacity_bytes
        Memory of each worker; ``None`` where it does not bind.
    activation_bytes, weight_grad_bytes, splittable
        For each stage of the slot.
    sync_ns
        What separates the end of an iteration's last operation from the next iteration's first: the slot's own sync, or with a
        global optimizer the slowest slot's.
    """

    index: int
    stages: tuple[int, ...]
    classes: tuple[WorkerClass, ...]
    capacity_bytes: int | None
    activation_bytes: tuple[int, ...]
    weight_grad_bytes: tuple[int, ...]
    splittable: tuple[bool, ...]
    sync_ns: int

    @property
    def counts(self) -> tuple[int, ...]:
        """Workers of each class."""
        return tuple(group.count for group in self.classes)

    @property
    def first_stage(self) -> int:
        """The slot's first stage in model order: the slot's first operation is one of its forwards."""
        return self.stages[0]

    @property
    def last_stage(self) -> int:
        """The slot's last stage in model order: the slot's first backward is one of its own."""
        return self.stages[-1]


@dataclass(frozen=True, kw_only=True)
class ProblemView:
    """A problem as the bounds see it; ``total`` is the number of microbatches.

    Chains run every stage on its slot's fastest live worker and count a transfer only where consecutive stages lie in
    different slots, since otherwise one worker may run both.
    """

    total: int
    optimizer: Optimizer
    slots: tuple[SlotView, ...]
    slot_of_stage: tuple[int, ...]
    transfer_ns: tuple[int, ...]

    def _fastest(self, stage: int) -> tuple[int, int, int]:
        """F, W and what the chain of gradients waits for at a stage, on the fastest live worker."""
        slot = self.slots[self.slot_of_stage[stage]]
        at = slot.stages.index(stage)
        group = slot.classes[0]
        weight = group.weight_grad_ns[at]
        return group.forward_ns[at], weight, group.input_grad_ns[at] + (0 if slot.splittable[at] else weight)

    @cached_property
    def forward_from_start_ns(self) -> tuple[int, ...]:
        """For each stage, least time from the start of F(0) to the start of its F."""
        steps = (self._fastest(v)[0] + self.transfer_ns[v] for v in range(len(self.slot_of_stage) - 1))
        return tuple(accumulate(steps, initial=0))

    @cached_property
    def backward_to_end_ns(self) -> tuple[int, ...]:
        """For each stage, least time from the end of its backward to the end of the backward of stage 0."""
        steps = (self._fastest(v)[2] + self.transfer_ns[v] for v in range(len(self.slot_of_stage) - 1))
        return tuple(accumulate(steps, initial=0))

    @cached_property
    def round_trip_ns(self) -> tuple[int, ...]:
        """``RT``: for each stage, least time from the end of its F to the start of its backward."""
        last = len(self.slot_of_stage) - 1
        steps = (self._fastest(v)[0] + self._fastest(v)[2] + 2 * self.transfer_ns[v - 1] for v in range(last, 0, -1))
        return tuple(accumulate(steps, initial=0))[::-1]

    def forward_ns(self, source: int, target: int) -> int:
        """Least time from the start of F at stage ``source`` to the start of F at the later stage ``target``."""
        return self.forward_from_start_ns[target] - self.forward_from_start_ns[source]

    def backward_ns(self, source: int, target: int) -> int:
        """Least time from the end of the backward at ``source`` to the end of the backward at the earlier ``target``."""
        return self.backward_to_end_ns[source] - self.backward_to_end_ns[target]

    def stage_forward_ns(self, stage: int) -> int:
        """F at a stage on the fastest live worker."""
        return self._fastest(stage)[0]

    def stage_backward_ns(self, stage: int) -> int:
        """What the gradient waits for at a stage, I or the unsplittable B, on the fastest live worker."""
        return self._fastest(stage)[2]

    def least_weight_ns(self, stage: int) -> int:
        """Least time from the end of the chain's step at ``stage`` to the end of its W: 0 where the two are fused."""
        slot = self.slots[self.slot_of_stage[stage]]
        return self._fastest(stage)[1] if slot.splittable[slot.stages.index(stage)] else 0


def view_problem(problem: Problem) -> ProblemView:
    """Read a plannable problem: one with a live worker in every slot."""
    dead = Counter(worker.slot for worker in problem.dead)
    slow: list[Counter[int]] = [Counter() for _ in problem.slots]
    for worker, speed in problem.speeds_ppm.items():
        slow[worker.slot][speed] += 1
    slowest_sync = max(slot.sync_ns for slot in problem.slots)
    slots = []
    for s, slot in enumerate(problem.slots):
        healthy = problem.num_pipelines - dead[s] - slow[s].total()
        speeds = ([(FULL_SPEED_PPM, healthy)] if healthy else []) + sorted(slow[s].items(), reverse=True)
        stages = [problem.stages[v] for v in slot.stages]
        slots.append(
            SlotView(
                index=s,
                stages=slot.stages,
                classes=tuple(
                    WorkerClass(
                        count=count,
                        speed_ppm=speed,
                        forward_ns=tuple(scaled_ns(stage.forward_ns, speed) for stage in stages),
                        input_grad_ns=tuple(scaled_ns(stage.input_grad_ns, speed) for stage in stages),
                        weight_grad_ns=tuple(scaled_ns(stage.weight_grad_ns, speed) for stage in stages),
                    )
                    for speed, count in speeds
                ),
                capacity_bytes=slot.capacity_bytes,
                activation_bytes=tuple(stage.activation_bytes for stage in stages),
                weight_grad_bytes=tuple(stage.weight_grad_bytes for stage in stages),
                splittable=tuple(stage.splittable for stage in stages),
                sync_ns=slowest_sync if problem.optimizer is Optimizer.GLOBAL else slot.sync_ns,
            )
        )
    crosses = [a != b for a, b in zip(problem.slot_of_stage, problem.slot_of_stage[1:], strict=False)]
    return ProblemView(
        total=problem.num_microbatches,
        optimizer=problem.optimizer,
        slots=tuple(slots),
        slot_of_stage=problem.slot_of_stage,
        transfer_ns=tuple(problem.stages[v].transfer_ns if crosses[v] else 0 for v in range(len(crosses))),
    )
