"""Idling that one worker cannot avoid, where its slot holds one stage (docs/model.md, section 6.2 and 6.3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.bounds.view import ProblemView, SlotView, WorkerClass
from planner.schedule import IntColumn


@dataclass(frozen=True, slots=True, kw_only=True)
class StageWorker:
    """A worker of a slot with a single stage, whatever its load.

    Parameters
    ----------
    forward_ns, input_grad_ns, weight_grad_ns
        Its durations.
    round_trip_ns
        ``RT``: least time from the end of its F to the start of the same microbatch's backward.
    capacity_bytes, activation_bytes, weight_grad_bytes, splittable
        As in the problem.
    """

    forward_ns: int
    input_grad_ns: int
    weight_grad_ns: int
    round_trip_ns: int
    capacity_bytes: int | None
    activation_bytes: int
    weight_grad_bytes: int
    splittable: bool

    @property
    def microbatch_ns(self) -> int:
        """F + I + W."""
        return self.forward_ns + self.input_grad_ns + self.weight_grad_ns

    @property
    def backward_ns(self) -> int:
        """What the gradient waits for here: I, or B where the stage is not splittable."""
        return self.input_grad_ns + (0 if self.splittable else self.weight_grad_ns)

    def in_flight(self, load: int) -> int:
        """Most of ``load`` microbatches that may be between the start of F and the end of the backward at once."""
        if self.capacity_bytes is None or self.activation_bytes == 0:
            return load
        return min(load, self.capacity_bytes // self.activation_bytes)

    def owed(self, load: int) -> int:
        """Most of ``load`` microbatches that may be between I and W at once."""
        if not self.splittable:
            return 0
        if self.capacity_bytes is None or self.weight_grad_bytes == 0:
            return load
        return min(load, self.capacity_bytes // self.weight_grad_bytes)

    def warm_up_ns(self, load: int) -> int:
        """Idling before the first backward: ``max(0, F + RT - in_flight F)``."""
        return max(0, self.round_trip_ns - (self.in_flight(load) - 1) * self.forward_ns)

    def backlog_ns(self, load: int) -> int:
        """Most I and W that ``load - 1`` microbatches beside the one of the last F may have left when that F ends.

        Each microbatch before its I holds ``a`` bytes and is worth I + W, each between I and W ``w`` bytes and W; together with
        the last one's ``a`` they fit the capacity.
        """
        others, both = load - 1, self.input_grad_ns + self.weight_grad_ns
        if self.capacity_bytes is None:
            return others * both
        room = self.capacity_bytes - self.activation_bytes
        most_whole = others if self.activation_bytes == 0 else min(others, room // self.activation_bytes)
        if not self.splittable or self.weight_grad_ns == 0:
            return most_whole * both
        best = 0
        for whole in range(most_whole, -1, -1):
            if whole * self.input_grad_ns + others * self.weight_grad_ns <= best:
                break  # fewer whole ones cannot reach the best any more
            rest = room - whole * self.activation_bytes
            halves = others - whole
            if self.weight_grad_bytes > 0:
                halves = min(halves, rest // self.weight_grad_bytes)
            best = max(best, whole * both + halves * self.weight_grad_ns)
        return best

    def tail_ns(self, load: int) -> int:
        """Idling between the end of the last F and the start of its backward: ``max(0, RT - backlog)``."""
        return max(0, self.round_trip_ns - self.backlog_ns(load))

    def idle_ns(self, load: int) -> int:
        """Warm-up and tail together: their sum where the load does not fit into memory at once, else the larger.

        With more microbatches than may be in flight, the last F waits for the first backward, so the two lie apart.
        """
        warm_up, tail = self.warm_up_ns(load), self.tail_ns(load)
        return warm_up + tail if load > self.in_flight(load) else max(warm_up, tail)

    def until_warm_ns(self, load: int) -> int:
        """Window of a worker with a load: its work and its idling before the first backward."""
        return load * self.microbatch_ns + self.warm_up_ns(load)

    def window_ns(self, load: int) -> int:
        """Window of a worker with a load: its work and all its idling."""
        return load * self.microbatch_ns + self.idle_ns(load)

    def owed_ns(self, load: int, pending: int) -> int:
        """Most W that ``load`` microbatches may be owed when the last F ends with ``pending`` of them before their I."""
        between = load - pending
        if self.capacity_bytes is not None and self.weight_grad_bytes > 0:
            room = self.capacity_bytes - pending * self.activation_bytes
            between = min(between, room // self.weight_grad_bytes)
        return (pending + between) * self.weight_grad_ns

    def credit_ns(self, load: int) -> int:
        """Most W that may be owed after the last backward, less the idling behind the last F; ``V`` of (32), or less than 0.

        When the last F ends, ``x`` microbatches (its own among them) are before their I. What is owed after the last I cannot
        exceed those and what memory then holds between I and W; and only the other ``x - 1`` I can fill the round trip,
        since a W run there is one owed less.
        """
        if not self.splittable:
            return -self.tail_ns(load)
        credit = self.owed_ns(load, 1) - self.round_trip_ns
        for pending in range(1, self.in_flight(load) + 1):
            waiting = max(0, self.round_trip_ns - (pending - 1) * self.input_grad_ns)
            credit = max(credit, self.owed_ns(load, pending) - waiting)
            if waiting == 0:
                break  # more before their I only leave less room for W
        return credit

    def last_backward_ns(self, load: int) -> int:
        """Least time to the end of a worker's last backward: all work and idling, less what may still be owed."""
        if not self.splittable:
            return self.window_ns(load)
        work, credit = load * self.microbatch_ns, self.credit_ns(load)
        if load > self.in_flight(load):
            return work + self.warm_up_ns(load) - credit
        return max(work - credit, work + self.warm_up_ns(load) - self.owed(load) * self.weight_grad_ns)

    def turnover_ns(self, load: int) -> int:
        """Least time in which ``load`` microbatches, at most ``p`` of them in flight at once, come and go.

        Each is in flight for ``F + RT + I``. Fewer than ``p`` are during the first F, the last backwards, and, where the
        bytes kept for a W push one out, during every W; these times are apart since the worker runs one operation at a time.
        """
        most = self.in_flight(load)
        held = load * (self.forward_ns + self.round_trip_ns + self.backward_ns)
        missing = (self.forward_ns + self.backward_ns) * (most * (most - 1) // 2)
        if self.splittable:
            missing += (load - 1) * (most - self._in_flight_beside_w(load)) * self.weight_grad_ns
            missing += most * self.weight_grad_ns
        return -(-(held + missing) // most)

    def nth_forward_ns(self, load: int) -> int:
        """Least time from the start of the first F to the start of the last of ``load``, ``h`` of (39)."""
        most = self.in_flight(load)
        if load <= most:
            return (load - 1) * self.forward_ns
        _, done_ns = self._before_last_forward(load)
        return self.forward_ns + self.round_trip_ns + (load - 1 - most) * self.forward_ns + int(done_ns.min())

    def backward_run_ns(self, load: int) -> int:
        """Least time from the start of the first backward to the end of the last of ``load``, ``b`` of (39)."""
        most, each = self.in_flight(load), self.backward_ns
        if load <= most:
            return load * each
        pending, done_ns = self._before_last_forward(load)
        rest = done_ns + np.maximum(self.round_trip_ns, pending * each)
        return (load - most) * self.forward_ns + int(rest.min()) + each

    def remaining_ns(self, load: int) -> int:
        """Least time from the start of the first backward of ``load`` to the end of the last W, ``r`` of (41)."""
        most, work = self.in_flight(load), load * (self.input_grad_ns + self.weight_grad_ns)
        return work if load <= most else work + (load - most) * self.forward_ns + self.tail_ns(load)

    def _before_last_forward(self, load: int) -> tuple[IntColumn, IntColumn]:
        """Ways to stand when the last F starts, where ``load`` does not fit into memory at once.

        For 0, 1, ... microbatches that are before the end of their backward: how many, and the time that the backwards of the
        others have taken by then and the W that memory needs done.
        """
        assert self.capacity_bytes is not None
        pending = np.arange(self.in_flight(load), dtype=np.int64)
        past = load - 1 - pending
        done_ns: IntColumn = past * self.backward_ns
        if self.splittable and self.weight_grad_bytes > 0:
            room = self.capacity_bytes - (pending + 1) * self.activation_bytes
            done_ns += np.maximum(0, past - room // self.weight_grad_bytes) * self.weight_grad_ns
        return pending, done_ns

    def _in_flight_beside_w(self, load: int) -> int:
        """Most of ``load`` microbatches in flight while the W of another runs."""
        if self.capacity_bytes is None or self.activation_bytes == 0:
            return load
        return min(load, (self.capacity_bytes - self.weight_grad_bytes) // self.activation_bytes)


def stage_workers(view: ProblemView, slot: SlotView) -> tuple[StageWorker, ...]:
    """One worker of each speed class of a slot that holds a single stage."""
    assert len(slot.stages) == 1, f"slot {slot.index} holds {len(slot.stages)} stages"
    return tuple(_stage_worker(view, slot, group, 0) for group in slot.classes)


def fastest_worker(view: ProblemView, stage: int) -> StageWorker:
    """The fastest live worker of a stage, as if its slot held no other."""
    slot = view.slots[view.slot_of_stage[stage]]
    return _stage_worker(view, slot, slot.classes[0], slot.stages.index(stage))


def _stage_worker(view: ProblemView, slot: SlotView, group: WorkerClass, at: int) -> StageWorker:
    return StageWorker(
        forward_ns=group.forward_ns[at],
        input_grad_ns=group.input_grad_ns[at],
        weight_grad_ns=group.weight_grad_ns[at],
        round_trip_ns=view.round_trip_ns[slot.stages[at]],
        capacity_bytes=slot.capacity_bytes,
        activation_bytes=slot.activation_bytes[at],
        weight_grad_bytes=slot.weight_grad_bytes[at],
        splittable=slot.splittable[at],
    )
