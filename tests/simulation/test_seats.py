"""Instances take a job's nodes."""

from __future__ import annotations

from simulation.seats import seat_instances
from simulation.trace import Trace
from simulation.trace_file import parse_trace


def seated(text: str) -> Trace:
    """What a job of nodes a and b sees of a trace of instances."""
    return seat_instances(parse_trace("seconds,event,node\n" + text, None), ("a", "b"))


def rows(trace: Trace) -> list[tuple[float, str, str]]:
    """Events as tuples."""
    return [(event.seconds, str(event.kind), event.node) for event in trace.events]


def test_first_come_first_seated() -> None:
    """Those there at the start are up then; a later one is an arrival."""
    trace = seated("5,add,x\n9,add,y\n20,remove,x\n")
    assert trace.initially_down == ("b",)
    assert rows(trace) == [(9, "add", "b"), (20, "remove", "a")]


def test_one_that_waits_takes_over_at_once() -> None:
    """The seat is lost and taken at the same moment: what was on it is gone."""
    trace = seated("0,add,x\n0,add,y\n0,add,z\n10,remove,x\n30,remove,z\n")
    assert trace.initially_down == ()
    assert rows(trace) == [(10, "remove", "a"), (10, "add", "a"), (30, "remove", "a")]


def test_one_that_leaves_while_it_waits_is_never_seen() -> None:
    """Whoever has no seat disturbs nobody."""
    assert rows(seated("0,add,x\n0,add,y\n0,add,z\n10,remove,z\n20,remove,y\n")) == [(20, "remove", "b")]


def test_free_seats_are_taken_in_rank_order() -> None:
    """Also where they became free in another order."""
    trace = seated("0,add,x\n0,add,y\n10,remove,y\n20,remove,x\n30,add,z\n40,remove,z\n")
    assert rows(trace)[2:] == [(30, "add", "a"), (40, "remove", "a")]


def test_leaving_at_the_start_counts_as_never_there() -> None:
    """A seat left in the very first moment is empty at the start."""
    trace = seated("0,add,x\n0,add,y\n0,remove,x\n10,remove,y\n")
    assert trace.initially_down == ("a",)
    assert rows(trace) == [(10, "remove", "b")]
