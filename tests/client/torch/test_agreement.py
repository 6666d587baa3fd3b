"""Where live workers go on from, for members as they come and for those of a model of training."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="torch, the extra of replan-client, is not installed")

from replan_client.operation import Worker
from replan_client.torch.agreement import Copy, Decision, Held, Member, agree
from replan_client.torch.training_errors import MemberRecordError, StateLostError

from tests.client.torch.training_model import Cluster


def member(position: str, *versions: int, is_initial: bool = False) -> Member:
    """A member at home."""
    pipeline, slot = map(int, position.split("/"))
    return Member(
        name=position,
        incarnation=1,
        position=Worker(pipeline, slot),
        stages=(slot,),
        is_loaded=True,
        held=(Held(stages=(slot,), versions=versions, is_initial=is_initial),),
    )


@st.composite
def members(draw: st.DrawFn) -> list[Member]:
    """Members of up to 4 pipelines and 3 slots, each with up to two versions."""
    versions = st.sets(st.integers(3, 6), max_size=2).map(sorted)
    positions = draw(st.sets(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=1))
    return [member(f"{k}/{s}", *draw(versions), is_initial=draw(st.booleans())) for k, s in positions]


@given(members(), st.randoms(use_true_random=False))
def test_everybody_decides_alike_and_as_late_as_can_be(given_members: list[Member], draw: random.Random) -> None:
    """The decision is the newest common version, names one donor for each who lacks it, and knows no order of members."""
    slots = {m.position.slot for m in given_members}
    common = [
        version
        for version in range(7)
        if all(any(version in m.held[0].versions for m in given_members if m.position.slot == slot) for slot in slots)
    ]
    shuffled = draw.sample(given_members, len(given_members))
    if not common:
        with pytest.raises(StateLostError, match=r"no live worker of slots|none in common"):
            agree(shuffled)
        return
    decision = agree(given_members)
    assert decision == agree(shuffled)
    assert decision.version == common[-1]
    by_position = {m.position: m for m in given_members}
    holding = {m.position for m in given_members if decision.version in m.held[0].versions}
    for copy in decision.copies:
        assert copy.donor.slot == copy.receiver.slot
        assert copy.donor in holding
        assert copy.receiver not in holding or by_position[copy.receiver].held[0].is_initial
        holding.add(copy.receiver)
    assert holding == set(by_position)


def test_who_has_received_gives_on() -> None:
    """Two donors of a slot serve two, and these four the next four; slots go on side by side."""
    slot = [member("0/0", 4), member("1/0"), member("2/0", 3, 4), *(member(f"{k}/0") for k in range(3, 8))]
    found = agree([*slot, member("0/1", 4), member("1/1")])
    pairs = [
        ("0/0", "1/0"),
        ("0/1", "1/1"),
        ("2/0", "3/0"),
        ("0/0", "4/0"),
        ("2/0", "5/0"),
        ("1/0", "6/0"),
        ("3/0", "7/0"),
    ]
    assert [(str(copy.donor), str(copy.receiver)) for copy in found.copies] == pairs


def test_at_the_start_peers_take_the_lowest_pipelines_state() -> None:
    """Nobody keeps the random numbers it began with; a worker that got its state from a peer counts before those that did not."""
    first = agree([member("0/0", 0, is_initial=True), member("1/0", 0, is_initial=True)])
    assert first == Decision(version=0, copies=(Copy(donor=Worker(0, 0), receiver=Worker(1, 0)),))
    again = agree([member("0/0", 0, is_initial=True), member("1/0", 0)])
    assert again == Decision(version=0, copies=(Copy(donor=Worker(1, 0), receiver=Worker(0, 0)),))


def test_whoever_leaves_a_slot_gives_its_state_on() -> None:
    """Where nobody stays who holds a slot's state, the worker that moves away is its donor, and gets another one itself."""
    moved = replace(
        member("0/0"), name="0/1", held=(Held(stages=(1,), versions=(3, 4)), Held(stages=(0,), versions=()))
    )
    found = agree([moved, member("1/0", 4), member("0/1")])
    assert found == Decision(
        version=4,
        copies=(Copy(donor=Worker(1, 0), receiver=Worker(0, 0)), Copy(donor=Worker(0, 0), receiver=Worker(0, 1))),
    )
    # One that stays comes first.
    assert agree([moved, member("1/0", 4), member("0/1"), member("1/1", 4)]).copies[1].donor == Worker(1, 1)


def test_a_slot_without_state_is_named() -> None:
    """A slot that only has newcomers, and versions that do not meet, are errors that say what is there."""
    with pytest.raises(StateLostError, match=r"slots \[1\] \(stages \[1\]\)"):
        agree([member("0/0", 4), member("0/1")])
    with pytest.raises(StateLostError, match=r"slot 0: \[4\]; slot 1: \[2, 3\]"):
        agree([member("0/0", 4), member("0/1", 2, 3)])


def test_contradictions_between_members_are_found() -> None:
    """Two members at one position, or peers with different stages, are never agreed with."""
    with pytest.raises(MemberRecordError, match="both stand at 0/0"):
        agree([member("0/0", 4), replace(member("0/0", 4), name="1/0")])
    with pytest.raises(MemberRecordError, match="its peer 1/0 stages"):
        agree([member("0/0", 4), replace(member("1/0", 4), stages=(0, 3))])


@given(members())
def test_records_round_trip(given_members: list[Member]) -> None:
    """What one publishes the others read."""
    for one in given_members:
        assert Member.from_bytes(one.to_bytes()) == one


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        member("0/0", 1).to_bytes()[:-1],
        member("0/0", 1).to_bytes().replace(b"0/0", b"0-0"),
        member("0/0", 1).to_bytes().replace(b"[1]", b"[2, 1]"),
        member("0/0", 1).to_bytes().replace(b"[1]", b"[-1]"),
        member("0/0", 1).to_bytes().replace(b"[1]", b"[true]"),
        member("0/0", 1).to_bytes().replace(b"[1]", b'"1"'),
        member("0/0", 1).to_bytes().replace(b"[[[0], [1], false]]", b"[[[0], [1]]]"),
        member("0/0", 1).to_bytes().replace(b"[0]", b"[]"),
        member("0/0", 1).to_bytes().replace(b'"is_loaded": true', b'"is_loaded": 1'),
        member("0/0", 1).to_bytes().replace(b"}", b', "other": 1}'),
        b" " * 65 * 1024,
    ],
)
def test_other_records_are_refused(content: bytes) -> None:
    """A record of any other form is an error, never a member."""
    with pytest.raises(MemberRecordError):
        Member.from_bytes(content)


def train_with_kills(cluster: Cluster, draw: random.Random) -> None:
    """Train on and on, with workers that die whenever, also while the others come together; raises if a state is lost."""
    for _ in range(6):
        cluster.advance(draw.randint(0, 40))
        newest = max(me.completed or 0 for me in cluster.workers.values())
        while draw.random() < 0.6:
            slot = draw.randrange(cluster.num_slots)
            stateful = [w for w in cluster.slot(slot) if cluster.workers[w].versions]
            if len(stateful) > 1:
                cluster.kill([draw.choice(stateful)])
            if draw.random() < 0.5:
                everybody = list(cluster.workers)
                cluster.form(num_copies=draw.randint(0, 4), adopting=draw.sample(everybody, len(everybody) // 2))
        decision = cluster.form()
        assert newest - 1 <= decision.version <= newest
        cluster.route()


@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(1, 3))
@settings(max_examples=300)
def test_two_versions_are_enough(seed: int, num_pipelines: int, num_slots: int) -> None:
    """While each slot keeps a worker with a state, all go on from the newest version that anybody reached, or the one before."""
    draw = random.Random(seed)
    train_with_kills(Cluster(draw=draw, num_pipelines=num_pipelines, num_slots=num_slots), draw)


def test_without_the_rule_for_idle_workers_two_versions_are_not_enough() -> None:
    """The model finds the loss that confirming steps in slots with an idle worker prevents."""
    lost = 0
    for seed in range(500):
        draw = random.Random(seed)
        try:
            train_with_kills(Cluster(draw=draw, num_pipelines=2, num_slots=2, confirms=False), draw)
        except (StateLostError, AssertionError):
            lost += 1
    assert lost
