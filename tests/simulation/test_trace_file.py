"""Traces as files: what is read, and what is refused with its row."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import InputError
from planner.topology import uniform_racks
from simulation.errors import TraceError
from simulation.trace import MAX_EVENTS, Trace, TraceEvent, TraceEventKind
from simulation.trace_file import parse_trace, read_trace, trace_text, write_trace

NODES = uniform_racks(("a", "b", "c"), 2)
HEAD = "seconds,event,node\n"


def test_a_trace_of_a_job_is_read() -> None:
    """Nodes are up at second 0; a node and a single GPU may be lost and return."""
    trace = parse_trace(HEAD + "10,remove,a\n10.5,remove,rank:3\n20,add,a\n", NODES, name="t")
    assert (trace.start_s, trace.end_s, trace.initially_down) == (0.0, 20.0, ())
    assert [(e.seconds, e.kind, e.node) for e in trace.events] == [
        (10.0, TraceEventKind.REMOVE, "a"),
        (10.5, TraceEventKind.REMOVE, "rank:3"),
        (20.0, TraceEventKind.ADD, "a"),
    ]


def test_a_trace_of_instances_begins_with_its_first_arrival() -> None:
    """Names are the trace's own, and nothing is there before it arrives."""
    trace = parse_trace(HEAD + "480,add,x1\n500,add,x2\n900,remove,x1\n", None)
    assert (trace.start_s, trace.end_s, trace.duration_s) == (480.0, 900.0, 420.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the trace is empty"),
        (HEAD, "no events"),
        ("10,remove,a\n", "row 1 is '10,remove,a'; expected the header"),
        (HEAD + "10,remove\n", "row 2 has 2 cells"),
        (HEAD + "10,remove,a\n9,remove,b\n", "row 3: 9 s comes after 10 s"),
        (HEAD + "x,remove,a\n", "row 2: time 'x'"),
        (HEAD + "-1,remove,a\n", "row 2: time '-1'"),
        (HEAD + "nan,remove,a\n", "row 2: time 'nan'"),
        (HEAD + "1e3,remove,a\n", "row 2: time '1e3'"),
        (HEAD + "99999999999,remove,a\n", "row 2: time '99999999999'"),
        (HEAD + "10,loss,a\n", "row 2: event 'loss'"),
        (HEAD + "10,remove,d\n", "row 2: the job has no node 'd'"),
        (HEAD + "10,remove,rank:6\n", "row 2: the job has no node 'rank:6'"),
        (HEAD + "10,remove,\n", "row 2: node ''"),
        (HEAD + "10,add,a\n", "row 2: a returns before it was lost"),
        (HEAD + "10,remove,a\n11,remove,a\n", "row 3: a is lost twice"),
        (HEAD + "10,remove,a\n11,add,a\n12,add,a\n", "row 4: a is added twice"),
        (HEAD + '10,remove,"a\n', "row 2 is no CSV"),
    ],
)
def test_what_is_wrong_is_told_with_its_row(text: str, said: str) -> None:
    """Each kind of fault in a trace of a job."""
    with pytest.raises(TraceError) as caught:
        parse_trace(text, NODES)
    assert said in caught.value.message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEAD + "10,remove,x\n", "row 2: x is lost before it was added"),
        (HEAD + "10,add,x\n10,add,x\n", "row 3: x is added twice"),
        (HEAD + "10,add,x\n11,remove,x\n12,remove,x\n", "row 4: x is lost twice"),
    ],
)
def test_instances_arrive_before_they_leave(text: str, said: str) -> None:
    """Each fault of turns in a trace of instances."""
    with pytest.raises(TraceError) as caught:
        parse_trace(text, None)
    assert said in caught.value.message


def test_unknown_nodes_point_to_instances() -> None:
    """Whoever reads a spot market's trace as a job's is told how to."""
    with pytest.raises(TraceError) as caught:
        parse_trace(HEAD + "0,add,node1\n", NODES)
    assert caught.value.hint is not None
    assert "--instances" in caught.value.hint


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """A file and its trace are each other's inverse, to the millisecond."""
    trace = parse_trace(HEAD + "0,remove,a\n10.25,add,a\n3600,remove,b\n", NODES, name="t")
    path = tmp_path / "t.csv"
    write_trace(trace, path)
    assert read_trace(path, NODES) == trace
    assert trace_text(trace.events) == HEAD + "0,remove,a\n10.25,add,a\n3600,remove,b\n"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """A missing file and one that is no text."""
    with pytest.raises(InputError, match="cannot read"):
        read_trace(tmp_path / "none.csv", None)
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe")
    with pytest.raises(TraceError, match="not UTF-8"):
        read_trace(tmp_path / "bytes.csv", None)


def test_how_long_is_watched() -> None:
    """A shorter watch leaves events out, a longer one adds quiet time; where nothing says how long, that is refused."""
    text = HEAD + "10,remove,a\n20,remove,b\n"
    assert [event.node for event in parse_trace(text, NODES, duration_s=15).events] == ["a"]
    assert parse_trace(text, NODES, duration_s=100).duration_s == 100
    assert parse_trace(HEAD, NODES, duration_s=100).duration_s == 100
    assert parse_trace(HEAD + "7,add,x\n9,add,y\n", None, duration_s=100).end_s == 107
    for useless, topology in ((HEAD + "0,remove,a\n0,remove,b\n", NODES), (HEAD + "7,add,x\n7,add,y\n", None)):
        with pytest.raises(TraceError, match="expected an end after the start") as caught:
            parse_trace(useless, topology)
        assert "--duration" in str(caught.value.hint)
    for topology, duration_s in ((NODES, None), (None, 100.0)):
        with pytest.raises(TraceError, match="has no events"):
            parse_trace(HEAD, topology, duration_s=duration_s)


def test_a_byte_order_mark_is_no_part_of_the_header(tmp_path: Path) -> None:
    """Spreadsheets write one, and end lines with CR LF."""
    path = tmp_path / "t.csv"
    path.write_bytes(b"\xef\xbb\xbf" + (HEAD + "10,remove,a\n").replace("\n", "\r\n").encode())
    assert [event.node for event in read_trace(path, NODES).events] == ["a"]


def test_traces_have_a_limit() -> None:
    """One event more than is simulated is refused by its row."""
    text = HEAD + "".join(f"{i},{'add' if i % 2 else 'remove'},a\n" for i in range(MAX_EVENTS + 1))
    with pytest.raises(TraceError, match=f"row {MAX_EVENTS + 2}: more than {MAX_EVENTS} events"):
        parse_trace(text, NODES)
    made = parse_trace(text[: text.rindex("\n", 0, -1) + 1], NODES)
    assert len(made.events) == MAX_EVENTS
    more = TraceEvent(seconds=made.end_s, kind=TraceEventKind.REMOVE, node="a")
    with pytest.raises(TraceError, match="more than"):
        Trace(name="t", events=(*made.events, more), start_s=0, end_s=made.end_s)


def test_events_lie_in_what_was_watched() -> None:
    """A trace is not made with an event after its end."""
    made = parse_trace(HEAD + "10,remove,a\n", NODES)
    with pytest.raises(TraceError, match="outside what was watched"):
        Trace(name="t", events=made.events, start_s=0, end_s=5)


def test_moments_are_events_at_the_same_time() -> None:
    """Losses at one time are one moment."""
    trace = parse_trace(HEAD + "10,remove,a\n10,remove,b\n12,add,a\n", NODES)
    assert [(seconds, len(events)) for seconds, events in trace.moments()] == [(10.0, 2), (12.0, 1)]
