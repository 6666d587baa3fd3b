"""Executed timelines as a Chrome trace, for Perfetto: laid out like the trace of a plan, so that both fit side by side.

The layout is that of ``docs/cli.md`` (``replan show``). What an executed run has and a plan has not: waits for messages on the
second thread, and all-reduces, barriers and steps one by one on the third.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from replan_client.operation import Kind, Operation, Worker
from replan_client.torch.errors import TraceError
from replan_client.torch.timeline import Activity, Timeline, TimelineEvent

COMPUTE_THREAD, RECEIVE_THREAD, OPTIMIZER_THREAD, SEND_THREAD = 1, 2, 3, 4
"""Threads of each process; further lanes of sends follow the last."""

THREAD_NAMES = {
    COMPUTE_THREAD: "compute",
    RECEIVE_THREAD: "receive",
    OPTIMIZER_THREAD: "optimizer",
    SEND_THREAD: "send",
}

COLOURS = {Kind.F: "thread_state_running", Kind.I: "thread_state_iowait", Kind.W: "good", Kind.B: "bad"}
"""``cname`` of each kind's slices."""

_Event = dict[str, Any]
_Key = tuple[int, Operation]
"""Iteration and message: each is sent once."""


def write_trace(
    timelines: Sequence[Timeline],
    path: Path,
    *,
    num_slots: int,
    held_bytes: Mapping[int, tuple[int, int]] | None = None,
) -> None:
    """Write the timelines of some workers as one trace; the file appears whole or not at all.

    Parameters
    ----------
    timelines
        One for each worker.
    path
        The file.
    num_slots
        Slots of the job, for the numbers of the processes.
    held_bytes
        By stage, the job's ``activation_bytes`` and ``weight_grad_bytes``: the counter then shows bytes, else microbatches.

    Raises
    ------
    TraceError
        If the file cannot be written.
    """
    try:
        with tempfile.NamedTemporaryFile("w", dir=path.parent, encoding="ascii", delete=False) as file:
            try:
                file.write('{"displayTimeUnit":"ms","traceEvents":[\n')
                for number, event in enumerate(trace_events(timelines, num_slots=num_slots, held_bytes=held_bytes)):
                    file.write((",\n" if number else "") + json.dumps(event, separators=(",", ":")))
                file.write("\n]}\n")
                file.close()
                os.replace(file.name, path)  # noqa: PTH105 - the temporary name is a string
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise
    except OSError as error:
        raise TraceError(f"the trace cannot be written to {path}: {error.strerror}") from error


def trace_events(
    timelines: Sequence[Timeline], *, num_slots: int, held_bytes: Mapping[int, tuple[int, int]] | None = None
) -> Iterator[_Event]:
    """Events of the trace: worker by worker names, slices and counters, then all arrows.

    Parameters
    ----------
    timelines, num_slots, held_bytes
        As for :func:`write_trace`.
    """
    writer = _Writer(timelines, num_slots, held_bytes)
    for order, timeline in enumerate(timelines):
        yield from writer.worker(order, timeline)
    yield from writer.arrows()


class _Writer:
    """Makes the events of all workers; times count from the first event of any."""

    def __init__(
        self, timelines: Sequence[Timeline], num_slots: int, held_bytes: Mapping[int, tuple[int, int]] | None
    ) -> None:
        self.num_slots = num_slots
        self.held_bytes = held_bytes
        self.zero = min((e.start_ns - t.origin_ns for t in timelines for e in t.events), default=0)
        self.taken: dict[_Key, int] = {}
        self.needed: dict[_Key, tuple[int, int]] = {}
        self.begun: list[tuple[_Key, int, int, int]] = []
        for timeline in timelines:
            for event in timeline.events:
                self._look_ahead(timeline, event)

    def worker(self, order: int, timeline: Timeline) -> Iterator[_Event]:
        """Names, slices and the counter of one worker."""
        pid = self._pid(timeline.worker)
        name = {"name": f"worker {timeline.worker}"}
        yield {"ph": "M", "name": "process_name", "pid": pid, "tid": COMPUTE_THREAD, "args": name}
        yield {
            "ph": "M",
            "name": "process_sort_index",
            "pid": pid,
            "tid": COMPUTE_THREAD,
            "args": {"sort_index": order},
        }
        for tid in (COMPUTE_THREAD, RECEIVE_THREAD, OPTIMIZER_THREAD):
            yield _thread(pid, tid, THREAD_NAMES[tid])
        lanes: list[int] = []
        for event in timeline.events:
            if event.activity is Activity.SEND:
                yield from self._send(timeline, event, pid, lanes)
            else:
                yield self._slice(timeline, event, pid)
        yield from self._counter(timeline, pid)

    def arrows(self) -> Iterator[_Event]:
        """Both ends of each message's arrow, at the starts of the slices that they are tied to."""
        for number, (key, pid, tid, begin) in enumerate(self.begun):
            if key in self.needed:
                other, end = self.needed[key]
                shared = {"cat": "transfer", "name": "transfer", "id": number}
                yield {"ph": "s", "pid": pid, "tid": tid, "ts": microseconds(begin), **shared}
                yield {"ph": "f", "bp": "e", "pid": other, "tid": COMPUTE_THREAD, "ts": microseconds(end), **shared}

    def _look_ahead(self, timeline: Timeline, event: TimelineEvent) -> None:
        """Note when a message is taken and when what needs it begins, before its sender is written."""
        operation = event.operation
        if operation is None:
            return
        if event.activity is Activity.RECEIVE:
            self.taken[event.iteration, operation] = self._at(timeline, event.end_ns)
        elif event.activity is Activity.COMPUTE and operation.kind is not Kind.W:
            kind = Kind.F if operation.kind is Kind.F else Kind.I
            message = Operation(kind, operation.stage, operation.pipeline, operation.microbatch)
            self.needed[event.iteration, message] = (self._pid(timeline.worker), self._at(timeline, event.start_ns))

    def _slice(self, timeline: Timeline, event: TimelineEvent, pid: int) -> _Event:
        start, end = self._at(timeline, event.start_ns), self._at(timeline, event.end_ns)
        operation = event.operation
        if event.activity is Activity.COMPUTE and operation is not None:
            details = {
                "stage": operation.stage,
                "microbatch": f"{operation.pipeline}.{operation.microbatch}",
                "rerouted": operation.pipeline != timeline.worker.pipeline,
                "iteration": event.iteration,
            }
            drawn = {"cname": COLOURS[operation.kind], "cat": operation.kind.name}
            return _slice(str(operation), pid, COMPUTE_THREAD, start, end, details) | drawn
        details = {"iteration": event.iteration}
        if event.activity is Activity.RECEIVE:
            return _slice(f"from {event.peer}: {operation}", pid, RECEIVE_THREAD, start, end, details)
        name = event.activity.replace("_", "-") + ("" if event.stage is None else f" {event.stage}")
        return _slice(name, pid, OPTIMIZER_THREAD, start, end, details)

    def _send(self, timeline: Timeline, event: TimelineEvent, pid: int, lanes: list[int]) -> Iterator[_Event]:
        """A transfer, from handing over until the receiver takes it, in the first free lane."""
        assert event.operation is not None
        key = (event.iteration, event.operation)
        start = self._at(timeline, event.start_ns)
        end = max(self.taken.get(key, start), self._at(timeline, event.end_ns))
        lane = next((n for n, free in enumerate(lanes) if free <= start), len(lanes))
        tid = SEND_THREAD + lane
        if lane == len(lanes):
            lanes.append(0)
            yield _thread(pid, tid, THREAD_NAMES[SEND_THREAD] + (f" {lane + 1}" if lane else ""))
        lanes[lane] = end
        yield _slice(f"to {event.peer}: {event.operation}", pid, tid, start, end, {"iteration": event.iteration})
        self.begun.append((key, pid, tid, start))

    def _counter(self, timeline: Timeline, pid: int) -> Iterator[_Event]:
        """What the worker holds between F and W, wherever it changes."""
        name, unit = (
            ("microbatches in flight", "microbatches") if self.held_bytes is None else ("activation bytes", "bytes")
        )
        held = 0
        for event in timeline.events:
            if event.activity is not Activity.COMPUTE or event.operation is None:
                continue
            kind = event.operation.kind
            whole, kept = (1, 1) if self.held_bytes is None else self.held_bytes[event.operation.stage]
            change = {Kind.F: whole, Kind.I: kept - whole, Kind.W: -kept, Kind.B: -whole}[kind]
            if change:
                held += change
                when = self._at(timeline, event.start_ns if kind is Kind.F else event.end_ns)
                yield {
                    "ph": "C",
                    "name": name,
                    "pid": pid,
                    "tid": COMPUTE_THREAD,
                    "ts": microseconds(when),
                    "args": {unit: held},
                }

    def _at(self, timeline: Timeline, when_ns: int) -> int:
        return when_ns - timeline.origin_ns - self.zero

    def _pid(self, worker: Worker) -> int:
        return worker.pipeline * self.num_slots + worker.slot + 1


def microseconds(value_ns: int) -> float:
    """Microseconds that a viewer turns back into exactly these nanoseconds, though it cuts off and does not round.

    Examples
    --------
    >>> microseconds(1001) * 1000
    1001.0000000000001
    """
    value = value_ns / 1000
    return value if int(value * 1000) == value_ns else math.nextafter(value, math.inf)


def _thread(pid: int, tid: int, name: str) -> _Event:
    return {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}


def _slice(name: str, pid: int, tid: int, start: int, end: int, details: _Event) -> _Event:
    duration = microseconds(end - start)
    return {
        "ph": "X",
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": microseconds(start),
        "dur": duration,
        "args": details,
    }
