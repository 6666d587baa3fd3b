"""Slurm's node states as failure events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.adapters import slurm
from api.adapters.errors import ReportError
from api.adapters.slurm import slurm_events
from api.adapters.verdicts import Verdict
from planner.errors import DocumentLimitError, ReplanError
from planner.failure_state import FailureEvent, FailureState
from planner.operation import Worker
from tests.api.adapters.jobs import follow, job_on

JOB = job_on()

NODE_LINES = """\
gpu0001 allocated
gpu0001 allocated
gpu0002 mixed-
gpu0003 drained$
gpu0004 down*
gpu0005 draining
gpu0006 allocated*
gpu0007 idle
gpu0008 maint
login1 idle
"""

TABLE = """\
PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST
batch*       up   infinite      1   boot gpu0007
batch*       up   infinite      1 drain$ gpu0003
batch*       up   infinite      6  alloc gpu[0001-0002,0005-0006,0008-0009]
batch*       up   infinite      1   down gpu0004
debug        up      30:00      2  alloc gpu[0001-0002]
cloud        up   infinite      1  idle# cl1
"""

LONG_TABLE = """\
NODELIST   NODES PARTITION       STATE CPUS    S:C:T MEMORY TMP_DISK WEIGHT AVAIL_FE REASON
gpu0001        1    batch*   allocated 1       1:1:1      1        0      1   (null) none
gpu0003        1    batch*     drained 1       1:1:1      1        0      1   (null) ECC errors on GPU 5
gpu0003        1     debug     drained 1       1:1:1      1        0      1   (null) ECC errors on GPU 5
"""


def said(text: str, state: FailureState | None = None, **options: Verdict) -> list[str]:
    """What the events of a report say; checks that the report repeated says nothing."""
    return follow(JOB, state or FailureState(), lambda known: slurm_events(text, JOB, known, **options))[1]


def test_a_line_for_each_node() -> None:
    """Two partitions name a node twice; what is drained, down or in maintenance failed; what drains or is silent did not."""
    assert said(NODE_LINES) == ["node_failed gpu[0003-0004,0008]"]


def test_tables() -> None:
    """Columns are found by the heading, with long and short states, whatever a reason holds."""
    assert said(TABLE) == ["node_failed gpu[0003-0004,0007]"]
    assert said(LONG_TABLE) == ["node_failed gpu0003"]


def test_failures_come_before_recoveries() -> None:
    """Each epoch on the way leaves out all that is down; other kinds of failures are not touched."""
    state = FailureState(nodes=("gpu0001", "gpu0003", "gpu0006"), ranks=(14,), workers=(Worker(0, 1),))
    after, events = follow(JOB, state, lambda known: slurm_events(NODE_LINES, JOB, known))
    assert events == ["node_failed gpu[0004,0008]", "node_recovered gpu0001"]
    # gpu0006 does not answer: it stays as it was. GPU 14 goes with its node gpu0008.
    assert after == FailureState(nodes=("gpu0003", "gpu0004", "gpu0006", "gpu0008"), workers=(Worker(0, 1),))


def test_silent_and_missing_nodes_are_what_the_caller_says() -> None:
    """A star and unknown are silence; down* is not; nodes that are not named are missing."""
    text = "gpu0001 idle*\ngpu0002 unk*\ngpu0003 unknown\ngpu0004 down*\ngpu[0005-0007] alloc\n"
    assert said(text) == ["node_failed gpu0004"]
    assert said(text, silent=Verdict.FAILED) == ["node_failed gpu[0001-0004]"]
    assert said(text, missing=Verdict.FAILED) == ["node_failed gpu[0004,0008]"]


# sinfo(1), "NODE STATE CODES": + F failed, + I in service, + S silent.
@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ("allocated alloc ALLOCATED+ mixed mix idle completing comp draining drng failing failg planned plnd", "I"),
        ("reserved resv allocated$ allocated@ allocated! mixed- perfctrs npc", "I"),
        ("down drained drain fail maint future futr inval reboot boot power_down powered_down powering_up", "F"),
        ("down* drained* maint* fail* idle~ idle# mixed% allocated^", "F"),
        ("unknown unk unknown* idle* allocated* draining* completing*", "S"),
    ],
)
def test_states(states: str, expected: str) -> None:
    """Each state of the manual, with its suffixes."""
    for word in states.split():
        text = f"gpu0001 {word}\ngpu[0002-0008] idle\n"
        failed = said(text) == ["node_failed gpu0001"]
        recovered = said(text, FailureState(nodes=("gpu0001",))) == ["node_recovered gpu0001"]
        assert {"I": (False, True), "F": (True, False), "S": (False, False)}[expected] == (failed, recovered), word


def test_names_with_a_domain() -> None:
    """The job's own spelling stands in the events."""
    job = job_on([f"GPU{n}.cluster.example" for n in range(8)])
    (event,) = slurm_events("gpu[0-6] idle\ngpu7 down\n", job, FailureState())
    assert event == FailureEvent(kind="node_failed", nodes="GPU7.cluster.example")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no node of job 'job', whose 8 nodes are gpu0001 to gpu0008"),
        ("other[1-9] idle", "names no node of job"),
        ("gpu0001 idle\ngpu0002 down or so", "line 2 has 4 columns; expected two"),
        ("gpu0001", "line 1 has 1 columns"),
        ("gpu[0001 idle", "line 1: hostlist 'gpu\\[0001' is malformed"),
        ("\n\ngpu[2-1] idle", "line 3: .*range 2-1 falls"),
        ("gpu0001 id1e", "line 1: 'id1e' is no node state"),
        ("gpu0001 idle**", "is no node state"),
        ("gpu0001 powering", "line 1: node state 'powering' is not known here"),
        ("gpu0001 idle\ngpu0001 down", "line 2: node gpu0001 is failed, but in_service further up"),
        ("gpu[0001-0008] down", "says that every node of job 'job' is down"),
        ("REASON               USER      TIMESTAMP           NODELIST\nx root t gpu0005", "the heading is"),
        ("REASON NODELIST STATE\nbad fan gpu0001 down", "column REASON stands before"),
        ("NODELIST STATE\ngpu0001", "line 2 has 1 columns; its heading has more"),
        ("Mon Nov 30 07:35:05 2026\nNODELIST STATE\ngpu0001 idle", "line 1 has 5 columns"),
        ("gpu0001\x00 idle", "line 1: hostlist"),
        ("slurm_load_partitions: Unable to contact slurm controller (connect failure)", "line 1 has 8 columns"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, message: str) -> None:
    """Line, what was found, and nothing reported."""
    with pytest.raises(ReportError, match=message):
        slurm_events(f"{text}\n", JOB, FailureState())


def test_a_report_that_is_cut_short_is_refused() -> None:
    """What is left of draining may read drain."""
    with pytest.raises(ReportError, match="ends within a line: 'gpu0001 drain'"):
        slurm_events("gpu0001 drain", JOB, FailureState())


def test_states_of_other_nodes_may_be_new() -> None:
    """A state that is not known here matters only for nodes of the job."""
    assert said("gpu0001 down\ngpu0002 idle\nother hibernating\n") == ["node_failed gpu0001"]


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long report is not read; short lines that name many nodes are counted over all lines."""
    with pytest.raises(DocumentLimitError, match="expected at most 16777216"):
        slurm_events(" " * (slurm.MAX_BYTES + 1), JOB, FailureState())
    with pytest.raises(DocumentLimitError, match=r"line 3: .* names more than 262144 nodes"):
        slurm_events("x[1-131072] idle\n" * 3, JOB, FailureState())
    with pytest.raises(ReportError, match=r"line 1: .* stands for more than 262144 nodes"):
        slurm_events("x[0-9][0-9][0-9][0-9][0-9][0-9] idle\n", JOB, FailureState())


@given(st.text(alphabet="gpu[01-8],* idledown\n\t+#\x00é", max_size=60))
def test_no_text_ends_otherwise_than_typed(text: str) -> None:
    """Whatever comes in gives events or an error of ours."""
    try:
        slurm_events(text, JOB, FailureState())
    except ReplanError:
        return
