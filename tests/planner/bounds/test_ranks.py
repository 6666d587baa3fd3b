"""The bound by rank: worked by hand, against exhaustive search, and against what CP-SAT proves of random problems."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from planner.bounds import best_bound, lower_bounds, slot_bounds
from planner.operation import Worker
from planner.problem import Problem, Slot, Stage
from solver_models.clock import Deadline, WorkClock
from solver_models.cp_sat_search import Progress, complete, solve_model
from solver_models.pools.search import PoolRun, PoolSearch
from solver_models.result import SolveOptions, Status
from solver_models.routing import free_routing
from solver_models.search import SearchInput, ignore_report
from solver_models.ticks import choose_ticks
from tests.exhaustive import is_possible
from tests.problems import worn_problem


def unit_problem(slots: int, pipelines: int, microbatches: int, dead: set[tuple[int, int]]) -> Problem:
    """Unit costs, room for one microbatch of 1 byte, which it keeps up to the end of W."""
    stage = Stage(forward_ns=1, input_grad_ns=1, weight_grad_ns=1, activation_bytes=1, weight_grad_bytes=1)
    return Problem(
        stages=(stage,) * slots,
        slots=tuple(Slot(stages=(s,), capacity_bytes=1) for s in range(slots)),
        microbatches=(microbatches,) * pipelines,
        dead=frozenset(Worker(k, s) for k, s in dead),
    )


def ranks(problem: Problem) -> int:
    """Value of the bound by rank; 0 where there is none."""
    return max((bound.value_ns for bound in lower_bounds(problem) if bound.name == "ranks"), default=0)


def of_slots(problem: Problem) -> int:
    """Best of all other bounds."""
    return max(bound.value_ns for bound in slot_bounds(problem))


def test_the_third_backward_waits_for_one_of_two_workers() -> None:
    """The example of docs/model.md, section 6.8."""
    # Slot 1 is two workers with room for one microbatch each: F I W from 1 on, so its third F starts at 4 and its third I ends
    # at 6. Slot 0 has four more backwards to go on three workers: one does I W, F, two idle until it is back, I W. 6 + 7.
    problem = unit_problem(2, 3, 2, {(0, 1)})
    assert (ranks(problem), of_slots(problem)) == (13, 11)
    assert (best_bound(problem).name, best_bound(problem).slot) == ("ranks", 0)


@pytest.mark.parametrize("seed", [2898, 3485, 4016])
def test_bound_is_the_optimum_of_some_tiny_problems(seed: int) -> None:
    """Exhaustive search finds a schedule of that period and none below, where no other bound says as much."""
    problem = worn_problem(random.Random(seed))
    value = ranks(problem)
    assert of_slots(problem) < value
    assert not is_possible(problem, value - 1)
    assert is_possible(problem, value)


def is_refuted(problem: Problem, period_ns: int, limit_s: float = 5.0) -> bool | None:
    """Whether CP-SAT, told nothing of our bounds, proves that there is no schedule with this period; ``None`` for no answer.

    The limit counts work, so that the same problems are refuted on every machine.
    """
    ticks = choose_ticks(problem, 0, exact=True)
    # Rounded down: a model asked for part of a tick more might find the next longer period.
    units = ticks.time_units(period_ns) + ticks.subticks - 1
    options, deadline = SolveOptions(deadline_s=limit_s, deterministic=True), Deadline.after(float("inf"), WorkClock())
    given = SearchInput(solver="cp_sat", problem=problem, options=options, floor_ns=0, deadline=deadline)
    model = complete(problem, ticks, free_routing(problem), lower=units, upper=units, restricted=False)
    status, _ = solve_model(model, Progress(given=given, report=ignore_report, bound_ns=0), limit_s, whole=True)
    return status is Status.INFEASIBLE if status in (Status.INFEASIBLE, Status.OPTIMAL) else None


def require_refuted(seeds: range) -> int:
    """Check that nothing beats the bound by rank where it is the largest; how often that was proved."""
    refuted = 0
    for seed in seeds:
        problem = worn_problem(random.Random(seed))
        value = ranks(problem)
        if value > of_slots(problem):
            answer = is_refuted(problem, value - 1)
            refuted += answer is True
            assert answer is not False, f"seed {seed}: {value} is above a reachable period of {problem}"
    return refuted


def test_cp_sat_refutes_anything_below_the_bound() -> None:
    """A fixed set of small problems with failures."""
    assert require_refuted(range(400)) >= 8


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_cp_sat_refutes_anything_below_the_bound_of_many_problems() -> None:
    """Ten thousand problems, of which the bound by rank is the largest for hundreds."""
    assert require_refuted(range(10_000, 20_000)) >= 150


def test_slow_workers_only_count_as_live_ones() -> None:
    """A slow worker is taken for a fast one, so the bound is that of the same problem without slow workers."""
    problem = unit_problem(2, 3, 2, {(0, 1)})
    slowed = replace(problem, speeds_ppm={Worker(1, 1): 500_000})
    assert ranks(slowed) == ranks(problem)


def test_times_beyond_64_bits_are_left_out() -> None:
    """The other bounds count in whole numbers of any size."""
    stage = Stage(forward_ns=2**60, input_grad_ns=2**60, weight_grad_ns=0)
    slots = (Slot(stages=(0,)), Slot(stages=(1,)))
    problem = Problem(stages=(stage, stage), slots=slots, microbatches=(2, 2), dead=frozenset({Worker(0, 1)}))
    assert all(bound.name != "ranks" for bound in lower_bounds(problem))
    # Slot 1's one worker has four microbatches of 2**61 ns; slot 0 is before and after.
    assert best_bound(problem).value_ns == 2**63 + 2**61


def test_nothing_is_said_where_no_slot_has_fewer_workers() -> None:
    """Intact pipelines do not wait for each other."""
    problem = unit_problem(2, 3, 2, set())
    assert all(bound.name != "ranks" for bound in lower_bounds(problem))


@pytest.mark.parametrize("capacity", [5, 7])
def test_busy_workers_that_end_in_step_make_later_ranks_late(capacity: int) -> None:
    """Three pipelines of five slots, four microbatches each, two neighbouring slots with a worker less."""
    stage = Stage(forward_ns=100, input_grad_ns=98, weight_grad_ns=66, activation_bytes=1000, weight_grad_bytes=440)
    problem = Problem(
        stages=(stage,) * 5,
        slots=tuple(Slot(stages=(s,), capacity_bytes=1000 * capacity) for s in range(5)),
        microbatches=(4, 4, 4),
        dead=frozenset({Worker(1, 2), Worker(2, 3)}),
    )
    # Slot 3 is busy from 300 on: six F and six I on two workers, all W owed, 1188; so its last two I end at 1488 and the two
    # before at 1390 at the earliest. Four backwards of 98 + 66 are left when the latter reach slot 0, 196 later: two for one
    # of three workers. 1390 + 196 + 328.
    assert of_slots(problem) < ranks(problem) == 1914
    clock = WorkClock()
    order = PoolRun(PoolSearch(problem, 1914, clock), 0).until(Deadline.after(20.0, clock))
    assert order is not None
    assert order.period_ns == 1914
