"""List scheduling with pools: valid schedules of every kind of problem, and what no fixed routing reaches."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from planner.bounds import best_bound
from planner.operation import Worker
from planner.problem import Problem, Slot, Stage
from planner.replay import replay
from planner.validation import require_valid
from solver_models.annealing.search import Order
from solver_models.clock import Deadline, WorkClock
from solver_models.pools.engine import ANYONE, HOME, PIPELINE
from solver_models.pools.names import near_home
from solver_models.pools.search import NAME, PoolRule, PoolRun, PoolSearch, can_pool
from tests.problems import tiny_problem, tiny_problem_without_length, worn_problem

AT_HOME = PoolRule(load_share=0.0, preference=HOME, patience_share=0.0, margin_share=0.0, target_factor=1.0)


def worn(*dead: Worker, pipelines: int = 8, slots: int = 6, microbatches: int = 3) -> Problem:
    """Equal stages with some costs of a large model, memory for all microbatches."""
    stage = Stage(
        forward_ns=10_000, input_grad_ns=9_800, weight_grad_ns=6_600, activation_bytes=1_000, weight_grad_bytes=440
    )
    return Problem(
        stages=(stage,) * slots,
        slots=tuple(Slot(stages=(s,), capacity_bytes=12_000) for s in range(slots)),
        microbatches=(microbatches,) * pipelines,
        dead=frozenset(dead),
    )


def run(problem: Problem, seed: int = 0, seconds: float = 30.0) -> Order | None:
    """Everything there is to try, without a deadline that could cut it short, however slow the machine."""
    clock = WorkClock()
    search = PoolSearch(problem, best_bound(problem).value_ns, clock)
    return PoolRun(search, seed).until(Deadline.after(seconds, clock))


@pytest.mark.parametrize("draw", [worn_problem, tiny_problem, tiny_problem_without_length])
def test_pooled_schedules_are_valid(draw: object) -> None:
    """Dead and slow workers, fused stages, zero costs, tight memory, both optimizers: the validator finds nothing."""
    assert callable(draw)
    answers = 0
    for seed in range(60):
        problem = draw(random.Random(seed))
        if not can_pool(problem):
            continue
        order = run(problem, seconds=0.1)
        if order is not None:
            answers += 1
            assert order.solver == NAME
            require_valid(problem, order.schedule, order.period_ns)
            assert replay(problem, order.schedule).period_ns == order.period_ns
    assert answers >= 25


def test_pools_reach_the_bound_that_late_gradients_set() -> None:
    """Two workers of slot 0 and one each of slots 2 and 4 are down: 12 pipelines of 6 slots, 6 microbatches each."""
    problem = worn(Worker(2, 0), Worker(7, 0), Worker(7, 2), Worker(10, 4), pipelines=12, microbatches=6)
    bound = best_bound(problem)
    assert bound.name == "ranks"
    order = run(problem)
    assert order is not None
    assert order.period_ns == bound.value_ns


def test_same_seed_gives_the_same_order() -> None:
    """Nothing but the seed decides, and the work that may be done."""
    problem = worn_problem(random.Random(8))
    one, other = run(problem, seed=3), run(problem, seed=3)
    assert one is not None
    assert other is not None
    assert one.schedule == other.schedule


def test_no_time_gives_no_order() -> None:
    """The caller has another schedule by then."""
    assert run(worn(Worker(4, 0)), seconds=0.0) is None


def test_slots_of_several_stages_are_left_to_others() -> None:
    """The construction knows one stage a slot."""
    stage = Stage(forward_ns=1, input_grad_ns=1, weight_grad_ns=1)
    assert not can_pool(Problem(stages=(stage,) * 2, slots=(Slot(stages=(0, 1)),), microbatches=(2,)))
    assert can_pool(Problem(stages=(stage,) * 2, slots=(Slot(stages=(1,)), Slot(stages=(0,))), microbatches=(2,)))


def test_slots_may_lie_in_another_order_than_their_stages() -> None:
    """Stage 0 is in slot 1 and the other way round."""
    stage = Stage(forward_ns=2, input_grad_ns=3, weight_grad_ns=1, activation_bytes=1, weight_grad_bytes=1)
    problem = Problem(
        stages=(stage,) * 2,
        slots=(Slot(stages=(1,), capacity_bytes=1), Slot(stages=(0,), capacity_bytes=2)),
        microbatches=(2, 2, 2),
        dead=frozenset({Worker(0, 0)}),
    )
    order = run(problem)
    assert order is not None
    require_valid(problem, order.schedule, order.period_ns)


def test_microbatches_stay_at_home_while_that_is_free() -> None:
    """Nothing failed and everyone prefers home: no microbatch leaves."""
    problem = worn(pipelines=3)
    search = PoolSearch(problem, best_bound(problem).value_ns)
    trial = search.construct(AT_HOME, search.rank())
    assert trial is not None
    home = np.repeat(np.arange(3), 3)
    assert (trial.routing == home[:, None]).all()


@pytest.mark.parametrize("preference", [ANYONE, PIPELINE, HOME])
def test_loads_are_even_where_no_more_is_allowed(preference: int) -> None:
    """24 microbatches on 7 workers: three of them get four, the others three."""
    problem = worn(Worker(4, 2))
    search = PoolSearch(problem, best_bound(problem).value_ns)
    rule = PoolRule(load_share=0.0, preference=preference, patience_share=0.0, margin_share=0.0, target_factor=1.0)
    trial = search.construct(rule, search.rank())
    assert trial is not None
    assert sorted(np.bincount(trial.routing[:, 2], minlength=8).tolist()) == [0, 3, 3, 3, 3, 4, 4, 4]
    assert (trial.routing[:, 2] != 4).all()


def test_renaming_brings_microbatches_home() -> None:
    """Two intact pipelines that swap places at slot 1: new names of its workers leave nobody rerouted."""
    problem = worn(pipelines=2, slots=3, microbatches=2)
    routing = np.array([[0, 1, 0], [0, 1, 0], [1, 0, 1], [1, 0, 1]], dtype=np.int64)
    named, better = near_home(problem, routing, np.array([0, 10, 0, 10], dtype=np.int64))
    assert sorted(named.tolist()) == [0, 1, 2, 3]
    assert better.tolist() == [[0, 0, 0], [0, 0, 0], [1, 1, 1], [1, 1, 1]]


def test_renaming_leaves_the_schedule_as_it_is() -> None:
    """Dead workers stay dead, the window stays, and fewer microbatches are away than before."""
    problem = worn(Worker(4, 0), Worker(7, 2), Worker(1, 3))
    search = PoolSearch(problem, best_bound(problem).value_ns)
    rule = PoolRule(load_share=0.8, preference=ANYONE, patience_share=0.0, margin_share=0.0, target_factor=1.0)
    trial = search.construct(rule, search.rank())
    assert trial is not None
    renamed = search.renamed(trial)
    home = np.repeat(np.arange(8), 3)[:, None]
    assert (renamed.routing != home).sum() < (trial.routing != home).sum()
    for v, dead in ((0, 4), (2, 7), (3, 1)):
        assert (renamed.routing[:, v] != dead).all()
    assert sorted(renamed.start.tolist()) == sorted(trial.start.tolist())


def test_slow_workers_do_not_swap_with_others() -> None:
    """Pipeline 1's worker of slot 0 is slow and runs one microbatch; it still does after renaming."""
    problem = replace(worn(pipelines=2, slots=1, microbatches=2), speeds_ppm={Worker(1, 0): 500_000})
    routing = np.array([[1], [0], [0], [0]], dtype=np.int64)
    _, better = near_home(problem, routing, np.arange(4, dtype=np.int64))
    assert sorted(better[:, 0].tolist()) == [0, 0, 0, 1]
