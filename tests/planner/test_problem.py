"""Problems: what is refused, and what follows from the numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import MemoryTooSmallError, ProblemError, StageLostError
from planner.operation import Kind, Worker
from planner.problem import Problem, Slot, Stage, scaled_ns
from tests.exhaustive import exhaustive_period_ns

COST = Stage(forward_ns=2, input_grad_ns=3, weight_grad_ns=1, transfer_ns=4, activation_bytes=5, weight_grad_bytes=2)
PROBLEM = Problem(
    stages=(COST, COST, COST),
    slots=(Slot(stages=(0, 2)), Slot(stages=(1,))),
    microbatches=(2, 1),
    dead=frozenset({Worker(0, 1)}),
    speeds_ppm={Worker(1, 0): 300_000},
)


def test_counts_and_holders() -> None:
    """Numbers of everything, the slot of each stage, and who is live."""
    assert (PROBLEM.num_pipelines, PROBLEM.num_slots, PROBLEM.num_stages, PROBLEM.num_microbatches) == (2, 2, 3, 3)
    assert PROBLEM.slot_of_stage == (0, 1, 0)
    assert (PROBLEM.live_pipelines(0), PROBLEM.live_pipelines(1)) == ((0, 1), (1,))
    assert PROBLEM.is_live(Worker(0, 0))
    assert not PROBLEM.is_live(Worker(0, 1))


def test_durations_by_kind_and_speed() -> None:
    """At full speed 2, 3, 1 and 4 for B; at 0.3 of it 7, 10, 4 and 14, each part rounded up."""
    assert [PROBLEM.duration_ns(kind, 0, Worker(0, 0)) for kind in Kind] == [2, 3, 1, 4]
    assert [PROBLEM.duration_ns(kind, 0, Worker(1, 0)) for kind in Kind] == [7, 10, 4, 14]


def test_transfers_only_between_workers() -> None:
    """A boundary costs nothing where one worker holds both sides."""
    assert PROBLEM.transfer_ns(0, Worker(0, 0), Worker(1, 1)) == 4
    assert PROBLEM.transfer_ns(0, Worker(0, 0), Worker(0, 0)) == 0


@given(st.integers(0, 10**15), st.integers(1, 10**6))
def test_scaling_rounds_up_exactly(cost_ns: int, speed_ppm: int) -> None:
    """The least integer whose share at that speed covers the cost."""
    scaled = scaled_ns(cost_ns, speed_ppm)
    assert (scaled - 1) * speed_ppm < cost_ns * 10**6 <= scaled * speed_ppm


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stages": ()}, "at least one stage"),
        ({"slots": ()}, "at least one stage"),
        ({"microbatches": ()}, "at least one stage"),
        ({"slots": (Slot(stages=(0,)), Slot(stages=(1,)))}, r"stages \[2\] are not held"),
        ({"slots": (Slot(stages=(0, 1, 2)), Slot(stages=(1,)))}, r"stages \[1\] are not held"),
        ({"slots": (Slot(stages=(0, 2)), Slot(stages=(1, 3)))}, r"stages \[3\] are not held"),
        ({"microbatches": (0, 0)}, "one at least 1"),
        ({"microbatches": (3, -1)}, "each at least 0"),
        ({"microbatches": (2 * 10**6, 1)}, "more than 12000000 operations"),
        ({"dead": frozenset({Worker(2, 0)})}, "worker 2/0 does not exist"),
        ({"speeds_ppm": {Worker(0, 2): 1}}, "worker 0/2 does not exist"),
        ({"speeds_ppm": {Worker(0, 0): 0}}, "speed 0 ppm"),
        ({"speeds_ppm": {Worker(0, 0): 1_000_000}}, "speed 1000000 ppm"),
        ({"speeds_ppm": {Worker(0, 1): 5}}, "both dead and degraded"),
    ],
)
def test_parts_that_do_not_fit_are_refused(changes: dict[str, Any], message: str) -> None:
    """Each part is checked against the others."""
    with pytest.raises(ProblemError, match=message):
        replace(PROBLEM, **changes)


@pytest.mark.parametrize(
    "name", ["forward_ns", "input_grad_ns", "weight_grad_ns", "transfer_ns", "activation_bytes", "weight_grad_bytes"]
)
@pytest.mark.parametrize("value", [-1, 1.5])
def test_stage_costs_are_whole_and_not_negative(name: str, value: float) -> None:
    """Anything else is refused by name."""
    with pytest.raises(ProblemError, match=name):
        replace(COST, **{name: value})  # type: ignore[arg-type]


def test_stage_keeps_no_more_than_it_holds() -> None:
    """Bytes kept for W are part of the activations."""
    with pytest.raises(ProblemError, match="6 weight-gradient bytes of 5"):
        replace(COST, weight_grad_bytes=6)


@pytest.mark.parametrize(
    "parts",
    [
        {"stages": ()},
        {"stages": (1, 0)},
        {"stages": (1, 1)},
        {"stages": (0,), "sync_ns": -1},
        {"stages": (0,), "capacity_bytes": -1},
    ],
)
def test_malformed_slots_are_refused(parts: dict[str, Any]) -> None:
    """Stages in increasing order, sync and capacity not negative."""
    with pytest.raises(ProblemError, match="slot"):
        Slot(**parts)


def test_lost_slots_are_named() -> None:
    """A slot without a live worker cannot be planned around."""
    with pytest.raises(StageLostError, match=r"slots \[1\] \(stages \[1\]\)"):
        replace(PROBLEM, dead=frozenset({Worker(0, 1), Worker(1, 1)})).require_plannable()
    PROBLEM.require_plannable()


def test_memory_that_holds_no_microbatch_is_named() -> None:
    """Slot 0 needs 5 + 5 bytes for one microbatch through both of its stages."""
    enough = replace(PROBLEM, slots=(Slot(stages=(0, 2), capacity_bytes=10), Slot(stages=(1,))))
    enough.require_plannable()
    short = replace(PROBLEM, slots=(Slot(stages=(0, 2), capacity_bytes=9), Slot(stages=(1,))))
    with pytest.raises(MemoryTooSmallError, match=r"slot 0 has 9 bytes .* 1 bytes are missing"):
        short.require_plannable()


def test_memory_is_asked_of_the_worker_not_of_the_slot() -> None:
    """Two peers could take one stage each, by exhaustive search in 14 ns; such plans are refused for what they are (13b)."""
    stage = Stage(forward_ns=1, input_grad_ns=1, weight_grad_ns=1, activation_bytes=2, weight_grad_bytes=1)
    slots = (Slot(stages=(0, 3), capacity_bytes=3), Slot(stages=(1, 2), capacity_bytes=3))
    shared = Problem(stages=(stage,) * 4, slots=slots, microbatches=(1, 1))
    assert exhaustive_period_ns(shared) == 14
    with pytest.raises(MemoryTooSmallError, match=r"one microbatch through stages \(0, 3\) on one worker needs 4"):
        shared.require_plannable()
