"""Spreading loads over workers against plain enumeration."""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from planner.bounds.spread import spread, spread_stages

COSTS = st.integers(0, 9)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=3), st.integers(1, 7))
@settings(max_examples=200, deadline=None)
def test_spread_is_the_best_split(costs: list[int], total: int) -> None:
    """With one worker a class, spread finds the split whose largest load is smallest."""
    splits = (split for split in product(range(total + 1), repeat=len(costs)) if sum(split) == total)
    best = min(max(n * c + (n > 0) for n, c in zip(split, costs, strict=True)) for split in splits)
    assert spread([1] * len(costs), [(lambda n, c=c: n * c + 1) for c in costs], total) == best


@given(st.lists(st.tuples(COSTS, COSTS), min_size=1, max_size=2), st.integers(1, 4))
@settings(max_examples=200, deadline=None)
def test_spread_stages_never_exceeds_the_best_split(costs: list[tuple[int, int]], total: int) -> None:
    """Two stages' microbatches on up to two workers, each worker with its own costs: never above the best split."""
    rows = sorted(costs)
    splits = [split for split in product(range(total + 1), repeat=len(rows)) if sum(split) == total]
    best = min(
        max(a * row[0] + b * row[1] for a, b, row in zip(first, second, rows, strict=True))
        for first in splits
        for second in splits
    )
    assert spread_stages([1] * len(rows), rows, total) <= best


def test_spread_takes_values_past_64_bits() -> None:
    """Bytes times nanoseconds of a large model with a slow worker: 2 workers carry 3, so the slow one carries one."""
    costs = (2**62, 3 * 2**62)
    assert spread([1, 1], [(lambda n, c=c: n * c) for c in costs], 3) == 3 * 2**62
