"""Traces of executed runs: they hold what ran, and look like the trace of a plan."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from replan_client.operation import Worker, parse_operation
from replan_client.program import Compute, Send
from replan_client.torch.errors import TraceError
from replan_client.torch.timeline import Activity, Timeline, TimelineEvent
from replan_client.torch.trace import COLOURS, THREAD_NAMES, trace_events, write_trace

from planner.formats import chrome_trace
from tests.client.torch.planned import plan_job
from tests.client.torch.processes import processes
from tests.client.torch.training import train


def test_threads_and_colours_are_those_of_a_plan() -> None:
    """Whoever lays plan and run side by side finds the same on both."""
    assert THREAD_NAMES == chrome_trace.THREAD_NAMES
    assert {kind.name: colour for kind, colour in COLOURS.items()} == {
        kind.name: colour for kind, colour in chrome_trace.COLOURS.items()
    }


def test_a_run_is_drawn_whole(tmp_path: Path) -> None:
    """Each operation of each program once an iteration, in order and without overlap; one arrow a message, forward in time."""
    job = plan_job(2, 2, 3, dead=("1/1",))
    with processes() as group:
        found = train(group, job, 2, torch.float32)
    timelines = [
        Timeline(worker=worker, events=tuple(e for result in outcome.iterations for e in result.events))
        for worker, outcome in found.items()
    ]
    path = tmp_path / "run.trace.json"
    write_trace(timelines, path, num_slots=2, held_bytes={0: (10, 4), 1: (10, 4)})
    assert [file.name for file in tmp_path.iterdir()] == ["run.trace.json"]
    events = json.loads(path.read_text())["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    for worker in found:
        pid = worker.pipeline * 2 + worker.slot + 1
        computed = [e["name"] for e in slices if (e["pid"], e["tid"]) == (pid, 1)]
        instructions = job.program(worker).instructions
        assert computed == 2 * [str(i.operation) for i in instructions if isinstance(i, Compute)]
        sent = [e["name"] for e in slices if e["pid"] == pid and e["tid"] >= 4]
        assert sent == 2 * [f"to {i.target}: {i.message}" for i in instructions if isinstance(i, Send)]
        steps = [e["name"] for e in slices if (e["pid"], e["tid"]) == (pid, 3)]
        assert steps == 2 * ["flush", f"all-reduce {worker.slot}", f"step {worker.slot}"]
        rerouted = {e["name"] for e in slices if e["pid"] == pid and e["args"].get("rerouted")}
        assert (len(rerouted) > 0) == (worker == Worker(0, 1))
        held = [e["args"]["bytes"] for e in events if e["ph"] == "C" and e["pid"] == pid]
        # Nothing is held between iterations, and never less than nothing.
        assert held.count(0) >= 2
        assert (held[-1], min(held)) == (0, 0)
    _check_lanes(slices)
    _check_arrows(events, num_messages=2 * sum(isinstance(i, Send) for w in found for i in job.program(w).instructions))


def _check_lanes(slices: list[dict[str, Any]]) -> None:
    lanes: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in slices:
        lanes.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    for spans in lanes.values():
        # Half a nanosecond for the fractions of a microsecond.
        assert all(end <= begin + 0.0005 for (_, end), (begin, _) in pairwise(sorted(spans)))
    assert min(begin for spans in lanes.values() for begin, _ in spans) == 0


def _check_arrows(events: list[dict[str, Any]], num_messages: int) -> None:
    begins = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert set(begins) == set(ends)
    assert len(begins) == num_messages
    starts = Counter((e["pid"], e["tid"], e["ts"]) for e in events if e["ph"] == "X")
    for number, begin in begins.items():
        end = ends[number]
        assert begin["ts"] <= end["ts"]
        assert begin["pid"] != end["pid"]
        for event in (begin, end):
            assert starts[event["pid"], event["tid"], event["ts"]] == 1


def _event(activity: Activity, start_ns: int, end_ns: int, text: str, **fields: Any) -> TimelineEvent:
    operation = parse_operation(text)
    return TimelineEvent(
        activity=activity, iteration=0, start_ns=start_ns, end_ns=end_ns, operation=operation, **fields
    )


def test_clocks_of_two_machines_are_aligned() -> None:
    """Times count from each worker's origin; the counter counts microbatches where nobody says bytes."""
    first = Timeline(
        worker=Worker(0, 0),
        origin_ns=1_000_000,
        events=(
            _event(Activity.COMPUTE, 1_001_000, 1_003_000, "0F0.0"),
            _event(Activity.SEND, 1_003_000, 1_003_500, "1F0.0", peer=Worker(0, 1)),
        ),
    )
    second = Timeline(
        worker=Worker(0, 1),
        origin_ns=5_000_000,
        events=(
            _event(Activity.RECEIVE, 5_000_500, 5_004_000, "1F0.0", peer=Worker(0, 0)),
            _event(Activity.COMPUTE, 5_004_000, 5_006_000, "1F0.0"),
            _event(Activity.COMPUTE, 5_006_000, 5_007_000, "1B0.0"),
        ),
    )
    events = list(trace_events([first, second], num_slots=2))
    slices = {(e["pid"], e["name"]): (e["tid"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"}
    # The first event of all is the receive, half a microsecond behind the origin.
    assert slices == {
        (1, "0F0.0"): (1, 0.5, 2),
        (1, "to 0/1: 1F0.0"): (4, 2.5, 1),
        (2, "from 0/0: 1F0.0"): (2, 0, 3.5),
        (2, "1F0.0"): (1, 3.5, 2),
        (2, "1B0.0"): (1, 5.5, 1),
    }
    counters = [(e["pid"], e["name"], e["ts"], e["args"]) for e in events if e["ph"] == "C"]
    assert counters == [
        (1, "microbatches in flight", 0.5, {"microbatches": 1}),
        (2, "microbatches in flight", 3.5, {"microbatches": 1}),
        (2, "microbatches in flight", 6.5, {"microbatches": 0}),
    ]


def test_a_trace_of_nothing_is_a_trace(tmp_path: Path) -> None:
    """A worker that ran nothing has names only."""
    write_trace([Timeline(worker=Worker(0, 0), events=())], tmp_path / "t.json", num_slots=1)
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert {event["ph"] for event in events} == {"M"}


def test_a_trace_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """A folder that is not there, or in the file's place, is named; nothing is left behind."""
    with pytest.raises(TraceError, match=r"cannot be written to .*nowhere"):
        write_trace([], tmp_path / "nowhere" / "t.json", num_slots=1)
    (tmp_path / "folder").mkdir()
    with pytest.raises(TraceError, match=r"cannot be written to .*folder"):
        write_trace([], tmp_path / "folder", num_slots=1)
    assert [file.name for file in tmp_path.iterdir()] == ["folder"]
