"""Each policy's arithmetic, worked out by hand.

The job has four pipelines of two slots and 24 microbatches; without failures a period takes 18 s (4/3 samples a second), on three
whole pipelines 24 s, on two 36 s, on one 72 s. Detection takes 5 s, new communicators 10 s, a restart 100 s, a checkpoint 50 s.
"""

from __future__ import annotations

import pytest

from planner.errors import OptionError
from planner.formats.job_file import load_job
from simulation.cluster import Cluster
from simulation.evaluation import EXAMPLES
from simulation.outcome import Cause, Outcome
from simulation.periods import Periods, without_split, without_staggering
from simulation.policies.rates import Rates
from simulation.policies.registry import ALL, POLICIES, policies_named
from simulation.policies.templates import PipelineTemplates
from simulation.policies.tensor_parallel import replicas_worth
from tests.simulation.worlds import COSTS, FULL, UNIT, another, job, play, trace

ITERATION = 24.0


def finished(seconds: float, period_s: float, batch: float = ITERATION) -> float:
    """Samples of the iterations that end within some seconds."""
    return batch * (seconds // period_s)


def causes(outcome: Outcome, *names: Cause) -> list[float]:
    """Seconds lost to each of some causes."""
    return [pytest.approx(outcome.lost_s[name], abs=1e-6) for name in names]


def test_periods_of_the_job() -> None:
    """What this page says above; one dead worker costs as much as a pipeline, two in one slot as two."""
    periods = UNIT.periods
    assert periods.fault_free_ns == 18e9
    assert [periods.of_whole_pipelines(n) for n in (3, 2, 1)] == [24e9, 36e9, 72e9]
    assert [periods.of_counts(c) for c in ((1, 0), (1, 1), (0, 2), (1, 3))] == [24e9, 24e9, 36e9, 72e9]
    assert periods.baseline_ns == 21e9


def test_fault_free() -> None:
    """1,800 s are 100 iterations, whatever is lost."""
    outcome = play("fault-free", 1800, (10, "remove", "n0"))
    assert (outcome.samples, outcome.share) == (pytest.approx(2400), pytest.approx(1))


def test_fault_free_pays_for_the_gpus_it_trains_with() -> None:
    """All eight for half an hour, also where one is down: nobody trains a sample with fewer GPU hours than without failures."""
    rows = [(0, "remove", f"n{i}") for i in range(4)]
    outcome = play("fault-free", 1800, *rows)
    assert outcome.gpu_hours == pytest.approx(4)
    assert outcome.gpu_hours_per_million == pytest.approx(play("fault-free", 1800).gpu_hours_per_million)


def test_fault_scaled() -> None:
    """7/8 of the GPUs for 1,440 s are 70 iterations, for 360 s before that 20 whole ones."""
    outcome = play("fault-scaled", 1800, (360, "remove", "n0"))
    assert outcome.samples == pytest.approx(20 * 24 + 70 * 24)
    assert outcome.lost_s[Cause.SLOWER] == pytest.approx(1440 / 8)


def test_checkpoint_restart() -> None:
    """A loss at 900 s: back to the last checkpoint, 105 s of standing still, then three pipelines."""
    outcome = play("checkpoint-restart", 1900, (900, "remove", "n0"))
    interval = (2 * 50 * 1900 / 2) ** 0.5
    running = interval / (interval + 50)
    saved = interval * ((900 * running) // interval)
    after = (1900 - 1005) * running
    assert outcome.checkpoint_interval_s == pytest.approx(interval)
    assert outcome.samples == pytest.approx(FULL * saved + finished(after, 24.0))
    assert causes(outcome, Cause.DETECTION, Cause.RESTART) == [5, 100]
    assert outcome.rollbacks == 1


def test_checkpoint_restart_leaves_idle_nodes_alone() -> None:
    """Of seven workers six are used: the seventh's loss, of pipeline 3, disturbs nobody."""
    outcome = play("checkpoint-restart", 3000, (0, "remove", "n0"), (2000, "remove", "n7"))
    assert outcome.losses == 2
    assert outcome.rollbacks == 1


def test_checkpoint_restart_grows_where_that_pays() -> None:
    """150 s for a third more pays in 5,000 s between changes, not in 400 s."""
    grown = play("checkpoint-restart", 15_000, (100, "remove", "n0"), (5000, "add", "n0"))
    assert causes(grown, Cause.RESTART) == [200]
    kept = play("checkpoint-restart", 800, (100, "remove", "n0"), (400, "add", "n0"))
    assert causes(kept, Cause.RESTART) == [100]


def test_checkpoint_restart_falls_back_to_the_checkpoint_it_grew_with() -> None:
    """It saves at 5,000 s to grow by a pipeline; a loss 160 s later costs the 10 s since, and no time before that."""
    rows = [(100, "remove", "n0"), (5000, "add", "n0"), (5160, "remove", "n2")]
    before = play("checkpoint-restart", 15_000, *rows[:2])
    after = play("checkpoint-restart", 15_000, *rows)
    assert after.rollbacks == before.rollbacks + 1 == 2
    # The first loss takes up to 100 s, the second up to 10 s, and up to an iteration is in flight at the end.
    assert after.lost_s[Cause.REDONE] < 100 + 10 + 24


def test_checkpoint_restart_waits_for_a_pipeline() -> None:
    """With one node left nothing trains; when a second is back the last checkpoint is loaded."""
    rows = [(0.0, "remove", f"n{i}") for i in range(7)]
    outcome = play("checkpoint-each-iteration", 1105 + 72, *rows, (1000, "add", "n0"))
    # 5 s of detection and 100 of a restart that cannot be: it stands still, waits, and restarts when there is a pipeline.
    assert outcome.samples == pytest.approx(24)
    assert causes(outcome, Cause.WAITING) == [1000 - 105]


def test_checkpoint_each_iteration() -> None:
    """Half an iteration is lost at 909 s, and no checkpoint costs anything."""
    outcome = play("checkpoint-each-iteration", 909 + 105 + 240, (909, "remove", "n0"))
    assert outcome.samples == pytest.approx(50 * 24 + 10 * 24)
    assert causes(outcome, Cause.REDONE, Cause.CHECKPOINT) == [9, 0]


def test_checkpoint_in_memory() -> None:
    """One loss costs the iteration; two of one slot at once are one too many, two of different slots are not."""
    once = play("checkpoint-in-memory", 5000, (909, "remove", "n0"))
    assert (once.rollbacks, once.losses) == (0, 1)
    assert once.lost_s[Cause.CHECKPOINT] > 0.01 * 4000
    assert play("checkpoint-in-memory", 5000, (909, "remove", "n0"), (909, "remove", "n2")).rollbacks == 1
    assert play("checkpoint-in-memory", 5000, (909, "remove", "n0"), (909, "remove", "n1")).rollbacks == 0


def test_partial_recovery() -> None:
    """0.6 % of the time, no rollback, and not exact."""
    outcome = play("partial-recovery", 909 + 105 + 240, (909, "remove", "n0"))
    assert outcome.lost_s[Cause.CHECKPOINT] == pytest.approx(0.006 * (909 + 240 * 0.75))
    assert not outcome.is_exact
    assert outcome.rollbacks == 0


def test_hot_spare() -> None:
    """The first loss takes 20 s and the iteration; the second one, with no spare left, a restart with three pipelines."""
    once = play("hot-spare", 2000, (909, "remove", "n0"))
    assert causes(once, Cause.RECONFIGURATION, Cause.RESTART, Cause.SLOWER) == [20, 0, 0]
    assert once.gpu_hours == pytest.approx((909 * 9 + 1091 * 8) / 3600)
    twice = play("hot-spare", 2000, (909, "remove", "n0"), (1000, "remove", "n2"))
    assert causes(twice, Cause.RECONFIGURATION, Cause.RESTART) == [20, 100]
    assert twice.rollbacks == 1


def test_hot_spare_is_ready_again_after_a_return() -> None:
    """A node that comes back frees the spare for the next loss."""
    outcome = play("hot-spare", 5000, (1000, "remove", "n0"), (2000, "add", "n0"), (3000, "remove", "n4"))
    assert causes(outcome, Cause.RECONFIGURATION, Cause.RESTART) == [40, 0]


def test_drop_replica() -> None:
    """Three of four replicas train three quarters of the batch in the same period, after 15 s."""
    outcome = another(job(), checkpoint_s=1e-9).play(
        trace(900.01 + 15 + 180.01, (900.01, "remove", "n0")), ["drop-replica"]
    )[0]
    assert outcome.samples == pytest.approx(50 * 24 + 10 * 18, rel=1e-6)
    assert not outcome.keeps_batch


def test_drop_replica_makes_whole_ones_of_what_is_left() -> None:
    """Two replicas with a loss each leave two workers, which join as one after a restart and 10 s for everybody."""
    rows = [(900.01, "remove", "n0"), (900.01, "remove", "n3")]
    outcome = another(job(), checkpoint_s=1e-9).play(trace(900.01 + 15 + 100 + 10 + 180.01, *rows), ["drop-replica"])[0]
    # Two replicas for 100 s: 5 iterations of 12 and some that are not finished; three for 180 s: 10 of 18.
    assert outcome.samples == pytest.approx(50 * 24 + 100 / 18 * 12 + 10 * 18, rel=1e-6)
    assert causes(outcome, Cause.RECONFIGURATION) == [20]


def test_a_replica_that_restarts_is_not_there_yet() -> None:
    """Pipelines 0 and 1 lose a worker each; the two left restart aside for 100 s, whatever else happens meanwhile."""
    rows = [(900.01, "remove", "n0"), (900.01, "remove", "n3")]
    world = another(job(), checkpoint_s=1e-9)
    ends = 900.01 + 15 + 100 + 10 + 180.01
    quiet = world.play(trace(ends, *rows), ["drop-replica"])[0]
    # A single node's return makes up no replica; with both back a second one joins with the first.
    other = world.play(trace(ends, *rows, (920, "add", "n0")), ["drop-replica"])[0]
    assert other.samples == pytest.approx(quiet.samples)
    both = world.play(trace(ends, *rows, (920, "add", "n0"), (950, "add", "n3")), ["drop-replica"])[0]
    assert both.lost_s[Cause.SLOWER] < quiet.lost_s[Cause.SLOWER]
    assert causes(both, Cause.RECONFIGURATION) == [20]
    # One that restarts and is struck is out, the others go on without standing still.
    struck = world.play(trace(ends, *rows, (920, "remove", "n1")), ["drop-replica"])[0]
    assert causes(struck, Cause.RECONFIGURATION) == [10]


def test_drop_replica_falls_back_without_a_whole_one() -> None:
    """Where every replica has a loss the last checkpoint is loaded."""
    rows = [(900.0, "remove", f"n{i}") for i in (0, 3, 4, 7)]
    outcome = play("drop-replica", 5000, *rows)
    assert outcome.rollbacks == 1


def test_redundant_computation() -> None:
    """1F1B with forwards twice takes (6 + 1) * 4 s: 18/28 of the rate. One loss of 48 workers is borne, a second reconfigures."""
    assert UNIT.periods.with_forward_twice() == 28e9
    large = another(job(24))
    once = large.play(trace(5000, (1000, "remove", "n0")), ["redundant-computation"])[0]
    assert causes(once, Cause.DETECTION, Cause.RECONFIGURATION, Cause.RESTART) == [5, 0, 0]
    assert once.lost_s[Cause.SLOWER] == pytest.approx(0, abs=1e-6)
    twice = large.play(trace(5000, (1000, "remove", "n0"), (2000, "remove", "n4")), ["redundant-computation"])[0]
    # 2 * 1 / 47 is below 5 %, 2 * 2 / 46 above it.
    assert causes(twice, Cause.RECONFIGURATION, Cause.RESTART) == [30, 0]


def test_redundant_computation_is_fatal_next_door() -> None:
    """A worker and the one that runs its forwards, lost at once, need a checkpoint; of different pipelines they do not."""
    assert play("redundant-computation", 5000, (1000, "remove", "n0"), (1000, "remove", "n1")).rollbacks == 1
    assert play("redundant-computation", 5000, (1000, "remove", "n0"), (1000, "remove", "n3")).rollbacks == 0


def test_redundant_computation_cannot_lose_an_overloaded_worker() -> None:
    """The heir of a lost one holds two workers' parameters that nobody else computes."""
    large = another(job(24))
    # n1 is worker 0/1, whose forwards 0/0 on n0 also runs.
    outcome = large.play(trace(5000, (1000, "remove", "n1"), (2000, "remove", "n0")), ["redundant-computation"])[0]
    assert outcome.rollbacks == 1


def test_pipeline_templates() -> None:
    """7/8 of the workers: 18/21 of the rate by 1F1B, times 1 - 0.933 / 8; who returns joins at the next loss."""
    rates = PipelineTemplates(rates=_rates())
    cluster = Cluster(job=job(), down=frozenset({0}))
    assert rates.begin(cluster).samples_per_s == pytest.approx(24 / 21 * (1 - 0.933 / 8))
    assert dict(rates.mode.short_of)[Cause.REDUNDANCY] == pytest.approx(
        (24 / 18 - 24 / 21) / (24 / 18 - 24 / 21 * (1 - 0.933 / 8))
    )
    outcome = play("pipeline-templates", 6000, (1000, "remove", "n0"), (2000, "add", "n0"), (3000, "remove", "n2"))
    assert causes(outcome, Cause.DETECTION, Cause.RECONFIGURATION) == [10, 20]


def test_pipeline_templates_stop_below_two_fifths() -> None:
    """Three of eight workers are too few."""
    outcome = play("pipeline-templates", 5000, *((1000.0, "remove", f"n{i}") for i in range(5)))
    assert outcome.lost_s[Cause.WAITING] == pytest.approx(4000 - 105)
    assert outcome.rollbacks == 1


def test_per_failure_choice_takes_the_faster() -> None:
    """One lost: rerouting has 18/24 = 0.75 of the rate, templates 18/21 * (1 - 0.933 / 8) = 0.757."""
    outcome = another(job(), checkpoint_s=1e-9).play(trace(2000, (900, "remove", "n0")), ["per-failure-choice"])[0]
    running = 2000 - 900 - 15
    assert outcome.lost_s[Cause.SLOWER] + outcome.lost_s[Cause.REDUNDANCY] == pytest.approx(
        running * (1 - 18 / 21 * (1 - 0.933 / 8)), rel=1e-6
    )


def test_per_failure_choice_reroutes_where_that_is_better() -> None:
    """With 24 pipelines one lost worker of 48 costs 18 s to 21 s at most by rerouting, less than 1F1B always does."""
    large = another(job(24))
    reroute = 18e9 / large.periods.of_counts((1, 0))
    assert reroute > 18 / 21 * (1 - 0.933 / 48)
    outcome = large.play(trace(2000, (900, "remove", "n0")), ["per-failure-choice"])[0]
    assert outcome.lost_s[Cause.REDUNDANCY] == 0


def test_smaller_tensor_parallel() -> None:
    """One GPU of eight lost: its replica counts 7/8. Two of one worker and one of another stand together where they can."""
    wide = job(2, gpus_per_worker=8, gpus_per_node=8)
    assert replicas_worth(Cluster(job=wide, down=frozenset({3}))) == 1 + 7 / 8
    # Workers at 1, 1, 7/8 and 6/8: two whole ones make a replica, the others one of 6/8.
    assert replicas_worth(Cluster(job=wide, down=frozenset({3, 17, 18}))) == 1 + 6 / 8
    outcome = another(wide, checkpoint_s=1e-9).play(
        trace(2000, (900, "remove", "rank:3")), ["smaller-tensor-parallel"]
    )[0]
    assert outcome.lost_s[Cause.SLOWER] == pytest.approx((2000 - 915) / 16, rel=1e-6)
    assert not outcome.keeps_batch


def test_smaller_tensor_parallel_stands_still_at_a_return_where_that_pays() -> None:
    """A GPU back in 5,000 s between changes is taken in for 10 s; in 15 s it is not worth them, until the next loss."""
    wide = another(job(2, gpus_per_worker=8, gpus_per_node=8), checkpoint_s=1e-9)
    rows = [(5000, "remove", "rank:3"), (10_000, "add", "rank:3")]
    taken = wide.play(trace(15_000, *rows), ["smaller-tensor-parallel"])[0]
    assert causes(taken, Cause.RECONFIGURATION) == [20]
    assert taken.lost_s[Cause.SLOWER] == pytest.approx((5000 - 15) / 16, rel=1e-6)
    hasty = wide.play(trace(40, (15, "remove", "rank:3"), (35, "add", "rank:3")), ["smaller-tensor-parallel"])[0]
    assert causes(hasty, Cause.RECONFIGURATION) == [10]


def test_smaller_tensor_parallel_with_whole_workers_lost() -> None:
    """Where a node is a worker, seven make three replicas."""
    assert replicas_worth(Cluster(job=job(), down=frozenset({0}))) == 3


def test_ours_reroutes() -> None:
    """A loss costs 5 s, 10.02 s, and the iteration; then three workers of the slot share its 24 microbatches."""
    outcome = another(job(), checkpoint_s=1e-9).play(trace(909 + 15.02 + 240.01, (909, "remove", "n0")), ["replan"])[0]
    assert outcome.samples == pytest.approx(50 * 24 + 10 * 24, rel=1e-6)
    assert causes(outcome, Cause.DETECTION, Cause.RECONFIGURATION, Cause.REDONE)[:2] == [5, 10.02]


def test_ours_moves_a_failure_where_that_pays() -> None:
    """Two of one slot: 36 s in place; one worker of the other slot moves for 1,000 bytes at 100 a second, then it is 24 s."""
    rows = [(900.0, "remove", "n0"), (900.0, "remove", "n2")]
    moved, stayed = UNIT.play(trace(5000, *rows), ["replan", "replan-no-migration"])
    assert causes(moved, Cause.MIGRATION) == [10]
    assert causes(stayed, Cause.MIGRATION) == [0]
    assert stayed.lost_s[Cause.SLOWER] == pytest.approx((5000 - 915.02) * 0.5)
    assert moved.lost_s[Cause.SLOWER] == pytest.approx((5000 - 925.02) * 0.25)


def test_ours_stays_where_moving_does_not_pay() -> None:
    """Changes every 18 s on average: copying for 10 s loses more than a third of the rate does up to the next."""
    rows = [(900.0, "remove", "n0"), (900.0, "remove", "n2")]
    flapping = [(901.0 + i, "remove" if i % 2 == 0 else "add", "n7") for i in range(52)]
    assert play("replan", 960, *rows, *flapping).lost_s[Cause.MIGRATION] == 0
    assert play("replan", 3000, *rows).lost_s[Cause.MIGRATION] > 0


def test_ours_lets_a_returned_node_join() -> None:
    """When the lost node is back all stand still for 10.02 s and go on at the full rate."""
    outcome = another(job(), checkpoint_s=1e-9).play(
        trace(4000, (900, "remove", "n0"), (2000, "add", "n0")), ["replan"]
    )[0]
    assert outcome.lost_s[Cause.SLOWER] == pytest.approx((2000 - 915.02) * 0.25, rel=1e-6)
    assert causes(outcome, Cause.RECONFIGURATION) == [20.04]


def test_ours_without_normalization_plans_when_it_happens() -> None:
    """2 s in place of 0.02 s."""
    outcome = play("replan-no-normalization", 4000, (900, "remove", "n0"))
    assert causes(outcome, Cause.RECONFIGURATION) == [12]


def test_ours_when_a_stage_is_lost() -> None:
    """All of slot 0 at once: from the checkpoint the four others are spread over both slots; without moving they wait."""
    rows = [(900.0, "remove", f"n{i}") for i in (0, 2, 4, 6)]
    moved, stayed, shadow = UNIT.play(trace(2000, *rows), ["replan", "replan-no-migration", "replan-shadow"])
    assert (moved.rollbacks, stayed.rollbacks, shadow.rollbacks) == (1, 1, 0)
    assert causes(moved, Cause.WAITING, Cause.RESTART) == [0, 100]
    assert stayed.lost_s[Cause.WAITING] == pytest.approx(2000 - 905)
    # Two of each slot: 36 s a period.
    assert moved.lost_s[Cause.SLOWER] == pytest.approx((2000 - 1005) / 2)


def test_ours_waits_for_as_many_workers_as_slots() -> None:
    """One worker left trains nothing; a second one back and all is loaded from the checkpoint."""
    rows = [(900.0, "remove", f"n{i}") for i in range(7)]
    outcome = UNIT.play(trace(3000, *rows, (2000, "add", "n3")), ["replan"])[0]
    assert outcome.lost_s[Cause.WAITING] == pytest.approx(2000 - 905)
    assert outcome.lost_s[Cause.SLOWER] == pytest.approx((3000 - 2100) * 0.75)


def test_techniques_off() -> None:
    """ReCycle's worked example with its third slot's failure: 27 with all, 29 without staggering, 33 with fused backwards too."""
    example = load_job(EXAMPLES / "recycle-worked-example.yaml")
    key = (0, 0, 1, 0)
    assert Periods(job=example).of_counts(key) == 27_000
    assert Periods(job=without_staggering(example)).of_counts(key) == 29_000
    assert Periods(job=without_split(without_staggering(example))).of_counts(key) == 33_000


def test_names() -> None:
    """``all`` is every policy in the order of tables; unknown ones are named."""
    assert policies_named(ALL) == tuple(POLICIES)
    assert policies_named("checkpoint-restart, replan") == ("replan", "checkpoint-restart")
    with pytest.raises(OptionError, match="no policy 'magic'"):
        policies_named("replan,magic")


def test_every_policy_says_what_it_is() -> None:
    """Two of them change the batch, one is not exact; summaries are one line."""
    assert {name for name, policy in POLICIES.items() if not policy.keeps_batch} == {
        "drop-replica",
        "smaller-tensor-parallel",
    }
    assert {name for name, policy in POLICIES.items() if not policy.is_exact} == {"partial-recovery"}
    assert all(policy.summary and "\n" not in policy.summary for policy in POLICIES.values())


def _rates() -> Rates:
    """The job's rates where nothing is to be expected for long."""
    return Rates(periods=UNIT.periods, costs=COSTS, samples_per_microbatch=1, between_changes_s=1e6)
