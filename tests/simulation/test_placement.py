"""Where failures are moved to, and how long copying takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulation.placement import copying_s, levelled


@pytest.mark.parametrize(
    ("counts", "expected"),
    [((4, 0, 0, 1), (2, 0, 1, 2)), ((1, 1), (1, 1)), ((0, 0, 3), (1, 1, 1)), ((0, 0), (0, 0)), ((2, 0, 0), (1, 0, 1))],
)
def test_levelled(counts: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """Late slots take what the full ones give up."""
    assert levelled(counts) == expected


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6).map(tuple))
def test_level_counts_fill_the_fewest_pipelines(counts: tuple[int, ...]) -> None:
    """As many dead workers, the largest count as small as it can be, and nothing moved that need not be."""
    level = levelled(counts)
    most = -(-sum(counts) // len(counts))
    assert sum(level) == sum(counts)
    assert max(level) == most
    assert sum(max(0, old - new) for old, new in zip(counts, level, strict=True)) == sum(
        max(0, c - most) for c in counts
    )


def test_copies_from_one_peer_come_one_after_another() -> None:
    """Three gained by a slot with two live workers take two rounds; slots copy side by side."""
    assert copying_s((3, 0), (0, 3), 5, (1000, 1000), 100.0) == 20.0
    assert copying_s((2, 2, 0), (1, 1, 2), 4, (1000, 3000, 1), 100.0) == 30.0
    assert copying_s((1, 1), (1, 1), 4, (1000, 1000), 100.0) == 0.0
