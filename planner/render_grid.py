"""Schedules as text grids: one line a worker, time from left to right.

::

    0 to 6 ns; one column is 0.2 ns
    0/0 F0.0|F0.1|     B0.0     |
    0/1      F0.0|B0.0     |
             ^^^^^

Operations are named without their stage where no worker runs more than one. A name that does not fit its columns
shrinks to the operation's letter; an operation shorter than a column is not drawn.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.operation import Operation, Worker
from planner.schedule import Schedule, TimedOperation

_MOST_WORKERS = 8
_CONTEXT_OPERATIONS = 6


def render_grid(
    schedule: Schedule,
    *,
    workers: Sequence[Worker] | None = None,
    start_ns: int | None = None,
    end_ns: int | None = None,
    width: int = 120,
    mark: tuple[Worker, Operation] | None = None,
) -> str:
    """Draw a schedule, or a window of it, as text.

    Parameters
    ----------
    schedule
        The schedule, with planned times.
    workers
        Workers to draw, in this order; ``None`` for all that run anything.
    start_ns, end_ns
        Window of time; ``None`` for the schedule's first start and last end.
    width
        Most characters in a line, at least 20.
    mark
        Worker and operation to underline where they are drawn.

    Returns
    -------
    str
        Lines ending in a newline.
    """
    if workers is None:
        workers = [schedule.worker_at(int(i)) for i in np.flatnonzero(np.diff(schedule.offsets))]
    first = int(schedule.start_ns.min(initial=2**62)) if start_ns is None else start_ns
    last = int(schedule.end_ns.max(initial=-(2**62))) if end_ns is None else end_ns
    if not workers or last <= first:
        return "nothing to draw\n"
    heads = [str(worker) for worker in workers]
    indent = max(map(len, heads)) + 1
    with_stage = _runs_several_stages(schedule)
    shown = [
        [
            t
            for t in schedule.operations(worker)
            # What takes no time has no columns, but its place can be marked.
            if (t.start_ns < last and t.end_ns > first and t.end_ns > t.start_ns) or mark == (worker, t.operation)
        ]
        for worker in workers
    ]
    columns = _num_columns(shown, last - first, max(width, 20) - indent, with_stage)
    lines = [f"{first} to {last} ns; one column is {(last - first) / columns:.4g} ns"]
    for worker, head, timed_all in zip(workers, heads, shown, strict=True):
        row, under = [" "] * columns, [" "] * columns
        for timed in timed_all:
            left = min(columns, max(0, (timed.start_ns - first) * columns // (last - first)))
            right = min(columns, max(left, (timed.end_ns - first) * columns // (last - first)))
            row[left:right] = _cell(_label(timed.operation, with_stage), timed.operation.kind.name, right - left)
            if mark == (worker, timed.operation):
                left = min(left, columns - 1)
                under[left : max(right, left + 1)] = "^" * max(right - left, 1)
        lines.append((head.ljust(indent) + "".join(row)).rstrip())
        if "^" in under:
            lines.append((" " * indent + "".join(under)).rstrip())
    return "".join(line + "\n" for line in lines)


def render_around(schedule: Schedule, worker: Worker, operation: Operation, *, width: int = 120) -> str:
    """Draw the neighbourhood of one operation, marked: a few operations before and after, on the workers it deals with.

    Returns
    -------
    str
        The grid; empty where the worker does not run the operation.
    """
    rows = schedule.rows(worker)
    at = next((row for row in rows if schedule.operation(row) == operation), None)
    if at is None:
        return ""
    near = range(max(rows.start, at - _CONTEXT_OPERATIONS), min(rows.stop, at + _CONTEXT_OPERATIONS + 1))
    start = min(int(schedule.start_ns[row]) for row in near)
    end = max(int(schedule.end_ns[row]) for row in near)
    relatives = np.flatnonzero(
        (schedule.pipeline == operation.pipeline)
        & (schedule.microbatch == operation.microbatch)
        & (np.abs(schedule.stage - operation.stage) <= 1)
    )
    owners = np.searchsorted(schedule.offsets, relatives, side="right") - 1
    chosen = {worker, *sorted({schedule.worker_at(int(i)) for i in owners})[: _MOST_WORKERS - 1]}
    return render_grid(
        schedule,
        workers=sorted(chosen, key=lambda w: (w.slot, w.pipeline)),
        start_ns=start,
        end_ns=end,
        width=width,
        mark=(worker, operation),
    )


def _runs_several_stages(schedule: Schedule) -> bool:
    same_worker = np.diff(schedule.worker_of_row()) == 0
    return bool(np.any(same_worker & (np.diff(schedule.stage) != 0)))


def _label(operation: Operation, with_stage: bool) -> str:
    text = str(operation)
    return text if with_stage else text[len(str(operation.stage)) :]


def _num_columns(shown: Sequence[Sequence[TimedOperation]], window_ns: int, most: int, with_stage: bool) -> int:
    """Columns with which the shortest operation holds its name, at most ``most``."""
    wanted = [
        -(-window_ns * (len(_label(t.operation, with_stage)) + 1) // (t.end_ns - t.start_ns))
        for timed_all in shown
        for t in timed_all
        if t.end_ns > t.start_ns
    ]
    return max(1, min(most, max(wanted, default=1)))


def _cell(label: str, letter: str, width: int) -> str:
    if width <= 1:
        return letter[:width]
    if len(label) < width:
        return label + " " * (width - 1 - len(label)) + "|"
    return letter + "-" * (width - 2) + "|"
