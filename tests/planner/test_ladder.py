"""The ladder of answers and their expected costs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.failures import FailureSet
from planner.job import Job, JobStage, OptimizerState, Placement, Recovery
from planner.ladder import Rung, RungName, choose, expected_costs
from planner.layout import OrderedLayout
from planner.migration import Migration, MigrationAdvice, worthwhile
from planner.operation import Worker
from planner.problem import Stage
from planner.slot_cost import work_estimate
from planner.topology import uniform_racks

S = 10**9
RECOVERY = Recovery(
    mean_time_between_failures_s=3600, repair_s=600, restart_s=100, checkpoint_interval_s=400, copy_bytes_per_s=100
)


def job(recovery: Recovery = RECOVERY, **changes: object) -> Job:
    """3 pipelines x 3 slots of 6 microbatches; F, I and W take 1, 2 and 1 s; slot 1's worker holds 1,000 bytes of state."""
    costs = (1, 2, 1)
    whole = Job(
        name="job",
        topology=uniform_racks(tuple(f"n{i}" for i in range(9)), 1),
        layout=OrderedLayout(pipeline_parallel=3, data_parallel=3, rank_order=("pp", "dp")),
        placement=Placement.ONE_A_SLOT,
        slot_stages=((0,), (1,), (2,)),
        stages=tuple(
            JobStage(
                costs=Stage(forward_ns=c * S, input_grad_ns=c * S, weight_grad_ns=c * S, activation_bytes=1),
                parameter_bytes=500 if c == 2 else 5,
                optimizer_state_bytes=500 if c == 2 else 0,
            )
            for c in costs
        ),
        capacity_bytes=(None,) * 3,
        microbatches=(6,) * 3,
        recovery=recovery,
    )
    return replace(whole, **changes)  # type: ignore[arg-type]


def failed(*workers: Worker, slow: dict[Worker, int] | None = None) -> FailureSet:
    """A failure set of workers."""
    return FailureSet(workers=workers, dead=frozenset(workers), speeds_ppm=slow or {})


def rungs_of(job: Job, failures: FailureSet, **known: object) -> dict[RungName, Rung]:
    """Rungs by name, with work bounds as the estimate."""
    problem = job.problem(failures.dead, failures.speeds_ppm)
    rungs = expected_costs(job, failures, slot_cost_ns=work_estimate(problem), **known)  # type: ignore[arg-type]
    assert tuple(rung.name for rung in rungs) == tuple(RungName)
    return {rung.name: rung for rung in rungs}


def test_example_worked_by_hand() -> None:
    """The example of docs/model.md, section 9: worker 2/1 is down, fault-free 36 s, repair in 600 s."""
    found = rungs_of(job(), failed(Worker(2, 1)), fault_free_ns=36 * S)
    # In place slot 1 has 18 microbatches of 6 s on two workers, 54 s: a third of the 600 s up to the repair is lost.
    assert (found[RungName.REROUTE].period_ns, found[RungName.REROUTE].lost_s) == (54 * S, pytest.approx(200))
    # With the failure in slot 2, slot 1's 36 s decide again; copying 1,000 bytes at 100 a second takes 10 s.
    after = found[RungName.REROUTE_AFTER_MIGRATION]
    assert (after.period_ns, after.one_time_s, after.lost_s) == (36 * S, 10, pytest.approx(10))
    # Two pipelines have 9 microbatches each, 3 more than before: 36 + 3 * 6 s.
    assert (found[RungName.DROP_PIPELINES].period_ns, found[RungName.DROP_PIPELINES].lost_s) == (
        54 * S,
        pytest.approx(200),
    )
    assert found[RungName.WAIT_FOR_REPAIR].lost_s == 600
    # 600 s of repair, 100 s of starting, and half of 400 s run again.
    assert found[RungName.RESTART_FROM_CHECKPOINT].lost_s == 900
    assert {rung.horizon_s for rung in found.values()} == {600}
    assert choose(tuple(found.values())) == after


def test_known_periods_come_before_estimates() -> None:
    """A known period is taken as it is, and scales the estimate of what is not known."""
    found = rungs_of(job(), failed(Worker(2, 1)), fault_free_ns=40 * S, reroute_ns=60 * S)
    # The bound after migration is two thirds of that in place, and so is the period: 40 s.
    assert found[RungName.REROUTE_AFTER_MIGRATION].period_ns == 40 * S
    found = rungs_of(job(), failed(Worker(2, 1)), fault_free_ns=40 * S, migrated_ns=45 * S)
    # In place: 40 s in proportion 54 to 36.
    assert found[RungName.REROUTE].period_ns == 60 * S
    # 10 s of copying, then 590 s of which 5 in 45 are lost.
    assert found[RungName.REROUTE_AFTER_MIGRATION].lost_s == pytest.approx(10 + 590 / 9)


def test_slow_workers() -> None:
    """Slow pipelines are dropped only where that is better; a slow worker alone is no reason to migrate."""
    slow = {Worker(0, 0): 500_000}
    found = rungs_of(job(), failed(slow=slow), fault_free_ns=36 * S)
    assert found[RungName.DROP_PIPELINES].period_ns == 54 * S
    assert not found[RungName.REROUTE_AFTER_MIGRATION].available
    # Beside a dead 2/1: one pipeline left has 18 microbatches, 36 + 12 * 6 = 108 s; two left have 9 each, and slot 0's slow
    # worker takes 9 * 3 s longer: 36 + 3 * 6 + 27 = 81 s.
    found = rungs_of(job(), failed(Worker(2, 1), slow=slow), fault_free_ns=36 * S)
    assert found[RungName.DROP_PIPELINES].period_ns == 81 * S


def test_nothing_failed() -> None:
    """Without failures the only rung is to go on, and nothing is lost until the next failure."""
    found = rungs_of(job(), FailureSet(), fault_free_ns=36 * S)
    assert [name for name, rung in found.items() if rung.available] == [RungName.REROUTE]
    assert (found[RungName.REROUTE].lost_s, found[RungName.REROUTE].horizon_s) == (0, 3600)


def test_every_pipeline_has_a_failure() -> None:
    """Then none is left to go on whole."""
    found = rungs_of(job(), failed(Worker(0, 0), Worker(1, 1), Worker(2, 2)))
    assert found[RungName.DROP_PIPELINES].reason == "every pipeline has a failure"
    assert found[RungName.REROUTE].available


def test_what_is_not_known_costs_an_unknown_time() -> None:
    """Missing figures are named; a rung of unknown cost is only taken where no other is left."""
    unknown = rungs_of(job(Recovery(mean_time_between_failures_s=3600)), failed(Worker(2, 1)), fault_free_ns=36 * S)
    for name, reason in (
        (RungName.REROUTE_AFTER_MIGRATION, "copy_bytes_per_s"),
        (RungName.WAIT_FOR_REPAIR, "repair_s"),
        (RungName.RESTART_FROM_CHECKPOINT, "repair_s and restart_s and checkpoint_interval_s"),
    ):
        rung = unknown[name]
        assert (rung.available, rung.one_time_s, rung.lost_s) == (True, None, None)
        assert reason in str(rung.reason)
    chosen = choose(tuple(unknown.values()))
    assert chosen is not None
    assert chosen.name is RungName.REROUTE


def test_without_a_horizon_the_smallest_period_wins() -> None:
    """With neither failures nor repairs foreseen any saving pays in the end, as for migrations."""
    found = rungs_of(job(Recovery(copy_bytes_per_s=1)), failed(Worker(2, 1)), fault_free_ns=36 * S)
    assert {rung.lost_s for rung in found.values()} == {None}
    chosen = choose(tuple(found.values()))
    assert chosen is not None
    assert chosen.name is RungName.REROUTE_AFTER_MIGRATION


@pytest.mark.parametrize(
    ("changes", "workers", "shards_restored", "available"),
    [
        ({}, [Worker(k, 1) for k in range(3)], False, {RungName.RESTART_FROM_CHECKPOINT}),
        ({"optimizer_state": OptimizerState.SHARDED}, [Worker(0, 1)], False, {RungName.RESTART_FROM_CHECKPOINT}),
        # A worker that moved would take its shard with it.
        (
            {"optimizer_state": OptimizerState.SHARDED},
            [Worker(0, 1)],
            True,
            set(RungName) - {RungName.REROUTE_AFTER_MIGRATION},
        ),
        ({"capacity_bytes": (0, 0, 0)}, [Worker(0, 1)], False, set()),
    ],
)
def test_what_no_plan_answers(
    changes: dict[str, object], workers: list[Worker], shards_restored: bool, available: set[RungName]
) -> None:
    """A lost stage or shard leaves the checkpoint; a job that never fits leaves nothing. The others say why."""
    given = job(**changes)  # type: ignore[arg-type]
    rungs = expected_costs(given, failed(*workers), shards_restored=shards_restored)
    assert {rung.name for rung in rungs if rung.available} == available
    assert all(rung.reason for rung in rungs if not rung.available)
    chosen = choose(rungs)
    assert (chosen is None) == (not available)


@given(st.integers(36, 200), st.integers(36, 200), st.integers(0, 2000), st.integers(1, 2000), st.integers(1, 2000))
@settings(max_examples=200, deadline=None)
def test_migrations_are_chosen_exactly_where_they_are_worthwhile(
    old: int, new: int, copying: int, failure: int, repair: int
) -> None:
    """Between the two ways to reroute the expected loss decides as :func:`planner.migration.worthwhile` does."""
    move = Migration(source=Worker(2, 2), target=Worker(2, 1), copy_from=Worker(0, 1), num_bytes=1000)
    advice = MigrationAdvice(
        migrations=(move,),
        counts=(0, 1, 0),
        new_counts=(0, 0, 1),
        period_ns=old * S,
        new_period_ns=new * S,
        seconds=float(copying),
    )
    given_job = job(Recovery(mean_time_between_failures_s=failure, repair_s=repair))
    rungs = expected_costs(
        given_job,
        failed(Worker(2, 1)),
        fault_free_ns=36 * S,
        reroute_ns=old * S,
        migrated_ns=new * S,
        slot_cost_ns=lambda _slot, _count: 1,
        advice=advice,
    )
    in_place, after = (next(rung for rung in rungs if rung.name is name) for name in tuple(RungName)[:2])
    assert in_place.lost_s is not None
    assert after.lost_s is not None
    pays = worthwhile(advice, next_failure_s=failure, next_repair_s=repair)
    assert (after.lost_s < in_place.lost_s - 1e-9) <= pays
    assert pays <= (after.lost_s < in_place.lost_s + 1e-9)


def test_no_time_to_copy() -> None:
    """Copying that outlasts the horizon loses all of its own time."""
    found = rungs_of(job(replace(RECOVERY, copy_bytes_per_s=1)), failed(Worker(2, 1)), fault_free_ns=36 * S)
    assert found[RungName.REROUTE_AFTER_MIGRATION].lost_s == 1000
