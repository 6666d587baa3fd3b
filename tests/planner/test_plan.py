"""The plan: its invariants, its id and its texts."""

from __future__ import annotations

import pytest

from planner.errors import PlanFileError
from planner.operation import Worker
from planner.plan import PlanStatus
from tests.plans import planned_problem, tiny_plan


def test_id_is_a_hash_of_the_content_alone() -> None:
    """Wall time changes nothing, any part of the content does."""
    plan = tiny_plan()
    assert len(plan.plan_id) == 64
    assert plan.plan_id == tiny_plan(wall_s=9.0).plan_id
    assert plan.plan_id != tiny_plan(seed=1).plan_id
    assert plan.plan_id != tiny_plan(notes=()).plan_id


def test_id_does_not_tell_whole_numbers_from_floats() -> None:
    """A deadline of 2 and one of 2.0 seconds are the same decision."""
    assert tiny_plan(deadline_s=2).plan_id == tiny_plan(deadline_s=2.0).plan_id


def test_gap_is_relative_to_the_bound() -> None:
    """12,000 over a bound of 10,000 is 20 %; with the bound reached it is none; with bound 0 it is unknown."""
    assert tiny_plan().gap == 0.0
    feasible = tiny_plan(bound_ns=10_000, status=PlanStatus.FEASIBLE)
    assert feasible.gap == pytest.approx(0.2)
    assert tiny_plan(bound_ns=0, status=PlanStatus.FEASIBLE).gap is None


def test_throughput_kept_compares_with_our_own_fault_free_plan() -> None:
    """7,000 ns fault-free against 12,000 ns."""
    assert tiny_plan().throughput_kept == pytest.approx(7 / 12)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"status": PlanStatus.FEASIBLE}, "status"),
        ({"bound_ns": 11_000}, "status"),
        ({"bound_ns": 13_000}, "bound"),
        ({"slots": ()}, "slots"),
        ({"worker_ranks": ("0",)}, "worker_ranks"),
        ({"problem": planned_problem(microbatches=(2, 2, 0), dead=frozenset())}, "workers"),
    ],
)
def test_parts_that_contradict_each_other_are_refused(changes: dict[str, object], message: str) -> None:
    """A plan is optimal exactly where its period is its bound, and its parts have one shape."""
    with pytest.raises(PlanFileError, match=message):
        tiny_plan(**changes)


@pytest.mark.parametrize(
    ("rank", "worker"),
    [(0, Worker(0, 0)), (3, Worker(0, 1)), (8, Worker(1, 1)), (7, None), (9, None)],
)
def test_ranks_lead_to_their_workers(rank: int, worker: Worker | None) -> None:
    """Worker 1/1 holds ranks 6 and 8, so rank 7 belongs to nobody."""
    assert tiny_plan().worker_of_rank(rank) == worker


def test_failures_read_as_one_line() -> None:
    """Nodes, their workers, and slow workers with their speed."""
    assert tiny_plan().failures_text() == "n3 (worker 1/1)"
    assert tiny_plan(failed_nodes=()).failures_text() == "worker 1/1"
    degraded = tiny_plan(degraded=((Worker(0, 0), 700_000),))
    assert degraded.failures_text() == "n3 (worker 1/1); slow 0/0 at 70 %"
    assert tiny_plan(failed_nodes=(), failed_workers=()).failures_text() == "none"
