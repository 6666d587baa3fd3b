"""What drawings of a plan are made of: bars by worker, syncs by slot, and the memory each worker holds.

Every drawing, by ``replan show`` and by the service's page, starts from here, so that they never disagree. Times count from the
first start of the plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.dataflow import held_bytes
from planner.operation import Kind, Operation, Worker
from planner.plan import Plan
from planner.problem import Optimizer
from planner.schedule import IntColumn, Schedule


@dataclass(frozen=True, slots=True)
class Bar:
    """One operation on one worker, nanoseconds from the plan's first start; ``rerouted`` where another pipeline is its home."""

    operation: Operation
    start_ns: int
    end_ns: int
    rerouted: bool


@dataclass(frozen=True, slots=True)
class Sync:
    """All-reduce and optimizer step of a slot, nanoseconds from the plan's first start."""

    start_ns: int
    duration_ns: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timeline:
    """One iteration of a plan as it is drawn. Columns have shape ``(N,)``, the rows of ``schedule``.

    Parameters
    ----------
    schedule
        Whose rows these are: each worker's operations in order.
    start_ns, end_ns
        Of each operation, from the plan's first start.
    rerouted
        Whether an operation's home is another pipeline than the one it runs on (bool).
    held_bytes
        Bytes that the worker holds after each row took or gave back its own: F takes at its start, all others give back at
        their end.
    syncs
        By slot.
    span_ns
        From the first start to the end of the last operation or sync.
    """

    schedule: Schedule
    start_ns: IntColumn
    end_ns: IntColumn
    rerouted: npt.NDArray[np.bool_]
    held_bytes: IntColumn
    syncs: tuple[Sync, ...]
    span_ns: int

    def bars(self, worker: Worker) -> Iterator[Bar]:
        """A worker's operations in the order it runs them."""
        for row in self.schedule.rows(worker):
            yield Bar(
                self.schedule.operation(row), int(self.start_ns[row]), int(self.end_ns[row]), bool(self.rerouted[row])
            )

    def memory(self, worker: Worker) -> tuple[tuple[int, int], ...]:
        """Activation bytes a worker holds wherever they change: ``(nanoseconds, bytes)`` in order of time.

        Examples
        --------
        F of 8 bytes at 0 that I gives back at 3,000 ns: ``((0, 8), (3000, 0))``.
        """
        held_at: dict[int, int] = {}
        for row in self.schedule.rows(worker):
            when = self.start_ns[row] if self.schedule.kind[row] == Kind.F else self.end_ns[row]
            held_at[int(when)] = int(self.held_bytes[row])
        steps, before = [], 0
        for when, held in held_at.items():
            if held != before:
                steps.append((when, held))
            before = held
        return tuple(steps)


def timeline_of(plan: Plan) -> Timeline:
    """Work out what drawings of a plan need.

    Parameters
    ----------
    plan
        A valid plan.
    """
    schedule, slots = plan.schedule, plan.problem.num_slots
    origin = int(schedule.start_ns.min(initial=2**62)) if schedule.num_operations else 0
    start_ns, end_ns = schedule.start_ns - origin, schedule.end_ns - origin
    worker = schedule.worker_of_row()
    last_end = np.zeros(slots, dtype=np.int64)
    np.maximum.at(last_end, worker % slots, end_ns)
    if plan.problem.optimizer is Optimizer.GLOBAL:
        last_end[:] = last_end.max(initial=0)
    syncs = tuple(Sync(begin, slot.sync_ns) for begin, slot in zip(last_end.tolist(), plan.problem.slots, strict=True))
    return Timeline(
        schedule=schedule,
        start_ns=start_ns,
        end_ns=end_ns,
        rerouted=schedule.pipeline != worker // slots,
        held_bytes=held_bytes(plan.problem, schedule),
        syncs=syncs,
        span_ns=max(sync.start_ns + sync.duration_ns for sync in syncs),
    )
