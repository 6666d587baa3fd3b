"""Pairs of workers that send each other messages."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.lowering import lower
from planner.normalization import canonical_problem, relabel, relabelling
from planner.peer_pairs import new_pairs, peer_pairs, schedule_pairs
from planner.programs import Opcode, Programs
from planner.timing import time_schedule
from tests.plans import tiny_plan
from tests.problems import tiny_problem
from tests.random_orders import random_order


def sends(programs: Programs) -> set[tuple[int, int]]:
    """Pairs that the programs' sends go over."""
    worker = np.repeat(np.arange(len(programs.offsets) - 1), np.diff(programs.offsets))
    rows = programs.opcode == Opcode.SEND
    return set(zip(worker[rows].tolist(), programs.peer[rows].tolist(), strict=True))


@given(st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_pairs_are_those_of_the_sends(rng: random.Random) -> None:
    """Under any relabelling the pairs are exactly those that the real programs send over, ascending."""
    real = tiny_problem(rng)
    canonical = canonical_problem(real)
    schedule, _ = time_schedule(canonical, random_order(canonical, rng))
    found = relabelling(real, schedule=schedule)
    pairs = [tuple(pair) for pair in peer_pairs(schedule, found).tolist()]
    assert pairs == sorted(sends(lower(real, relabel(schedule, found))))


def test_pairs_of_the_tiny_plan() -> None:
    """Worker 0/1 stands in for 1/1, so both 0/0 (index 0) and 1/0 (index 2) exchange with it (index 1)."""
    assert schedule_pairs(tiny_plan().schedule).tolist() == [[0, 1], [1, 0], [1, 2], [2, 1]]


def test_new_pairs() -> None:
    """Only what was not connected before is new; nothing is new of nothing, and everything against nothing."""
    old, new = np.array([[0, 1], [1, 0]]), np.array([[0, 1], [1, 2], [5, 0]])
    assert new_pairs(old, new).tolist() == [[1, 2], [5, 0]]
    assert new_pairs(new, new).tolist() == []
    none = np.empty((0, 2), dtype=np.int64)
    assert new_pairs(none, new).tolist() == new.tolist()
    assert new_pairs(old, none).shape == (0, 2)
