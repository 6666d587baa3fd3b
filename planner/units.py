"""The one place where microseconds become nanoseconds and back.

Files and the API speak microseconds (``_us``, decimal numbers); the planner speaks integer nanoseconds (``_ns``).
A value that lies between two nanoseconds is rounded half to even, as ``round`` does.
"""

from __future__ import annotations

import math

from planner.errors import ProblemError

MAX_DURATION_NS = 10**15
"""Longest duration taken, about 11.5 days: sums of 9,000 of them still fit 64 bits."""


def us_to_ns(value_us: float, *, what: str) -> int:
    """Turn microseconds into integer nanoseconds.

    Parameters
    ----------
    value_us
        Microseconds, finite, at least 0 and at most 1e12.
    what
        Name of the value for the error message, for example ``"stages[3].forward_us"``.

    Raises
    ------
    ProblemError
        If the value is negative, not finite or too large.

    Examples
    --------
    >>> us_to_ns(18.522, what="forward_us")
    18522
    """
    if not math.isfinite(value_us) or value_us < 0:
        raise ProblemError(f"{what} is {value_us}; expected a finite number of microseconds, at least 0")
    value_ns = round(value_us * 1000)
    if value_ns > MAX_DURATION_NS:
        raise ProblemError(f"{what} is {value_us} us; expected at most {MAX_DURATION_NS // 1000} us")
    return value_ns


def ns_to_us(value_ns: int) -> float:
    """Turn integer nanoseconds into microseconds; exact to the nanosecond below 2**53 ns.

    Examples
    --------
    >>> ns_to_us(18522)
    18.522
    """
    return value_ns / 1000
