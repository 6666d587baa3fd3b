"""nvidia-resiliency-ext's cycle info files as failure events."""

from __future__ import annotations

import json
from typing import Any

import pytest

from api.adapters import nvrx
from api.adapters.errors import ReportError
from api.adapters.nvrx import nvrx_events
from planner.errors import DocumentLimitError
from planner.failure_state import FailureState
from tests.api.adapters.jobs import follow, job_on

JOB = job_on()

RUNNING = """{
  "job_id": "4711",
  "attempt_index": 1,
  "cycle_number": 3,
  "cycle_start_time": "2026-11-30T07:39:03.836991Z",
  "cycle_log_file": "/logs/train_cycle3.log",
  "active_nodes": "gpu[0001-0004,0006-0007]",
  "standby_nodes": "gpu[0008-0010]",
  "cycle_end_time": "",
  "generation": "1",
  "active_ranks": "0-5"
}"""


def cycle(**fields: Any) -> str:
    """The file above with other fields; ``None`` leaves one out."""
    document = json.loads(RUNNING) | fields
    return json.dumps({name: value for name, value in document.items() if value is not None})


def test_active_nodes_are_in_service_and_no_others() -> None:
    """A node that is gone and one that stands by take no part; spares that are no nodes of the job do not matter."""
    state, events = follow(JOB, FailureState(), lambda known: nvrx_events(RUNNING, JOB, known))
    assert events == ["node_failed gpu[0005,0008]"]
    back = cycle(active_nodes="gpu[0001-0006,0008]", standby_nodes="", cycle_number=4)
    assert follow(JOB, state, lambda known: nvrx_events(back, JOB, known))[1] == [
        "node_failed gpu0007",
        "node_recovered gpu[0005,0008]",
    ]


def test_an_ended_cycle_says_nothing_of_the_present() -> None:
    """Between two cycles there is nothing to report."""
    ended = cycle(cycle_end_time="2026-11-30T08:00:00Z", generation="2")
    assert nvrx_events(ended, JOB, FailureState(nodes=("gpu0001",))) == ()


def test_padded_short_names() -> None:
    """n1 and n10 are written n[01,10], and domains are cut."""
    job = job_on([f"n{n}.cluster.example" for n in range(3, 11)])
    (event,) = nvrx_events(cycle(active_nodes="n[03-08,10]", standby_nodes=""), job, FailureState())
    assert event.nodes == "n9.cluster.example"


def test_names_without_numbers_and_fields_left_out() -> None:
    """A plain list of names, numbers as numbers, fields of a later version, and defaults left out as protobuf may."""
    job = job_on(["alpha", *(f"n{n}" for n in range(7))])
    text = cycle(
        active_nodes="alpha,n0,n1,n2,n3,n4,n5", standby_nodes=None, active_ranks=None, generation=7, later_field=[]
    )
    (event,) = nvrx_events(text, job, FailureState())
    assert event.nodes == "n6"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1, column 1: malformed JSON"),
        ("[]", "the document: Input should be"),
        (RUNNING[:200], "malformed JSON"),
        (cycle(active_nodes=None), "active_nodes: Field required"),
        (cycle(active_nodes=["gpu0001"]), "active_nodes: Input should be a valid string"),
        (cycle(active_nodes=""), "says that every node of job 'job' is down"),
        (cycle(active_nodes="", standby_nodes=""), "names no node of job"),
        (cycle(active_nodes="other[1-8]", standby_nodes=""), "names no node of job"),
        (cycle(active_nodes="gpu[0001-0008"), "active_nodes: hostlist"),
        (cycle(standby_nodes="gpu0001"), "standby_nodes: node gpu0001 is failed, but in_service further up"),
        (cycle(active_ranks="0-5;6"), "active_ranks is '0-5;6'"),
        (cycle(generation="-1"), "generation"),
        (cycle(attempt_index=-1), "attempt_index"),
        (cycle(attempt_index=True), "attempt_index"),
        (RUNNING.replace('"attempt_index": 1', '"job_id": "4712"'), "key 'job_id' stands twice"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, message: str) -> None:
    """Field or line, and nothing reported."""
    with pytest.raises(ReportError, match=message):
        nvrx_events(text, JOB, FailureState())


def test_limits() -> None:
    """Long and deep files are not read."""
    with pytest.raises(DocumentLimitError, match="expected at most 4194304"):
        nvrx_events(" " * (nvrx.MAX_BYTES + 1), JOB, FailureState())
    with pytest.raises(DocumentLimitError, match="nested deeper"):
        nvrx_events("[" * 100_000, JOB, FailureState())
