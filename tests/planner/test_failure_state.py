"""Failure states, and the events that change them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import (
    AlreadyFailedError,
    FailureSetError,
    HostlistError,
    NotFailedError,
    ReplanError,
    UnknownNodeError,
)
from planner.failure_state import FailureEvent, FailureState, apply_event, carry_over, to_failure_set
from planner.formats.failure_state_file import dump_state, load_state
from planner.job import Job, JobStage, Placement
from planner.layout import OrderedLayout
from planner.operation import Worker
from planner.problem import Stage
from planner.topology import uniform_racks


def job_on_nodes(*, pipelines: int = 4) -> Job:
    """Pipelines x 2 slots with 2 GPUs a worker and a node: node ``2k + s`` is worker k/s, ranks ``4k + 2s`` and one more."""
    stage = JobStage(costs=Stage(forward_ns=1, input_grad_ns=1, weight_grad_ns=1))
    return Job(
        name="job",
        topology=uniform_racks(tuple(f"n{i}" for i in range(2 * pipelines)), 2),
        layout=OrderedLayout(
            tensor_parallel=2, pipeline_parallel=2, data_parallel=pipelines, rank_order=("tp", "pp", "dp")
        ),
        placement=Placement.ONE_A_SLOT,
        slot_stages=((0,), (1,)),
        stages=(stage, stage),
        capacity_bytes=(None, None),
        microbatches=(2,) * pipelines,
    )


JOB = job_on_nodes()


def event(kind: str, nodes: str | None = None, **rest: object) -> FailureEvent:
    """An event."""
    return FailureEvent(kind=kind, nodes=nodes, **rest)  # type: ignore[arg-type]


def after(*events: FailureEvent) -> FailureState:
    """State after events, from nothing."""
    state = FailureState()
    for one in events:
        state = apply_event(JOB, state, one)
    return state


def test_failures_add_up_and_recover() -> None:
    """Targets of every kind are kept, take their workers down, and come back one by one."""
    state = after(event("node_failed", "n[7,0]", ranks=(5,)), event("node_failed", workers=(Worker(2, 1),)))
    assert state == FailureState(nodes=("n0", "n7"), ranks=(5,), workers=(Worker(2, 1),))
    # Node 0 is worker 0/0, node 7 worker 3/1, rank 5 the second GPU of worker 1/0.
    assert to_failure_set(JOB, state).dead == {Worker(0, 0), Worker(3, 1), Worker(1, 0), Worker(2, 1)}
    state = apply_event(JOB, state, event("node_recovered", "n0", ranks=(5,)))
    assert to_failure_set(JOB, state).dead == {Worker(3, 1), Worker(2, 1)}
    assert apply_event(JOB, state, event("node_recovered", "n7", workers=(Worker(2, 1),))) == FailureState()


def test_degraded_targets_have_the_last_speed_reported() -> None:
    """A second report replaces the first; full speed comes by recovery."""
    state = after(event("node_degraded", "n1", speed=0.7), event("node_degraded", "n1", speed=0.25, ranks=(0,)))
    assert state.degraded == (("n1", 250_000), ("rank:0", 250_000))
    assert to_failure_set(JOB, state).speeds_ppm == {Worker(0, 0): 250_000, Worker(0, 1): 250_000}
    assert apply_event(JOB, state, event("node_recovered", "n[0-1]")) == FailureState()


def test_a_recovered_node_is_whole_again() -> None:
    """Its failure, its degradation and those of its ranks end together, whichever of them there are."""
    assert after(event("node_failed", ranks=(3,)), event("node_recovered", "n1")) == FailureState()
    assert after(event("node_degraded", ranks=(3,), speed=0.5), event("node_recovered", "n1")) == FailureState()
    state = after(event("node_degraded", "n1", speed=0.5), event("node_failed", "n1"))
    assert state == FailureState(nodes=("n1",))
    assert apply_event(JOB, state, event("node_recovered", "n1", ranks=(2, 3))) == FailureState()


def test_a_failed_node_includes_its_ranks() -> None:
    """Ranks reported before or after their node are not kept beside it."""
    state = after(event("node_failed", ranks=(2,)), event("node_failed", "n1"))
    assert state == FailureState(nodes=("n1",))
    with pytest.raises(AlreadyFailedError, match="rank:3"):
        apply_event(JOB, state, event("node_failed", ranks=(3,)))
    assert apply_event(JOB, state, event("node_failed", ranks=(3, 4))).ranks == (4,)


def test_a_worker_named_as_failed_stays_down_when_its_node_returns() -> None:
    """Reports about a worker and about its node are two things."""
    state = after(event("node_failed", "n1", workers=(Worker(0, 1),)), event("node_recovered", "n1"))
    assert to_failure_set(JOB, state).dead == {Worker(0, 1)}


@pytest.mark.parametrize(
    ("first", "second", "error", "match"),
    [
        (None, event("node_failed", "n9"), UnknownNodeError, "n9"),
        (None, event("node_failed", "n[0-1"), HostlistError, "malformed"),
        (None, event("node_failed", ranks=(16,)), FailureSetError, "rank 16"),
        (None, event("node_failed", workers=(Worker(4, 0),)), FailureSetError, "4/0"),
        (None, event("node_recovered", "n0"), NotFailedError, "n0"),
        (event("node_failed", "n0"), event("node_recovered", "n[0-1]"), NotFailedError, "n1"),
        (event("node_failed", "n0"), event("node_recovered", ranks=(0,)), NotFailedError, "rank:0"),
        (event("node_failed", "n0"), event("node_recovered", workers=(Worker(0, 0),)), NotFailedError, "0/0"),
        (event("node_failed", "n0"), event("node_failed", "n0"), AlreadyFailedError, "n0"),
        (event("node_failed", "n0"), event("node_degraded", "n0", speed=0.5), AlreadyFailedError, "down"),
        (event("node_failed", "n0"), event("node_degraded", ranks=(1,), speed=0.5), AlreadyFailedError, "rank:1"),
        (
            event("node_degraded", "n0", speed=0.5),
            event("node_degraded", "n0", speed=0.5),
            AlreadyFailedError,
            "this speed",
        ),
    ],
)
def test_events_that_do_not_fit(
    first: FailureEvent | None, second: FailureEvent, error: type[ReplanError], match: str
) -> None:
    """Unknown targets, recoveries of what is live and failures of what is down are refused by name."""
    state = after(first) if first is not None else FailureState()
    with pytest.raises(error, match=match):
        apply_event(JOB, state, second)


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "node_failed"},
        {"kind": "node_lost", "nodes": "n0"},
        {"kind": "node_failed", "nodes": "n0", "speed": 0.5},
        {"kind": "node_degraded", "nodes": "n0"},
        {"kind": "node_degraded", "nodes": "n0", "speed": 1.0},
        {"kind": "node_degraded", "nodes": "n0", "speed": 0.9999999},
        {"kind": "node_degraded", "nodes": "n0", "speed": float("nan")},
        {"kind": "node_degraded", "nodes": "n0", "speed": -0.5},
    ],
)
def test_events_that_say_nothing_sound(fields: dict[str, object]) -> None:
    """An event without targets, of another kind, or with a speed out of place or range is refused."""
    with pytest.raises(FailureSetError):
        FailureEvent(**fields)  # type: ignore[arg-type]


def test_another_revision_of_the_job_keeps_what_it_has() -> None:
    """What the new job does not know is dropped by name; the rest stays."""
    state = after(
        event("node_failed", "n[1,6]", ranks=(0, 15), workers=(Worker(0, 0), Worker(3, 0))),
        event("node_degraded", "n[2,7]", speed=0.5),
    )
    kept, dropped = carry_over(job_on_nodes(pipelines=3), state)
    assert kept == FailureState(nodes=("n1",), ranks=(0,), workers=(Worker(0, 0),), degraded=(("n2", 500_000),))
    assert dropped == ("n6", "n7", "rank:15", "worker:3/0")


def test_ranks_that_a_failed_node_of_the_new_job_holds_are_dropped() -> None:
    """A state holds no rank beside its node, in another layout of nodes too."""
    state = after(event("node_failed", "n1", ranks=(4,)))
    wide = replace(JOB, topology=uniform_racks(("n0", "n1", "n2", "n3"), 4))
    assert carry_over(wide, state) == (FailureState(nodes=("n1",)), ())


TARGETS = st.fixed_dictionaries(
    {
        "nodes": st.none() | st.sampled_from(["n0", "n1", "n[2-4]", "n[0-7]"]),
        "ranks": st.lists(st.integers(0, 15), max_size=3).map(tuple),
        "workers": st.lists(st.builds(Worker, st.integers(0, 3), st.integers(0, 1)), max_size=2).map(tuple),
    }
).filter(lambda targets: any(targets.values()))


@given(st.lists(st.tuples(st.sampled_from(["node_failed", "node_recovered", "node_degraded"]), TARGETS), max_size=8))
@settings(max_examples=200, deadline=None)
def test_states_stay_sound(reports: list[tuple[str, dict[str, object]]]) -> None:
    """After any reports: written and read back as it is, no rank beside its node, nothing both down and slow by name."""
    state = FailureState()
    for kind, targets in reports:
        speed = 0.5 if kind == "node_degraded" else None
        one = FailureEvent(kind=kind, speed=speed, **targets)  # type: ignore[arg-type]
        try:
            new = apply_event(JOB, state, one)
        except (AlreadyFailedError, NotFailedError):
            continue
        assert new != state
        state = new
        assert load_state(dump_state(state)) == state
        assert carry_over(JOB, state) == (state, ())
        found = to_failure_set(JOB, state)
        assert found.ranks == state.ranks
        assert not {name for name, _ in state.degraded} & {
            *state.nodes, *(f"rank:{r}" for r in state.ranks), *(f"worker:{w}" for w in state.workers)
        }  # fmt: skip


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"degraded":{},"nodes":["n1","n0"],"ranks":[],"workers":[]}',
        b'{"degraded":{},"nodes":[],"ranks":[-1],"workers":[]}',
        b'{"degraded":{"n0":1000000},"nodes":[],"ranks":[],"workers":[]}',
        b'{"degraded":{},"nodes":[],"ranks":[],"workers":["0-0"]}',
        b'{"degraded":{},"nodes":[], "ranks":[],"workers":[]}',
        b'{"degraded":{},"nodes":[],"ranks":[],"workers":[],"more":1}',
    ],
)
def test_states_are_read_strictly(data: bytes) -> None:
    """Anything but canonical JSON of a state is refused."""
    with pytest.raises(FailureSetError):
        load_state(data)
