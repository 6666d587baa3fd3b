"""Tests of the assignment problem."""

from __future__ import annotations

from itertools import permutations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from planner.assignment import best_pairs


@st.composite
def _weights(draw: st.DrawFn) -> np.ndarray:
    rows, columns = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    values = draw(st.lists(st.integers(-20, 20), min_size=rows * columns, max_size=rows * columns))
    return np.array(values, dtype=np.int64).reshape(rows, columns)


@given(_weights())
def test_largest_sum_of_all_pairings(weights: np.ndarray) -> None:
    """The chosen pairs weigh as much as the best of all complete pairings, each row and column at most once."""
    pairs = best_pairs(weights)
    wide = weights if weights.shape[0] <= weights.shape[1] else weights.T
    best = max(
        sum(int(wide[row, column]) for row, column in enumerate(columns))
        for columns in permutations(range(wide.shape[1]), wide.shape[0])
    )
    assert len({row for row, _ in pairs}) == len({column for _, column in pairs}) == len(pairs) == wide.shape[0]
    assert sum(int(weights[row, column]) for row, column in pairs) == best


def test_a_row_gives_way_to_another() -> None:
    """Row 0 prefers column 0, but taking column 1 (3 + 2) beats it (3 + 0)."""
    assert best_pairs(np.array([[3, 2], [3, 0]])) == [(0, 1), (1, 0)]
