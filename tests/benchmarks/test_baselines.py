"""Baselines: 1F1B with naive rerouting, and rerouting in fixed turns."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.baselines import Baseline, naive_rerouting, round_robin_in_order
from benchmarks.generated import placements, speeds
from benchmarks.instance import Instance
from benchmarks.jobs import round_robin_example
from planner.baseline import one_f_one_b
from planner.operation import Kind, Worker
from planner.plan_check import check_schedule
from planner.problem import Optimizer, Problem, Slot, Stage
from planner.validation import validate

UNIT = Stage(forward_ns=1000, input_grad_ns=1000, weight_grad_ns=1000, activation_bytes=2, weight_grad_bytes=1)
TWO_BROKEN = Problem(
    stages=(UNIT,) * 4,
    slots=tuple(Slot(stages=(s,), capacity_bytes=8) for s in range(4)),
    microbatches=(4, 6, 5),
    dead=frozenset({Worker(0, 1), Worker(1, 3), Worker(0, 2)}),
)
"""Pipelines 0 and 1 are broken and may host each other's microbatches."""


def check(made: Baseline) -> None:
    """All that a plan has to stand."""
    check_schedule(made.problem, made.schedule, made.period_ns)


def test_round_robin_reaches_what_its_re_implementation_records() -> None:
    """2895 for 2 x 4 x 16 with 30, 45, 15 and a failed worker of slot 0, where 32 microbatches x 90 are 2880 of work."""
    instance = round_robin_example()
    made = round_robin_in_order(instance.problem)
    check(made)
    assert made.period_ns == instance.published_ns == 2_895_000


def test_1f1b_of_that_problem_without_failures() -> None:
    """(16 + 3) microbatches of 90 one after the other: 1710."""
    problem = replace(round_robin_example().problem, dead=frozenset())
    made = naive_rerouting(problem)
    check(made)
    assert made.period_ns == 1_710_000


def test_naive_rerouting_runs_the_broken_pipeline_behind_the_sound_one() -> None:
    """With one host for all of them that is two 1F1B iterations: 2 x 1710."""
    made = naive_rerouting(round_robin_example().problem)
    check(made)
    assert made.period_ns == 2 * 1_710_000


def test_without_failures_naive_rerouting_is_1f1b() -> None:
    """Order for order."""
    problem = replace(TWO_BROKEN, dead=frozenset(), optimizer=Optimizer.GLOBAL)
    assert naive_rerouting(problem).schedule.to_text() == one_f_one_b(problem).to_text()


@pytest.mark.parametrize("build", [naive_rerouting, round_robin_in_order])
def test_broken_pipelines_that_host_each_other_do_not_wait_in_a_cycle(build: object) -> None:
    """The schedule runs, every microbatch once a stage, on live workers of its slot."""
    made = naive_rerouting(TWO_BROKEN) if build is naive_rerouting else round_robin_in_order(TWO_BROKEN)
    check(made)
    assert made.problem.optimizer is Optimizer.GLOBAL


def test_naive_rerouting_keeps_memory_and_fuses_round_robin_does_neither() -> None:
    """The one is a plan of the whole problem too; the other splits, and breaks memory where two 1F1B orders do not fit."""
    naive, turns = naive_rerouting(TWO_BROKEN), round_robin_in_order(TWO_BROKEN)
    whole = replace(TWO_BROKEN, optimizer=Optimizer.GLOBAL)
    assert validate(whole, naive.schedule, naive.period_ns) == ()
    assert {violation.code for violation in validate(whole, turns.schedule, turns.period_ns)} == {"memory"}
    assert set(naive.schedule.kind.tolist()) == {Kind.F, Kind.B}
    assert set(turns.schedule.kind.tolist()) == {Kind.F, Kind.I, Kind.W}


def test_failed_workers_microbatches_go_round_their_peers_in_turn() -> None:
    """Microbatch j of a lone failed worker is run by the (j mod 2)-th of two peers."""
    problem = replace(TWO_BROKEN, dead=frozenset({Worker(0, 1)}))
    for made in (naive_rerouting(problem), round_robin_in_order(problem)):
        schedule = made.schedule
        hosts = {
            schedule.operation(row).microbatch: k
            for k in (1, 2)
            for row in schedule.rows(Worker(k, 1))
            if schedule.operation(row).pipeline == 0
        }
        assert hosts == {0: 1, 1: 2, 2: 1, 3: 2}


@pytest.mark.parametrize(
    "instance", [*list(placements())[::3], *list(speeds())[::6]], ids=lambda instance: instance.name
)
def test_other_placements_speeds_and_unsplittable_stages(instance: Instance) -> None:
    """Both give plans that stand all checks, also where backwards cannot be split."""
    fused = replace(
        instance.problem, stages=tuple(replace(stage, splittable=False) for stage in instance.problem.stages)
    )
    for problem in (instance.problem, fused):
        check(naive_rerouting(problem))
        check(round_robin_in_order(problem))
