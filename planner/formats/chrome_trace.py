"""Chrome traces of a plan, for Perfetto: one process a worker, threads for compute, optimizer and sends.

What ``docs/cli.md`` says about them (``replan show``) holds for traces of runs that were executed too, so that both can be laid
side by side: the processes' and threads' numbers and names, the names and colours of slices, the arrows and the counter.

What the viewers ask for, and what happens where it is not heeded: ids from 1, since Perfetto merged thread 0 with thread 1;
slices of one thread that nest, since one that overlaps another is dropped, so transfers that are under way at the same time get
lanes of their own; times that are whole nanoseconds after the viewer has cut its product with 1000 to an integer; and arrows
behind all slices, since an arrow is tied to the slice that was opened last on its thread when times are equal.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from planner.dataflow import trace_dataflow
from planner.formats.whole_file import whole_file
from planner.operation import Kind, Worker
from planner.plan import Plan
from planner.timeline import Timeline, timeline_of

COMPUTE_THREAD, RECEIVE_THREAD, OPTIMIZER_THREAD, SEND_THREAD = 1, 2, 3, 4
"""Threads of each process. A plan has nothing on the second; further lanes of sends follow the fourth."""

THREAD_NAMES = {
    COMPUTE_THREAD: "compute",
    RECEIVE_THREAD: "receive",
    OPTIMIZER_THREAD: "optimizer",
    SEND_THREAD: "send",
}

COLOURS = {Kind.F: "thread_state_running", Kind.I: "thread_state_iowait", Kind.W: "good", Kind.B: "bad"}
"""``cname`` of each kind's slices."""

Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Arrow:
    """Where the arrow of a message begins, and the schedule's row that waits for it."""

    pid: int
    tid: int
    start_ns: int
    receiver: int


def write_trace(plan: Plan, workers: Sequence[Worker], path: Path) -> None:
    """Write the trace of some workers; the file appears whole or not at all.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    with whole_file(path, durable=False) as file:
        for part in trace_parts(plan, workers):
            file.write(part)


def trace_parts(plan: Plan, workers: Sequence[Worker]) -> Iterator[bytes]:
    """Bytes of the trace's file, an event at a time."""
    yield b'{"displayTimeUnit":"ms","traceEvents":[\n'
    for number, event in enumerate(trace_events(plan, workers)):
        yield (",\n" if number else "").encode("ascii") + json.dumps(event, separators=(",", ":")).encode("ascii")
    yield b"\n]}\n"


def trace_events(plan: Plan, workers: Sequence[Worker]) -> Iterator[Event]:
    """Events of the trace: worker by worker names, slices and counters, then all arrows.

    Parameters
    ----------
    plan
        A valid plan.
    workers
        Workers to include; arrows are drawn between these only.
    """
    origin = int(plan.schedule.start_ns.min())
    indices = {worker.pipeline * plan.problem.num_slots + worker.slot for worker in workers}
    timeline = timeline_of(plan)
    sends = _sends(plan, indices)
    arrows: list[_Arrow] = []
    for order, worker in enumerate(workers):
        pid = _pid(plan, worker)
        yield from _names(plan, worker, pid, order)
        if worker in plan.problem.dead:
            continue
        yield from _compute(timeline, worker, pid)
        sync = timeline.syncs[worker.slot]
        if sync.duration_ns:
            yield _slice("all-reduce and optimizer", pid, OPTIMIZER_THREAD, sync.start_ns, sync.duration_ns, {})
        yield from _transfers(plan, sends.get(pid - 1, []), pid, origin, arrows)
        yield from _memory(timeline, worker, pid)
    for arrow in arrows:
        yield from _arrow(plan, arrow, origin)


def microseconds(value_ns: int) -> float:
    """Microseconds that a viewer turns back into exactly these nanoseconds, though it cuts off and does not round.

    Examples
    --------
    >>> 1001 / 1000 * 1000, microseconds(1001) * 1000
    (1000.9999999999999, 1001.0000000000001)
    """
    value = value_ns / 1000
    return value if int(value * 1000) == value_ns else math.nextafter(value, math.inf)


def _pid(plan: Plan, worker: Worker) -> int:
    return worker.pipeline * plan.problem.num_slots + worker.slot + 1


def _names(plan: Plan, worker: Worker, pid: int, order: int) -> Iterator[Event]:
    down = " (down)" if worker in plan.problem.dead else ""
    ranks = f", ranks {plan.worker_ranks[pid - 1]}" if plan.worker_ranks else ""
    yield {
        "ph": "M",
        "name": "process_name",
        "pid": pid,
        "tid": COMPUTE_THREAD,
        "args": {"name": f"worker {worker}{down}{ranks}"},
    }
    yield {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": COMPUTE_THREAD, "args": {"sort_index": order}}
    for tid in (COMPUTE_THREAD, OPTIMIZER_THREAD):
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": THREAD_NAMES[tid]}}


def _compute(timeline: Timeline, worker: Worker, pid: int) -> Iterator[Event]:
    for bar in timeline.bars(worker):
        operation = bar.operation
        details = {
            "stage": operation.stage,
            "microbatch": f"{operation.pipeline}.{operation.microbatch}",
            "rerouted": bar.rerouted,
        }
        yield _slice(str(operation), pid, COMPUTE_THREAD, bar.start_ns, bar.end_ns - bar.start_ns, details) | {
            "cname": COLOURS[operation.kind],
            "cat": operation.kind.name,
        }


def _sends(plan: Plan, indices: set[int]) -> dict[int, list[tuple[int, int, int]]]:
    """For each sending worker index its ``(sending row, receiving row, transfer ns)`` by sending time."""
    flow = trace_dataflow(plan.problem, plan.schedule)
    receivers = np.flatnonzero(flow.is_remote)
    senders = flow.input_row[receivers]
    by_time = np.argsort(plan.schedule.end_ns[senders], kind="stable")
    found: dict[int, list[tuple[int, int, int]]] = {}
    for row, receiver in zip(senders[by_time].tolist(), receivers[by_time].tolist(), strict=True):
        source, target = int(flow.worker[row]), int(flow.worker[receiver])
        if source in indices and target in indices:
            found.setdefault(source, []).append((row, receiver, int(flow.link_ns[receiver])))
    return found


def _transfers(
    plan: Plan, sends: list[tuple[int, int, int]], pid: int, origin: int, arrows: list[_Arrow]
) -> Iterator[Event]:
    """Slices of a worker's sends, each in the first free lane; adds its arrows to ``arrows``."""
    schedule, slots = plan.schedule, plan.problem.num_slots
    lane_free: list[int] = []
    for row, receiver, link_ns in sends:
        if not link_ns:
            arrows.append(_Arrow(pid, COMPUTE_THREAD, int(schedule.start_ns[row]), receiver))
            continue
        end = int(schedule.end_ns[row])
        target = int(np.searchsorted(schedule.offsets, receiver, side="right")) - 1
        name = f"to {schedule.worker_at(target)}: {schedule.operation(receiver)}"
        lane = next((n for n, free in enumerate(lane_free) if free <= end), len(lane_free))
        tid = SEND_THREAD + lane
        if lane == len(lane_free):
            lane_free.append(0)
            label = THREAD_NAMES[SEND_THREAD] + (f" {lane + 1}" if lane else "")
            yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": label}}
        lane_free[lane] = end + link_ns
        yield _slice(name, pid, tid, end - origin, link_ns, {"slot": target % slots})
        arrows.append(_Arrow(pid, tid, end, receiver))


def _arrow(plan: Plan, arrow: _Arrow, origin: int) -> Iterator[Event]:
    """Both ends of an arrow, at the starts of the slices that they are tied to."""
    target = int(np.searchsorted(plan.schedule.offsets, arrow.receiver, side="right")) - 1
    shared = {"cat": "transfer", "name": "transfer", "id": arrow.receiver}
    begin, end = arrow.start_ns - origin, int(plan.schedule.start_ns[arrow.receiver]) - origin
    yield {"ph": "s", "pid": arrow.pid, "tid": arrow.tid, "ts": microseconds(begin), **shared}
    yield {"ph": "f", "bp": "e", "pid": target + 1, "tid": COMPUTE_THREAD, "ts": microseconds(end), **shared}


def _memory(timeline: Timeline, worker: Worker, pid: int) -> Iterator[Event]:
    """Counter of the activation bytes a worker holds, wherever it changes."""
    for when, held in timeline.memory(worker):
        yield {
            "ph": "C",
            "name": "activation bytes",
            "pid": pid,
            "tid": COMPUTE_THREAD,
            "ts": microseconds(when),
            "args": {"bytes": held},
        }


def _slice(name: str, pid: int, tid: int, start_ns: int, duration_ns: int, details: Event) -> Event:
    start, duration = microseconds(start_ns), microseconds(duration_ns)
    return {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": start, "dur": duration, "args": details}
