"""The failure grid."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.grid import FAILURES, GRID_SEEDS, MEMORY, PROBLEMS_PER_DRAW, TRANSFER_SHARE, UNEVEN, grid
from planner.operation import Worker

FIRST_NAME = "g00-D12-P12-M36-f4-mem1-uneven-comm0"
FIRST_FORWARDS = [8000, 11000, 9000, 9000]
FIRST_DEAD = [Worker(2, 7), Worker(3, 0), Worker(7, 8), Worker(11, 8)]


def test_problems_have_names_of_their_own_and_are_plannable() -> None:
    """Every slot keeps a live worker, and no two problems share a name."""
    items = list(grid())
    assert len(items) == len({item.name for item in items}) == PROBLEMS_PER_DRAW * len(GRID_SEEDS) == 128
    assert [item.index for item in items] == list(range(128))
    for item in items:
        item.problem.require_plannable()
        assert len(item.problem.dead) == item.num_failures


def test_the_first_draw_stays_as_it_was_published() -> None:
    """Tables name these problems; another draw behind them does not change them."""
    items = list(grid())
    assert items[0].name == FIRST_NAME
    assert items[63].name == "g63-D8-P4-M2-f0-mem2-uneven-comm0"
    # Of the published instances: stages scaled by 0.8 to 1.2 of F, I, W = 10, 9.8, 6.6 us, and failed workers.
    assert [stage.forward_ns for stage in items[0].problem.stages[:4]] == FIRST_FORWARDS
    assert sorted(items[0].problem.dead) == FIRST_DEAD


@pytest.mark.parametrize("first", [0, PROBLEMS_PER_DRAW])
def test_each_draw_takes_every_value_equally_often(first: int) -> None:
    """64 problems over as many values of an attribute: each 64 / n times, one more or less."""
    items = list(grid())[first : first + PROBLEMS_PER_DRAW]
    for values, column in (
        (MEMORY, [item.memory for item in items]),
        (UNEVEN, [item.uneven for item in items]),
        (TRANSFER_SHARE, [item.transfer_share for item in items]),
    ):
        assert Counter(column) == dict.fromkeys(values, PROBLEMS_PER_DRAW // len(values))
    # A problem of 2 x 2 has no room for four failures.
    assert Counter(item.num_failures for item in items).keys() == set(FAILURES)
