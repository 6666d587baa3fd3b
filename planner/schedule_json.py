"""A schedule's part of a plan's canonical JSON, written in one compiled pass."""

from __future__ import annotations

import numpy as np
from numba import njit

from planner.byte_writer import Bytes, join_arrays, num_digits, put_bytes, put_number, put_operation, to_array
from planner.operation import Kind
from planner.schedule import IntColumn, Schedule

_LETTERS = to_array("".join(kind.name for kind in Kind).encode("ascii"))
_HEAD = b':{"operations":"'
_MIDDLE = b'","start_ns":['
_OVERHEAD = len(_HEAD) + len(_MIDDLE) + len(b']},""')


def schedule_json(schedule: Schedule) -> bytes:
    """Canonical JSON of :func:`planner.plan_content.schedule_content`, byte for byte."""
    lengths = np.diff(schedule.offsets)
    # Canonical JSON sorts keys as text.
    names = sorted((str(schedule.worker_at(index)), index) for index in np.flatnonzero(lengths).tolist())
    text, ends = join_arrays([f'"{name}"'.encode("ascii") for name, _ in names])
    size = int(ends[-1]) + _OVERHEAD * len(names) + 2
    for column in (schedule.stage, schedule.pipeline, schedule.microbatch, schedule.start_ns):
        size += schedule.num_operations * (num_digits(column) + 1)
    buffer = np.empty(size, dtype=np.uint8)
    length = _write(
        np.array([index for _, index in names], dtype=np.int64),
        text,
        ends,
        schedule.offsets,
        schedule.kind,
        schedule.stage,
        schedule.pipeline,
        schedule.microbatch,
        schedule.start_ns,
        _LETTERS,
        to_array(_HEAD),
        to_array(_MIDDLE),
        buffer,
    )
    return buffer[:length].tobytes()


@njit(cache=True)
def _write(
    workers: IntColumn,
    names: Bytes,
    ends: IntColumn,
    offsets: IntColumn,
    kind: IntColumn,
    stage: IntColumn,
    pipeline: IntColumn,
    microbatch: IntColumn,
    start_ns: IntColumn,
    letters: Bytes,
    head: Bytes,
    middle: Bytes,
    buffer: Bytes,
) -> int:
    buffer[0] = 123
    at = 1
    for n in range(len(workers)):
        if n:
            buffer[at] = 44
            at += 1
        at = put_bytes(buffer, at, names, ends[n], ends[n + 1])
        at = put_bytes(buffer, at, head, 0, len(head))
        begin, end = offsets[workers[n]], offsets[workers[n] + 1]
        for row in range(begin, end):
            if row > begin:
                buffer[at] = 32
                at += 1
            at = put_operation(buffer, at, stage[row], letters[kind[row]], pipeline[row], microbatch[row])
        at = put_bytes(buffer, at, middle, 0, len(middle))
        for row in range(begin, end):
            if row > begin:
                buffer[at] = 44
                at += 1
            at = put_number(buffer, at, start_ns[row])
        buffer[at] = 93
        buffer[at + 1] = 125
        at += 2
    buffer[at] = 125
    return at + 1
