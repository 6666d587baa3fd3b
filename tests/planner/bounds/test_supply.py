"""The bound by supply: worked by hand, against exhaustive search, and against what CP-SAT proves of random problems."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from planner.bounds import best_bound, lower_bounds
from planner.operation import Worker
from planner.problem import Problem, Slot, Stage
from tests.exhaustive import is_possible
from tests.planner.bounds.test_ranks import is_refuted
from tests.problems import worn_problem


def short_of_memory(microbatches: int, *, pipelines: int = 1, splittable: bool = True) -> Problem:
    """Three slots of unit costs, room for two microbatches in the first and for one in the others."""
    stage = Stage(
        forward_ns=1, input_grad_ns=1, weight_grad_ns=1, activation_bytes=1, weight_grad_bytes=1, splittable=splittable
    )
    slots = tuple(Slot(stages=(s,), capacity_bytes=room) for s, room in enumerate((2, 1, 1)))
    return Problem(stages=(stage,) * 3, slots=slots, microbatches=(microbatches,) * pipelines)


def supply(problem: Problem) -> int:
    """Value of the bound by supply; 0 where it is not the largest."""
    return max((bound.value_ns for bound in lower_bounds(problem) if bound.name == "supply"), default=0)


def others(problem: Problem) -> int:
    """Best of all other bounds."""
    return max(bound.value_ns for bound in lower_bounds(problem) if bound.name != "supply")


def test_a_slot_idles_while_nothing_new_can_have_come() -> None:
    """The example of docs/model.md, section 6.8, and no schedule is shorter."""
    # Slot 1 runs F at 1, I at 4, W, F at 6, and its next I comes at 9: 4 of the first 9 units. Of 9 units of work one W may be
    # owed after the last I, which comes 2 after the last F: 9 + 5 - 1 + 2 = 15. Its gradient needs I and W in slot 0.
    problem = short_of_memory(3)
    assert (supply(problem), others(problem)) == (17, 15)
    assert (best_bound(problem).name, best_bound(problem).slot) == ("supply", 1)
    assert not is_possible(problem, 16)
    assert is_possible(problem, 17)


def test_equal_pipelines_wait_as_long_as_one() -> None:
    """Ranks of intact pipelines come in blocks, of which one of each is counted."""
    assert supply(short_of_memory(3, pipelines=4)) == supply(short_of_memory(3)) == 17


def test_nothing_is_said_where_memory_does_not_bind() -> None:
    """With room for all, whatever a slot waits for is on its way: the other bounds say as much."""
    roomy = replace(short_of_memory(3), slots=tuple(Slot(stages=(s,)) for s in range(3)))
    assert supply(roomy) == 0


@pytest.mark.parametrize("seed", [1535, 2212, 4380])
def test_bound_is_the_optimum_of_some_worn_problems(seed: int) -> None:
    """CP-SAT, told nothing of it, refutes any shorter period and finds a schedule of this one."""
    problem = worn_problem(random.Random(seed))
    value = supply(problem)
    assert others(problem) < value
    assert is_refuted(problem, value - 1) is True
    assert is_refuted(problem, value) is False


def require_refuted(seeds: range) -> int:
    """Check that nothing beats the bound by supply where it is the largest; how often that was proved."""
    refuted = 0
    for seed in seeds:
        problem = worn_problem(random.Random(seed))
        value = supply(problem)
        if value > 0:
            answer = is_refuted(problem, value - 1)
            refuted += answer is True
            assert answer is not False, f"seed {seed}: {value} is above a reachable period of {problem}"
    return refuted


def test_cp_sat_refutes_anything_below_the_bound() -> None:
    """A fixed set of small problems with failures."""
    assert require_refuted(range(1500, 2500)) >= 6


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_cp_sat_refutes_anything_below_the_bound_of_many_problems() -> None:
    """Ten thousand problems, of which the bound by supply is the largest for dozens."""
    assert require_refuted(range(20_000, 30_000)) >= 25


def test_unsplit_backwards_count_whole() -> None:
    """Where stages cannot split their backward, the gradient waits for I and W, and nothing is owed."""
    # Slot 1 has room for one: F at 1, B from 5 to 7, F at 7, and the third F, by rank, not before 10: 4 of the first 10 units.
    # Behind its last F it waits 3 for its B: 9 + 6 + 3 = 18, and slot 0 needs 2.
    problem = short_of_memory(3, splittable=False)
    assert (supply(problem), others(problem)) == (20, 18)
    assert not is_possible(problem, 19)


def test_slow_and_lost_workers_keep_it_sound() -> None:
    """Loads are spread over fewer workers, of which a slow one counts as a fast one."""
    problem = short_of_memory(2, pipelines=2)
    worn = replace(problem, dead=frozenset({Worker(0, 1)}), speeds_ppm={Worker(1, 2): 500_000})
    assert best_bound(worn).value_ns >= best_bound(problem).value_ns
    assert is_refuted(worn, best_bound(worn).value_ns - 1) is True
