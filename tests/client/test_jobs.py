"""Reports as they are sent: the service takes every one that the client can make."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replan_client.errors import ArgumentError
from replan_client.jobs import Acknowledgements, Event, EventKind, JobSummary
from replan_client.jobs import Mode as ClientMode

from api.jobs.forms import Acknowledgements as ServedAcknowledgements
from api.jobs.forms import JobAnswer, JobEvent, Mode


@given(
    kind=st.sampled_from(get_args(EventKind)),
    nodes=st.lists(st.from_regex(r"n[0-9]{1,3}", fullmatch=True), max_size=3),
    ranks=st.lists(st.integers(0, 2**31 - 1), max_size=3),
    workers=st.lists(st.from_regex(r"[0-9]{1,3}/[0-9]{1,3}", fullmatch=True), max_size=3),
    speed=st.none() | st.floats(0, 1, exclude_min=True, exclude_max=True),
    iteration=st.none() | st.integers(0, 2**53),
    expected_epoch=st.none() | st.integers(1, 2**31 - 1),
)
@settings(max_examples=100, deadline=None)
def test_the_service_reads_what_was_meant(kind: EventKind, **fields: Any) -> None:
    """Every field comes out as it went in; what is left out is left out."""
    event = Event(
        kind=kind, **{name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
    )
    read = JobEvent.model_validate_json(event.to_bytes())
    assert read.kind == kind
    assert list(event.nodes) == (read.nodes or [])
    assert (list(event.ranks), list(event.workers)) == (read.ranks, read.workers)
    assert (event.speed, event.iteration, event.expected_epoch) == (read.speed, read.iteration, read.expected_epoch)


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "node_lost"},
        {"kind": "node_failed", "nodes": "n06"},
        {"kind": "node_failed", "workers": "1/2"},
        {"kind": "node_degraded", "speed": 1.0},
        {"kind": "node_degraded", "speed": float("nan")},
        {"kind": "node_failed", "iteration": -1},
    ],
)
def test_events_that_no_service_takes_are_refused(fields: dict[str, Any]) -> None:
    """Before anything is sent."""
    with pytest.raises(ArgumentError):
        Event(**fields)


def test_answers_have_the_fields_of_the_service() -> None:
    """What the service's forms have the client's have too, but for times and the document."""
    assert set(JobAnswer.model_fields) - set(JobSummary.__slots__) == {"created_at", "updated_at", "job"}
    assert set(ServedAcknowledgements.model_fields) == set(Acknowledgements.__slots__)
    assert get_args(Mode) == get_args(ClientMode)
    assert get_args(JobEvent.model_fields["kind"].annotation) == get_args(EventKind)
