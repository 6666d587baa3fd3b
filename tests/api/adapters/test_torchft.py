"""torchft's lighthouse status as failure events."""

from __future__ import annotations

import html

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.adapters import torchft
from api.adapters.errors import ReportError
from api.adapters.torchft import torchft_events
from planner.errors import DocumentLimitError, ReplanError
from planner.failure_state import FailureState
from planner.operation import Worker
from tests.api.adapters.jobs import follow, job_on

JOB = job_on()
UUID = "3f2504e0-4f89-11d3-9a0c-0305e82c33"

EMPTY = """
Current quorum_id: 0 <br>
Next quorum status: New quorum not ready, only have 0 participants, need min_replicas 2 [0/0 participants healthy]

<h3>Previous Quorum</h3>


<h2>Heartbeats</h2>

<ul>

</ul>"""


def page(members: dict[str, bool], heartbeats: dict[str, bool], *, world_size: int = 4) -> str:
    """A page as the lighthouse writes it: members by whether they recover, heartbeats by whether they are old."""
    parts = [
        "\nCurrent quorum_id: 2 <br>\nNext quorum status: Valid quorum found [3/3 participants healthy]\n\n"
        "<h3>Previous Quorum</h3>\n\n\nPrevious quorum id: 2 <br>\n"
        f"Num participants: {len(members)} <br>\nQuorum age:\n0.002615131s\n\n<div>\n\n"
    ]
    for replica, is_recovering in members.items():
        name = html.escape(replica)
        parts.append(
            f'\n<div class="member\n {"recovering" if is_recovering else ""}\n">\n  <b>{name}</b> <br/>\n  Step: 1200 <br/>\n'
            f"  Manager: http://gpu0001:41240 <br/>\n  TCPStore: gpu0001:29500 <br/>\n  World size: {world_size} <br/>\n\n"
            f'  <button hx-post="/replica/{name}/kill"\n          hx-trigger="click">\n    Kill\n  </button>\n</div>\n\n'
        )
    parts.append("\n</div>\n\n\n<h2>Heartbeats</h2>\n\n<ul>\n\n")
    for replica, is_old in heartbeats.items():
        parts.append(
            f'\n  \n  <li class="heartbeat\n    {"old" if is_old else ""}\n  ">\n    {html.escape(replica)}: '
            f"seen {23.511066883 if is_old else 0.0028}s ago\n  </li>\n\n"
        )
    return "".join([*parts, "\n</ul>"])


def replicas(*groups: int, restart: int = 0) -> list[str]:
    """Ids of replica groups; each restart has another UUID."""
    return [f"train_ddp_{group}:{UUID}{restart}{group}" for group in groups]


def test_a_group_without_heartbeat_is_down() -> None:
    """Four groups of four GPUs are a pipeline each: the third is lost, comes back with another id, and catches up first."""
    live, lost, again = replicas(0, 1, 3), replicas(2), replicas(2, restart=1)
    beats = dict.fromkeys(live, False) | dict.fromkeys(lost, True)
    state, events = follow(
        JOB, FailureState(), lambda known: torchft_events(page(dict.fromkeys(live, False), beats), JOB, known)
    )
    assert events == ["node_failed 2/0,2/1"]
    beats |= dict.fromkeys(again, False)
    for members in (dict.fromkeys(live, False), dict.fromkeys(live, False) | dict.fromkeys(again, True)):
        text = page(members, beats)
        assert torchft_events(text, JOB, state) == ()
    text = page(dict.fromkeys([*live, *again], False), beats)
    state, events = follow(JOB, state, lambda known: torchft_events(text, JOB, known))
    assert (state, events) == (FailureState(), ["node_recovered 2/0,2/1"])


def test_a_member_of_the_newest_quorum_may_be_dead() -> None:
    """The quorum is only formed anew at the next step; what counts is the heartbeat."""
    members = dict.fromkeys(replicas(0, 1, 2, 3), False)
    text = page(members, {replica: number == 1 for number, replica in enumerate(members)})
    assert follow(JOB, FailureState(), lambda known: torchft_events(text, JOB, known))[1] == ["node_failed 1/0,1/1"]


def test_groups_of_several_pipelines() -> None:
    """Two groups of 8 GPUs are two pipelines each; a group that is nowhere is lost."""
    text = page(dict.fromkeys(replicas(1), False), dict.fromkeys(replicas(1), False), world_size=8)
    assert follow(JOB, FailureState(), lambda known: torchft_events(text, JOB, known))[1] == [
        "node_failed 0/0,0/1,1/0,1/1"
    ]


def test_failures_of_others_stay() -> None:
    """Nodes and ranks were reported by somebody else."""
    state = FailureState(nodes=("gpu0001",), ranks=(6,), workers=(Worker(1, 0),))
    text = page(dict.fromkeys(replicas(0, 1, 2, 3), False), dict.fromkeys(replicas(0, 1, 2, 3), False))
    after, events = follow(JOB, state, lambda known: torchft_events(text, JOB, known))
    assert (after, events) == (FailureState(nodes=("gpu0001",), ranks=(6,)), ["node_recovered 1/0"])


def test_without_a_quorum_nothing_is_known() -> None:
    """A lighthouse that has just started reports nothing."""
    assert torchft_events(EMPTY, JOB, FailureState(workers=(Worker(1, 0),))) == ()


def test_old_heartbeats_of_strangers_do_not_matter() -> None:
    """The lighthouse never forgets an id; one without a number may have been a test long ago."""
    live = dict.fromkeys(replicas(0, 1, 2, 3), False)
    assert torchft_events(page(live, live | {f"{UUID}00": True, "a&b <c>": True}), JOB, FailureState()) == ()


LIVE = dict.fromkeys(replicas(0, 1, 2, 3), False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no quorum id"),
        ('{"quorum_id": 3}', "has no quorum id"),
        ("Current quorum_id: 1 <br>\n<", "line 2: malformed HTML at '<'"),
        ("\n<script>1 < 2</script>", "line 2: malformed HTML at '< 2</script>'"),
        (page(LIVE, LIVE).split("<ul>")[0] + "</ul>", "says that every worker of job 'job' is down"),
        (page(LIVE, LIVE).rpartition('<div class="member')[0] + "</ul>", "announces 4 participants, lists 3"),
        (page(LIVE, LIVE).rpartition("<li")[0], "lists 4 and ends with </li>; expected all of them"),
        (page(LIVE, LIVE)[:-4], r"line [0-9]+: malformed HTML at '<'"),
        (page(LIVE, dict.fromkeys(LIVE, True)), "says that every worker of job 'job' is down"),
        (page(LIVE, LIVE, world_size=3), "have world size 3; job 'job' has 16 GPUs in 4 pipelines; expected 4 or"),
        (page(LIVE, LIVE, world_size=2), "have world size 2"),
        (page(LIVE, LIVE, world_size=32), "have world size 32"),
        (page(LIVE, LIVE, world_size=0), "has the id train_ddp_0:3f2504e0-.* and the world size 0"),
        (page(LIVE, LIVE).replace("World size: 4", "World size: 8", 1), "have world size 4 and 8"),
        (page(LIVE, LIVE).replace("World size: 4", "GPUs: 4", 1), "and the world size None"),
        (page({f"{UUID}00": False}, {f"{UUID}00": False}), "has no number; expected a name such as replica_3"),
        (page(LIVE, LIVE | {"replica": False}), "replica 'replica' has no number"),
        (page(LIVE, LIVE | {"replica_4": False}), "replica 'replica_4' is group 4; expected 0 to 3"),
        (page(LIVE, LIVE).replace("s ago", " seconds ago", 1), "heartbeat 'train_ddp_0:.* seconds ago'; expected"),
        (page(LIVE, LIVE).replace(" <br/>", "</b><b>x</b>", 1), "a member has the id 'x'"),
        (page(LIVE, LIVE).replace("train_ddp_1", "train_ddp_0").replace("3301", "3300"), "two heartbeats of"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, message: str) -> None:
    """Line or replica, and nothing reported."""
    with pytest.raises(ReportError, match=message):
        torchft_events(text, JOB, FailureState())


def test_limits() -> None:
    """Long pages are not read, and none takes more than linear time."""
    with pytest.raises(DocumentLimitError, match="expected at most 16777216"):
        torchft_events(" " * (torchft.MAX_BYTES + 1), JOB, FailureState())
    for piece in ("<", "<a", "<a ", "<div class=", "x<b>", '<li class="heartbeat">' + "a" * 2000):
        with pytest.raises(ReportError):
            torchft_events(piece * (2**20 // len(piece)), JOB, FailureState())


@given(st.lists(st.sampled_from(page(LIVE, LIVE).splitlines(keepends=True)), max_size=40).map("".join))
def test_no_page_ends_otherwise_than_typed(text: str) -> None:
    """Lines in any order give events or an error of ours."""
    try:
        torchft_events(text, JOB, FailureState())
    except ReplanError:
        return
