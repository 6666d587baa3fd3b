"""Microseconds and nanoseconds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import ProblemError
from planner.units import MAX_DURATION_NS, ns_to_us, us_to_ns


@pytest.mark.parametrize(
    ("value_us", "value_ns"),
    [(0, 0), (1, 1000), (18.522, 18522), (0.0005, 0), (0.0015, 2), (0.0025, 2), (0.0006, 1), (1e12, MAX_DURATION_NS)],
)
def test_rounding_is_half_to_even(value_us: float, value_ns: int) -> None:
    """Halves of a nanosecond go to the even neighbour, everything else to the nearest."""
    assert us_to_ns(value_us, what="x") == value_ns


@given(st.integers(0, MAX_DURATION_NS))
def test_nanoseconds_survive_the_way_through_microseconds(value_ns: int) -> None:
    """Every duration taken is below 2**53 ns, so nothing is lost."""
    assert us_to_ns(ns_to_us(value_ns), what="x") == value_ns


@pytest.mark.parametrize("value_us", [-1, -0.001, float("nan"), float("inf"), 1.1e12])
def test_values_out_of_range_are_named(value_us: float) -> None:
    """Negative, infinite, undefined and huge values are refused with the name of the value."""
    with pytest.raises(ProblemError, match=r"stages\[3\]\.forward_us is .* expected"):
        us_to_ns(value_us, what="stages[3].forward_us")
