"""Traces as CSV files: ``seconds,event,node`` with a header, events ``add`` and ``remove``, in order of time.

Two kinds of traces share the form. A trace *of a job* names the job's nodes, or single GPUs as ``rank:17``: all are up at the
start, a node is lost before it returns. A trace *of instances* names whatever a spot market gave: each instance arrives before it
leaves, and none is there before its arrival.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from planner.errors import InputError
from planner.formats.whole_file import whole_file
from planner.topology import Topology
from simulation.errors import TraceError
from simulation.trace import MAX_EVENTS, Trace, TraceEvent, TraceEventKind

HEADER = ("seconds", "event", "node")

MAX_TRACE_BYTES = 64 * 2**20
"""Largest file that is read."""

MAX_SECONDS = 1e10
"""Latest time, as in job files."""

_RANK = re.compile(r"rank:(0|[1-9][0-9]{0,8})")
_SECONDS = re.compile(r"[0-9]{1,11}(?:\.[0-9]{1,9})?")


def read_trace(path: Path, topology: Topology | None, *, duration_s: float | None = None) -> Trace:
    """Read a trace file.

    Parameters
    ----------
    path
        The file; its stem names the trace.
    topology
        The job's cluster; ``None`` for a trace of instances.
    duration_s
        As :func:`parse_trace` takes it.

    Raises
    ------
    TraceError
        Naming the row, if the file is no trace or contradicts itself.
    InputError
        If it cannot be read.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_TRACE_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    if len(data) > MAX_TRACE_BYTES:
        raise TraceError(f"{path} is larger than {MAX_TRACE_BYTES} bytes, the most a trace may have")
    try:
        # Spreadsheets put a byte order mark before the header.
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TraceError(f"{path} is not UTF-8 at byte {error.start}") from error
    return parse_trace(text, topology, name=path.stem, duration_s=duration_s)


def parse_trace(text: str, topology: Topology | None, *, name: str = "trace", duration_s: float | None = None) -> Trace:
    """Read the text of a trace. Rows count from 1, the header.

    Parameters
    ----------
    text
        The file's content.
    topology
        The job's cluster, all of it up at second 0, where training begins; ``None`` for instances, with which training begins at
        the first event.
    name
        What the trace is called.
    duration_s
        Seconds watched, above 0: later events are left out, and quiet time is added behind the last one; ``None`` for up to the
        last event.

    Raises
    ------
    TraceError
        Naming the row: a malformed row, a node that the job does not have, a time before the one above, a return of what was
        not lost, a second loss of what is lost; more than :data:`~simulation.trace.MAX_EVENTS` events; or without
        ``duration_s`` a file without events, or all of whose events are at the start.
    """
    is_job = topology is not None
    seen: set[str] = set()
    # Of a job those that are down, of instances those that are there: both begin empty.
    marked: set[str] = set()
    events: list[TraceEvent] = []
    for row, event in _rows(text):
        if events and event.seconds < events[-1].seconds:
            raise TraceError(
                f"row {row}: {event.seconds:g} s comes after {events[-1].seconds:g} s; expected rows in order of time"
            )
        if topology is not None and not _is_known(event.node, topology):
            raise TraceError(
                f"row {row}: the job has no node {_short(event.node)}",
                hint="a trace of a spot market's instances, with names of its own, is read with --instances",
            )
        is_up = (event.node in marked) != is_job
        _check_turn(row, event, is_up=is_up, is_new=event.node not in seen, is_job=is_job)
        seen.add(event.node)
        marked ^= {event.node}
        events.append(event)
        if len(events) > MAX_EVENTS:
            raise TraceError(f"row {row}: more than {MAX_EVENTS} events, the most that are simulated")
    if not events and not (is_job and duration_s is not None):
        raise TraceError(
            "the trace has no events; expected rows such as 3600,remove,n06 below the header",
            hint="with --duration all of the job's nodes are up all the time" if is_job else None,
        )
    start_s = 0.0 if is_job else events[0].seconds
    end_s = events[-1].seconds if duration_s is None else start_s + duration_s
    return Trace(
        name=name, events=tuple(event for event in events if event.seconds <= end_s), start_s=start_s, end_s=end_s
    )


def write_trace(trace: Trace, path: Path) -> None:
    """Write a trace's events; whole or not at all.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    with whole_file(path) as file:
        file.write(trace_text(trace.events).encode())


def trace_text(events: Iterable[TraceEvent]) -> str:
    """CSV text of events, which :func:`parse_trace` reads; times to the millisecond."""
    rows = (
        f"{round(event.seconds, 3):.3f}".rstrip("0").rstrip(".") + f",{event.kind},{event.node}" for event in events
    )
    return "\n".join((",".join(HEADER), *rows, ""))


def _rows(text: str) -> Iterator[tuple[int, TraceEvent]]:
    """Rows below the header with their numbers."""
    reader = csv.reader(io.StringIO(text), strict=True)
    row = 0
    try:
        for row, cells in enumerate(reader, start=1):
            if row == 1:
                if tuple(cells) != HEADER:
                    raise TraceError(f"row 1 is {_short(','.join(cells))}; expected the header {','.join(HEADER)}")
            elif cells:
                yield row, _event(row, cells)
    except csv.Error as error:
        raise TraceError(f"row {row + 1} is no CSV: {error}") from error
    if row == 0:
        raise TraceError(f"the trace is empty; expected the header {','.join(HEADER)} and a row for each event")


def _event(row: int, cells: Sequence[str]) -> TraceEvent:
    if len(cells) != len(HEADER):
        raise TraceError(f"row {row} has {len(cells)} cells; expected {len(HEADER)}: {','.join(HEADER)}")
    seconds, kind, node = cells
    if _SECONDS.fullmatch(seconds) is None or not math.isfinite(float(seconds)) or float(seconds) > MAX_SECONDS:
        raise TraceError(
            f"row {row}: time {_short(seconds)} cannot be read; expected seconds from 0 to 1e10 such as 3600"
        )
    if kind not in tuple(TraceEventKind):
        raise TraceError(f"row {row}: event {_short(kind)} is not known; expected add or remove")
    if not node or not node.isprintable() or len(node) > 200:
        raise TraceError(f"row {row}: node {_short(node)} is no name; expected 1 to 200 printable characters")
    return TraceEvent(seconds=float(seconds), kind=TraceEventKind(kind), node=node)


def _is_known(name: str, topology: Topology) -> bool:
    """Whether a name is a node of the cluster or one of its GPUs."""
    rank = _RANK.fullmatch(name)
    return name in topology.index_of_node or (rank is not None and int(rank[1]) < topology.num_gpus)


def _check_turn(row: int, event: TraceEvent, *, is_up: bool, is_new: bool, is_job: bool) -> None:
    """Check that what is lost was there and that what returns was lost."""
    if event.kind is TraceEventKind.REMOVE and not is_up:
        if is_new:
            raise TraceError(f"row {row}: {event.node} is lost before it was added; expected it added first")
        raise TraceError(f"row {row}: {event.node} is lost twice; expected its return before another loss")
    if event.kind is TraceEventKind.ADD and is_up:
        if is_new and is_job:
            raise TraceError(
                f"row {row}: {event.node} returns before it was lost; all nodes of the job are up at the start",
                hint="a trace that begins with arrivals is one of instances: read it with --instances",
            )
        raise TraceError(f"row {row}: {event.node} is added twice; expected its loss before another return")


def _short(text: str) -> str:
    return repr(text) if len(text) <= 60 else f"{text[:57]!r}..."
