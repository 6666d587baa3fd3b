"""From a job and what failed to a checked plan."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numba
import numpy as np
import pytest

from planner.errors import InvalidScheduleError, OptimizerShardLostError, SolverError, StageLostError
from planner.failures import parse_failures
from planner.formats.job_file import load_job
from planner.formats.plan_file import dump_plan, load_plan
from planner.job import Job, OptimizerState, Recovery
from planner.operation import Worker
from planner.plan import Plan, PlanStatus
from planner.plan_check import check_plan
from planner.problem import Problem
from solver_models import portfolio
from solver_models.clock import Clock
from solver_models.planning import make_plan, make_reference
from solver_models.result import SolveOptions, SolveResult, Status
from solver_models.warm_up import warm_up

EXAMPLE = Path(__file__).parents[2] / "examples" / "recycle-worked-example.yaml"
OPTIONS = SolveOptions(deadline_s=10.0, deterministic=True)
"""Work in place of seconds, so that no load of the machine decides how good a plan is."""
SECONDS = SolveOptions(deadline_s=60.0)


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """Everything is compiled, so that no plan's notes say that it was not."""
    warm_up()


@pytest.fixture(scope="module")
def job() -> Job:
    """3 pipelines x 4 slots x 6 microbatches, every operation 1 us, memory does not bind."""
    return load_job(EXAMPLE)


def plan_for(job: Job, *fail: str, degrade: tuple[str, ...] = (), **options: bool | None) -> Plan:
    """A plan for what failed."""
    return make_plan(job, parse_failures(job, fail, degrade), OPTIONS, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("worker", ["0/0", "1/1", "2/2", "1/3"])
def test_one_failed_worker_costs_what_its_microbatches_cost(job: Job, worker: str) -> None:
    """18 microbatches on the slot's two live workers are 9 * 3 = 27 us, and the work bound proves it."""
    plan = plan_for(job, f"worker:{worker}")
    assert (plan.status, plan.period_ns, plan.bound_ns) == (PlanStatus.OPTIMAL, 27_000, 27_000)
    # Fault-free 1F1B: (6 + 4 - 1) * 3.
    assert plan.baseline_1f1b_ns == 27_000
    # No fault-free plan is faster than one worker's 6 * 3.
    assert 18_000 <= plan.fault_free_ns <= 27_000
    check_plan(plan)


def test_the_plan_is_for_the_real_workers(job: Job) -> None:
    """Node n06 is worker 1/2: it runs nothing, its peers run all 18 microbatches, and the plan names both."""
    plan = plan_for(job, "n06")
    assert (plan.failed_nodes, plan.failed_workers) == (("n06",), (Worker(1, 2),))
    assert not plan.schedule.rows(Worker(1, 2))
    assert str(plan.failure_key) == "0,0,1,0"
    slot = plan.slots[2]
    assert (slot.live_workers, slot.failed_workers, slot.min_load, slot.max_load) == (2, 1, 9, 9)
    assert (slot.busy_ns, slot.bound_ns) == (27_000, 27_000)
    assert plan.worker_of_rank(6) == Worker(1, 2)
    assert plan.relabelling == ()


def test_a_plan_without_failures_is_its_own_reference(job: Job) -> None:
    """Nothing failed, so all the throughput is kept."""
    plan = plan_for(job)
    assert plan.fault_free_ns == plan.period_ns
    assert plan.throughput_kept == 1.0
    assert plan.failures_text() == "none"


def test_a_slow_worker_gets_less_to_do(job: Job) -> None:
    """At a third of the speed worker 0/1 takes 9 us a microbatch: 18 microbatches take two full workers 8 each and it 2."""
    plan = plan_for(job, degrade=("worker:0/1=0.333334",))
    check_plan(plan)
    # With 1 us costs at a third of the speed three operations take 9 us; the others run 8 microbatches in 24 us.
    assert plan.bound_ns <= plan.period_ns
    assert plan.slots[1].min_load < plan.slots[1].max_load
    assert dict(plan.degraded) == {Worker(0, 1): 333_334}


def test_the_same_question_gets_the_same_plan(job: Job) -> None:
    """With one worker and a search that ends by itself, the id is the same, and survives a file."""
    first, second = (make_plan(job, parse_failures(job, ["n06"]), SECONDS) for _ in range(2))
    assert first.plan_id == second.plan_id
    assert load_plan(dump_plan(first)).plan_id == first.plan_id


def test_a_reference_may_be_kept(job: Job) -> None:
    """A caller's reference is used as it is, except that a fault-free plan is never slower than one with failures."""
    reference = make_reference(job, OPTIONS)
    failures = parse_failures(job, ["n06"])
    assert make_plan(job, failures, OPTIONS, reference=reference).baseline_1f1b_ns == reference.baseline_1f1b_ns
    slow = replace(reference, fault_free_ns=10**9)
    assert make_plan(job, failures, OPTIONS, reference=slow).fault_free_ns == 27_000


def test_a_lost_slot_has_no_plan(job: Job) -> None:
    """With all three workers of slot 2 down nobody holds its parameters."""
    with pytest.raises(StageLostError, match=r"slots \[2\]"):
        plan_for(job, "worker:0/2", "worker:1/2", "worker:2/2")


def test_a_lost_optimizer_shard_is_said_before_planning(job: Job) -> None:
    """Two failed workers of 100 bytes each are 200 bytes to restore; once they are, the plan is made."""
    stages = tuple(replace(stage, optimizer_state_bytes=100) for stage in job.stages)
    sharded = replace(job, optimizer_state=OptimizerState.SHARDED, stages=stages)
    with pytest.raises(OptimizerShardLostError, match=r"0/0 1/2.*200 bytes"):
        plan_for(sharded, "worker:0/0", "worker:1/2")
    assert plan_for(sharded, "worker:0/0", "worker:1/2", shards_restored=True).period_ns >= 27_000
    assert plan_for(sharded).status is PlanStatus.OPTIMAL or plan_for(sharded).gap is not None


def test_replicas_lost_together_are_warned_of(job: Job) -> None:
    """One failure in a slot is safe; two may have taken a shard and its replica."""
    replicated = replace(job, optimizer_state=OptimizerState.SHARDED_WITH_REPLICA)
    assert plan_for(replicated, "worker:0/0").notes == ()
    assert "replica" in plan_for(replicated, "worker:0/0", "worker:1/0").notes[0]


@pytest.fixture
def uneven(job: Job) -> Job:
    """Slot 0 three times as long as the others, with sizes and rates that make migrations cost 2 s."""
    heavy = replace(job.stages[0].costs, forward_ns=3000, input_grad_ns=3000, weight_grad_ns=3000)
    stages = tuple(
        replace(stage, parameter_bytes=1000, optimizer_state_bytes=1000, costs=heavy if v == 0 else stage.costs)
        for v, stage in enumerate(job.stages)
    )
    return replace(job, stages=stages, recovery=Recovery(copy_bytes_per_s=1000, mean_time_between_failures_s=3600.0))


def test_migrations_move_a_failure_to_a_light_slot(uneven: Job) -> None:
    """In place slot 0 takes 9 * 9 = 81 us; filled from a light slot it takes 6 * 9 = 54 us and the light one 27 us."""
    in_place = plan_for(uneven, "worker:0/0", migrate=False)
    moved = plan_for(uneven, "worker:0/0", migrate=True)
    assert in_place.period_ns >= 81_000
    assert 54_000 <= moved.period_ns < 81_000
    assert in_place.migrations == in_place.advised_migrations == ()
    (move,) = moved.migrations
    assert (move.target, move.num_bytes, move.seconds) == (Worker(0, 0), 2000, 2.0)
    assert move.source in moved.problem.dead
    assert moved.problem.is_live(Worker(0, 0))
    assert moved.failed_workers == (Worker(0, 0),)
    check_plan(moved)


def test_ranks_follow_who_moves(uneven: Job) -> None:
    """Whoever moved is looked up at its new position, the failed rank at the empty one; all others are where they were."""
    in_place = plan_for(uneven, "worker:0/0", migrate=False)
    moved = plan_for(uneven, "worker:0/0", migrate=True)
    (move,) = moved.migrations
    # One GPU a worker, ranks in order of pipelines and slots: rank 0 is worker 0/0's, the failed one.
    rank = 4 * move.source.pipeline + move.source.slot
    assert (in_place.worker_of_rank(rank), in_place.worker_of_rank(0)) == (move.source, move.target)
    assert (moved.worker_of_rank(rank), moved.worker_of_rank(0)) == (move.target, move.source)
    others = [other for other in range(1, 12) if other != rank]
    assert [moved.worker_of_rank(other) for other in others] == [in_place.worker_of_rank(other) for other in others]
    assert load_plan(dump_plan(moved)).worker_ranks == moved.worker_ranks


def test_nobody_moves_with_the_only_copy_of_a_shard(uneven: Job) -> None:
    """Where optimizer state is sharded no move is made, which is said where one was asked for, and none is advised."""
    sharded = replace(uneven, optimizer_state=OptimizerState.SHARDED)
    asked = plan_for(sharded, "worker:0/0", migrate=True, shards_restored=True)
    assert asked.migrations == ()
    assert asked.notes == (
        "nobody is moved: a worker that moves would take the only copy of its optimizer shard with it",
    )
    left = plan_for(sharded, "worker:0/0", shards_restored=True)
    assert left.migrations == left.advised_migrations == left.notes == ()


def test_a_replica_that_moves_away_is_warned_of(uneven: Job) -> None:
    """Slots 0 and 1 lose a worker each; the one that leaves slot 1 for slot 0 may have held the other's replica."""
    replicated = replace(uneven, optimizer_state=OptimizerState.SHARDED_WITH_REPLICA)
    plan = plan_for(replicated, "worker:0/0", "worker:0/1", "worker:0/2", "worker:0/3", migrate=True)
    (move,) = plan.migrations
    assert f"slots [{move.source.slot}] lose several workers" in plan.notes[0]


def test_migrations_are_advised_only_where_they_pay(uneven: Job) -> None:
    """A third of an hour saved pays for 2 s of copying; with a failure every second it does not."""
    advised = plan_for(uneven, "worker:0/0")
    assert advised.migrations == ()
    assert len(advised.advised_migrations) == 1
    hectic = replace(uneven, recovery=Recovery(copy_bytes_per_s=1000, mean_time_between_failures_s=1.0))
    assert plan_for(hectic, "worker:0/0").advised_migrations == ()
    unknown = replace(uneven, recovery=Recovery())
    assert plan_for(unknown, "worker:0/0").advised_migrations == ()


def test_what_a_solver_could_not_do_is_noted(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that fell back to the list schedule says so in the plan, whatever is proved of it; and is worth another try."""
    assert not plan_for(job, "n06").hindered
    genuine = portfolio.solve

    def fell_back(problem: Problem, options: SolveOptions, clock: Clock) -> SolveResult:
        return replace(genuine(problem, options, clock), failure="cp_sat was killed")

    monkeypatch.setattr(portfolio, "solve", fell_back)
    plan = plan_for(job, "n06")
    assert plan.notes == ("the fault-free plan may be better than was found: cp_sat was killed", "cp_sat was killed")
    assert plan.hindered
    assert plan_for(job).notes == ("cp_sat was killed",)


def test_a_search_that_overran_or_compiled_is_noted(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Either way the next try may find a better plan."""
    genuine = portfolio.solve

    def slow(problem: Problem, options: SolveOptions, clock: Clock) -> SolveResult:
        time.sleep(1.1)
        return genuine(problem, options, clock)

    def compiling(problem: Problem, options: SolveOptions, clock: Clock) -> SolveResult:
        assert numba.njit(lambda x: x + 1)(1) == 2
        return genuine(problem, options, clock)

    failures = parse_failures(job, ["n06"], ())
    monkeypatch.setattr(portfolio, "solve", slow)
    overran = make_plan(job, failures, SolveOptions(deadline_s=0.1), reference=make_reference(job, OPTIONS))
    assert overran.notes == ("the search overran its deadline; list_scheduling had the best schedule by then",)
    assert overran.hindered
    monkeypatch.setattr(portfolio, "solve", compiling)
    compiled = make_plan(job, failures, SECONDS)
    assert len(compiled.notes) == 1
    assert "code was compiled" in compiled.notes[0]
    assert compiled.hindered


def test_a_solver_without_a_schedule_is_a_solver_error(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """No plan comes out of nothing."""
    nothing = SolveResult(
        status=Status.CRASHED, solver="x", schedule=None, period_ns=None, bound_ns=0, wall_s=0.0, detail="dead"
    )
    monkeypatch.setattr(portfolio, "solve", lambda *_: nothing)
    with pytest.raises(SolverError, match="crashed"):
        plan_for(job, "n06")


@pytest.mark.parametrize("shift_ns", [-1, 1])
def test_a_solver_s_wrong_claim_never_leaves(job: Job, shift_ns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A period that the order does not have exactly is caught by validation or replay."""
    genuine = portfolio.solve

    def lying(problem: Problem, options: SolveOptions, clock: Clock) -> SolveResult:
        result = genuine(problem, options, clock)
        assert result.period_ns is not None
        return replace(result, period_ns=result.period_ns + shift_ns)

    monkeypatch.setattr(portfolio, "solve", lying)
    with pytest.raises(InvalidScheduleError):
        plan_for(job, "n06")


def test_a_solver_s_invalid_schedule_never_leaves(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two operations planned at once are caught by validation."""
    genuine = portfolio.solve

    def broken(problem: Problem, options: SolveOptions, clock: Clock) -> SolveResult:
        result = genuine(problem, options, clock)
        assert result.schedule is not None
        schedule = result.schedule
        flat = replace(schedule, start_ns=np.zeros_like(schedule.start_ns), end_ns=schedule.end_ns - schedule.start_ns)
        return replace(result, schedule=flat)

    monkeypatch.setattr(portfolio, "solve", broken)
    with pytest.raises(InvalidScheduleError):
        plan_for(job, "n06")
