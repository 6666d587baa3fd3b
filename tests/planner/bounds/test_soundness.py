"""No bound lies above a period that can be reached."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.bounds import best_bound
from planner.problem import Problem, Slot, Stage
from tests.exhaustive import SearchTooLargeError, exhaustive_period_ns, is_possible
from tests.problems import tiny_problem

REFERENCE = Path(__file__).parents[4] / "shared" / "data" / "zb_reference.json"


def require_sound(problem: Problem, max_states: int) -> bool:
    """Check that no schedule beats the best bound; ``False`` where the search is too large to tell."""
    bound = best_bound(problem)
    try:
        beaten = bound.value_ns > 0 and is_possible(problem, bound.value_ns - 1, max_states=max_states)
    except SearchTooLargeError:
        return False
    assert not beaten, f"{bound} is above a reachable period of {problem}"
    return True


def test_exhaustive_search_knows_hand_made_optima() -> None:
    """The search itself is right where the optimum can be worked out by hand."""
    stage = Stage(forward_ns=1, input_grad_ns=1, weight_grad_ns=1, activation_bytes=1, weight_grad_bytes=1)
    free = Problem(stages=(stage, stage), slots=(Slot(stages=(0,)), Slot(stages=(1,))), microbatches=(2,))
    # Slot 0: F F, one tick until I of the first is back (F1, I1 behind it), I W I W: 7. Slot 1 has no gap.
    assert exhaustive_period_ns(free) == 7
    # Room for one on slot 0: F0 F1 I1 I0 W0 one after the other, twice.
    tight = Problem(
        stages=(stage, stage), slots=(Slot(stages=(0,), capacity_bytes=1), Slot(stages=(1,))), microbatches=(2,)
    )
    assert exhaustive_period_ns(tight) == 10


def test_no_bound_above_the_optimum_of_seeded_problems() -> None:
    """A fixed set of tiny problems of every kind: nothing beats the bound."""
    decided = sum(require_sound(tiny_problem(random.Random(seed)), 400) for seed in range(100))
    assert decided >= 50


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_no_bound_above_the_optimum_of_drawn_problems(seed: int) -> None:
    """Hypothesis draws the problems."""
    require_sound(tiny_problem(random.Random(seed)), 400)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_no_bound_above_the_optimum_of_many_problems() -> None:
    """A long run over two thousand tiny problems with a deep search."""
    decided = sum(require_sound(tiny_problem(random.Random(seed)), 4000) for seed in range(10_000, 12_000))
    assert decided >= 1500


def reference_rows() -> list[dict[str, Any]]:
    """Rows of Zero Bubble's own scheduler."""
    if not REFERENCE.exists():
        pytest.skip(f"{REFERENCE.name} is not there")
    rows: list[dict[str, Any]] = json.loads(REFERENCE.read_text())["rows"]
    return rows


def reference_problem(row: dict[str, Any]) -> tuple[Problem, int]:
    """One row's configuration and the period its scheduler reached, in nanoseconds; unit costs are 1000 ns."""
    scale = 10**6 if row["source"].startswith("paper") else 1000
    folded = row["scheduler"] == "zbv"
    chunks = 2 if folded else 1
    forward_bytes, _, weight_bytes = (round(2 * delta) for delta in row["memory_delta_f_i_w"])
    num_slots, limit = row["num_stages"], row["memory_limit"]
    stage = Stage(
        forward_ns=round(row["forward"] * scale) // chunks,
        input_grad_ns=round(row["input_grad"] * scale) // chunks,
        weight_grad_ns=round(row["weight_grad"] * scale) // chunks,
        transfer_ns=round(row["transfer"] * scale),
        activation_bytes=forward_bytes // chunks,
        weight_grad_bytes=-weight_bytes // chunks,
        splittable=row["scheduler"] != "1f1b",
    )
    held = [(s, 2 * num_slots - 1 - s) if folded else (s,) for s in range(num_slots)]
    capacity = None if limit is None else round(2 * limit)
    problem = Problem(
        stages=(stage,) * (num_slots * chunks),
        slots=tuple(Slot(stages=stages, capacity_bytes=capacity) for stages in held),
        microbatches=(row["num_microbatches"],),
    )
    return problem, round(row["longest_stage_time"] * scale)


def bound_and_reached(row: dict[str, Any]) -> tuple[int, int]:
    """The best bound of a row and the period that its scheduler reached, in nanoseconds; each row is looked at once."""
    return _bound_and_reached(json.dumps(row))


@cache
def _bound_and_reached(row: str) -> tuple[int, int]:
    problem, reached_ns = reference_problem(json.loads(row))
    return best_bound(problem).value_ns, reached_ns


def test_no_bound_above_zero_bubbles_own_schedules() -> None:
    """All rows of the reference, 1F1B and V placement among them: the bound never exceeds what was reached."""
    for row in reference_rows():
        bound_ns, reached_ns = bound_and_reached(row)
        assert bound_ns <= reached_ns, row


def test_bound_meets_zero_bubble_at_unit_costs_and_at_1f1b_memory() -> None:
    """Every unit-cost row and all measured rows at 1F1B memory are optimal, which only a tight bound can tell."""
    rows = [row for row in reference_rows() if row["scheduler"] == "zb"]
    met = [row for row in rows if row["source"].startswith("unit") or row["memory_limit_over_1f1b"] == 1]
    assert len(met) == 72 + 24
    for row in met:
        bound_ns, reached_ns = bound_and_reached(row)
        assert bound_ns == reached_ns, row


def test_bound_meets_zero_bubbles_v_scheduler_at_measured_costs() -> None:
    """All twelve measured rows placed as a V are optimal too."""
    rows = [row for row in reference_rows() if row["scheduler"] == "zbv" and row["source"].startswith("paper")]
    assert len(rows) == 12
    for row in rows:
        bound_ns, reached_ns = bound_and_reached(row)
        assert bound_ns == reached_ns, row


@pytest.mark.parametrize(("count", "transfer"), [(2, 0), (3, 0), (2, 1), (3, 1)])
def test_bound_meets_the_optimum_of_small_vs(count: int, transfer: int) -> None:
    """Two slots as a V, memory for four activations: the bound leaves nothing open, whichever of its parts is the largest."""
    stage = Stage(
        forward_ns=1, input_grad_ns=1, weight_grad_ns=1, transfer_ns=transfer, activation_bytes=2, weight_grad_bytes=1
    )
    slots = (Slot(stages=(0, 3), capacity_bytes=8), Slot(stages=(1, 2), capacity_bytes=8))
    problem = Problem(stages=(stage,) * 4, slots=slots, microbatches=(count,))
    assert exhaustive_period_ns(problem, at_least=best_bound(problem).value_ns - 1) == best_bound(problem).value_ns


def test_no_bound_above_the_optimum_where_slots_hold_several_stages() -> None:
    """The seeded problems again, with two stages a slot as a V or as a loop in each."""
    decided = 0
    for seed in range(120):
        drawn = tiny_problem(random.Random(seed))
        held = random.Random(seed).choice(([(0, 3), (1, 2)], [(0, 2), (1, 3)]))
        problem = replace(
            drawn,
            stages=(drawn.stages * 4)[:4],
            slots=tuple(
                Slot(stages=stages, capacity_bytes=2 * drawn.stages[0].activation_bytes + seed % 5) for stages in held
            ),
            microbatches=(min(3, drawn.num_microbatches),),
            dead=frozenset(),
            speeds_ppm={},
        )
        decided += require_sound(problem, 400)
    assert decided >= 60


def test_bound_at_twice_the_memory_is_within_a_hundredth() -> None:
    """At twice the 1F1B memory at most 0.67 % remains open."""
    for row in reference_rows():
        if row["scheduler"] == "zb" and row["memory_limit_over_1f1b"] == 2:
            bound_ns, reached_ns = bound_and_reached(row)
            assert reached_ns <= bound_ns * 1.0067, row
