"""A schedule: for every worker the ordered list of its operations, with planned start and end.

Held in columns, since a large job has a hundred thousand operations. Worker ``(k, s)`` of ``D x P`` has index
``k * P + s``; its operations are the rows ``offsets[index]:offsets[index + 1]``, in the order it runs them.

The text form has one line per worker that runs anything, ``1/2: 2F1.0 2F1.1 2I1.0``; with times each operation is followed by
``@start+duration`` in nanoseconds, ``2F1.0@0+18522``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from planner.errors import ScheduleFormatError
from planner.operation import Kind, Operation, Worker, parse_operation, parse_worker

IntColumn: TypeAlias = npt.NDArray[np.int64]

_TIMED = re.compile(r"([^@]+)@(0|-?[1-9][0-9]{0,17})\+(0|[1-9][0-9]{0,17})")


@dataclass(frozen=True, slots=True)
class TimedOperation:
    """An operation with its planned start and end, in nanoseconds from the start of the iteration."""

    operation: Operation
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Schedule:
    """Order and planned times of every operation on every worker.

    Columns are int64 arrays, read-only; ``N`` is the number of operations.

    Parameters
    ----------
    num_pipelines, num_slots
        ``D`` and ``P``.
    offsets
        Shape ``(D * P + 1,)``: first row of each worker, and ``N``.
    kind, stage, pipeline, microbatch
        Shape ``(N,)`` each: what runs; ``pipeline`` is the microbatch's home.
    start_ns, end_ns
        Shape ``(N,)``: planned times of one iteration. In a plan they are the shifted times that reach its period:
        the same schedule moved by ``n`` periods is iteration ``n``.

    Raises
    ------
    ScheduleFormatError
        If the columns' shapes or the offsets do not fit, or a value is out of its range. Whether the schedule
        keeps the constraints of a problem is for :mod:`planner.validation` to say.
    """

    num_pipelines: int
    num_slots: int
    offsets: IntColumn
    kind: IntColumn
    stage: IntColumn
    pipeline: IntColumn
    microbatch: IntColumn
    start_ns: IntColumn
    end_ns: IntColumn

    def __post_init__(self) -> None:
        for name in ("offsets", "kind", "stage", "pipeline", "microbatch", "start_ns", "end_ns"):
            column = np.array(getattr(self, name), dtype=np.int64)
            column.setflags(write=False)
            object.__setattr__(self, name, column)
        if self.offsets.shape != (self.num_pipelines * self.num_slots + 1,):
            raise ScheduleFormatError(
                f"offsets has shape {self.offsets.shape}; expected one more than {self.num_pipelines} x {self.num_slots} workers"
            )
        rows = self.kind.shape
        for name in ("kind", "stage", "pipeline", "microbatch", "start_ns", "end_ns"):
            if getattr(self, name).shape != rows or len(rows) != 1:
                raise ScheduleFormatError(f"column {name} has shape {getattr(self, name).shape}; expected {rows}")
        if self.offsets[0] != 0 or self.offsets[-1] != rows[0] or bool(np.any(np.diff(self.offsets) < 0)):
            raise ScheduleFormatError(f"offsets do not run from 0 to {rows[0]} without falling")
        if rows[0] and not (int(self.kind.min()) >= 0 and int(self.kind.max()) <= max(Kind)):
            raise ScheduleFormatError(f"kinds lie in {self.kind.min()}..{self.kind.max()}; expected 0..{max(Kind)}")
        for name in ("stage", "pipeline", "microbatch"):
            if rows[0] and int(getattr(self, name).min()) < 0:
                raise ScheduleFormatError(f"column {name} has a negative value; expected at least 0")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schedule):
            return NotImplemented
        return (self.num_pipelines, self.num_slots) == (other.num_pipelines, other.num_slots) and all(
            np.array_equal(getattr(self, name), getattr(other, name))
            for name in ("offsets", "kind", "stage", "pipeline", "microbatch", "start_ns", "end_ns")
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def num_operations(self) -> int:
        """``N``, the number of operations over all workers."""
        return int(self.kind.shape[0])

    def worker_at(self, index: int) -> Worker:
        """Worker of a worker index."""
        return Worker(index // self.num_slots, index % self.num_slots)

    def rows(self, worker: Worker) -> range:
        """Rows of a worker's operations, in the order it runs them."""
        index = worker.pipeline * self.num_slots + worker.slot
        return range(int(self.offsets[index]), int(self.offsets[index + 1]))

    def worker_of_row(self) -> IntColumn:
        """Worker index of each row, shape ``(N,)``."""
        return np.repeat(np.arange(self.num_pipelines * self.num_slots, dtype=np.int64), np.diff(self.offsets))

    def operation(self, row: int) -> Operation:
        """Operation in a row."""
        return Operation(
            Kind(int(self.kind[row])),
            int(self.stage[row]),
            int(self.pipeline[row]),
            int(self.microbatch[row]),
        )

    def operations(self, worker: Worker) -> Iterator[TimedOperation]:
        """A worker's operations with their times, in the order it runs them."""
        for row in self.rows(worker):
            yield TimedOperation(self.operation(row), int(self.start_ns[row]), int(self.end_ns[row]))

    def to_text(self, *, times: bool = False) -> str:
        """Text form, one line per worker that runs anything, ending in a newline."""
        lines = []
        for index in range(self.num_pipelines * self.num_slots):
            worker = self.worker_at(index)
            if not self.rows(worker):
                continue
            words = [
                f"{timed.operation}@{timed.start_ns}+{timed.end_ns - timed.start_ns}" if times else str(timed.operation)
                for timed in self.operations(worker)
            ]
            lines.append(f"{worker}: {' '.join(words)}\n")
        return "".join(lines)


def schedule_from_orders(
    num_pipelines: int, num_slots: int, orders: Mapping[Worker, Sequence[TimedOperation]]
) -> Schedule:
    """Build a schedule from each worker's timed operations; a worker that is not named runs nothing.

    Raises
    ------
    ScheduleFormatError
        If a worker lies outside ``num_pipelines x num_slots``.
    """
    offsets = [0]
    timed_all: list[TimedOperation] = []
    for worker in orders:
        if not (0 <= worker.pipeline < num_pipelines and 0 <= worker.slot < num_slots):
            raise ScheduleFormatError(f"worker {worker} lies outside {num_pipelines} pipelines x {num_slots} slots")
    for k in range(num_pipelines):
        for s in range(num_slots):
            timed_all.extend(orders.get(Worker(k, s), ()))
            offsets.append(len(timed_all))
    return Schedule(
        num_pipelines=num_pipelines,
        num_slots=num_slots,
        offsets=np.array(offsets, dtype=np.int64),
        kind=np.array([t.operation.kind for t in timed_all], dtype=np.int64),
        stage=np.array([t.operation.stage for t in timed_all], dtype=np.int64),
        pipeline=np.array([t.operation.pipeline for t in timed_all], dtype=np.int64),
        microbatch=np.array([t.operation.microbatch for t in timed_all], dtype=np.int64),
        start_ns=np.array([t.start_ns for t in timed_all], dtype=np.int64),
        end_ns=np.array([t.end_ns for t in timed_all], dtype=np.int64),
    )


def parse_schedule(text: str, num_pipelines: int, num_slots: int) -> Schedule:
    """Read a schedule's text form, with or without times; without, every time is 0.

    Raises
    ------
    ScheduleFormatError
        Naming the line and what was expected, if the text is not a schedule's.
    """
    orders: dict[Worker, list[TimedOperation]] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        head, colon, tail = line.partition(": ")
        if not colon:
            raise ScheduleFormatError(f"line {number}: expected 'pipeline/slot: operations', found {line[:40]!r}")
        try:
            worker = parse_worker(head)
            if worker in orders:
                raise ScheduleFormatError(f"worker {worker} stands twice")
            orders[worker] = [_parse_timed(word) for word in tail.split(" ")]
        except ScheduleFormatError as error:
            raise ScheduleFormatError(f"line {number}: {error.message}") from error
    return schedule_from_orders(num_pipelines, num_slots, orders)


def _parse_timed(word: str) -> TimedOperation:
    if "@" not in word:
        return TimedOperation(parse_operation(word), 0, 0)
    match = _TIMED.fullmatch(word)
    if match is None:
        raise ScheduleFormatError(f"{word!r} cannot be read; expected the form 2F1.3@start+duration")
    start = int(match[2])
    return TimedOperation(parse_operation(match[1]), start, start + int(match[3]))
