"""Spreading microbatches over workers: the least value the worst-off worker can get away with.

Every bound about one worker has the form "with load ``n`` the period is at least ``g(n)``", with ``g`` depending on the
worker's speed only and never falling in ``n``. Whatever the routing, loads add up to all microbatches, so the period is
at least the smallest ``T`` with ``sum over workers of max{n : g(n) <= T} >= N`` (docs/model.md, equation (24)). Workers of
equal speed are counted, not listed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from fractions import Fraction
from math import ceil, gcd


def spread(counts: Sequence[int], period_at_load: Sequence[Callable[[int], int]], total: int) -> int:
    """Least ``T`` for which workers with period at most ``T`` can carry ``total`` microbatches.

    Parameters
    ----------
    counts
        Workers of each class, at least 1 each.
    period_at_load
        For each class ``g``: the period in nanoseconds that a load of ``n`` microbatches implies, ``n >= 1``; never falls.
    total
        Microbatches to carry, at least 1.

    Returns
    -------
    int
        The least such ``T``; it is one of the values of ``g``.

    Examples
    --------
    Two workers at 3 ns a microbatch carry 15 in 24 ns; loads are 8 and 7.

    >>> spread([2], [lambda n: 3 * n], 15)
    24
    """
    if len(counts) == 1:
        return period_at_load[0](-(-total // counts[0]))

    def carried(period: int) -> int:
        loads = (bisect_right(range(1, total + 1), period, key=value_at) for value_at in period_at_load)
        return sum(count * load for count, load in zip(counts, loads, strict=True))

    # By hand: bytes times nanoseconds pass 64 bits, which is the longest range that `bisect_left` takes.
    low, high = 0, period_at_load[0](-(-total // counts[0]))
    while low < high:
        middle = (low + high) // 2
        if carried(middle) >= total:
            high = middle
        else:
            low = middle + 1
    return low


def spread_stages(counts: Sequence[int], costs: Sequence[Sequence[int]], total: int) -> int:
    """Bound the largest summed cost on some worker when each stage's microbatches are spread on their own.

    Parameters
    ----------
    counts
        Workers of each class.
    costs
        ``costs[c][v]``: cost on class ``c`` of one microbatch at the slot's ``v``-th stage, at least 0.
    total
        Microbatches through each stage, at least 1.

    Returns
    -------
    int
        The larger of two relaxations (exact with one stage, or with equal costs): loads may be split at will; and, for each
        threshold, only stages at least as costly count, each as the cheapest of them.

    Examples
    --------
    Three microbatches through stages of cost 4 and 2 on two workers: 18 in all, 9 each; but loads are even, so 10.

    >>> spread_stages([2], [[4, 2]], 3)
    10
    """
    num_stages = len(costs[0])
    best = _fractional(counts, costs, total) if num_stages > 1 else 0
    for threshold in set(costs[0]):
        chosen = [v for v in range(num_stages) if costs[0][v] >= threshold]
        cheapest = [min(row[v] for v in chosen) for row in costs]
        values = [(lambda n, cost=cost: n * cost) for cost in cheapest]
        best = max(best, spread(counts, values, total * len(chosen)))
    return best


def _fractional(counts: Sequence[int], costs: Sequence[Sequence[int]], total: int) -> int:
    """Spread at will: the total cost on the first class over all workers' speeds relative to it, rounded up."""
    base = costs[0]
    work = total * sum(base)
    if work == 0:
        return 0
    power = Fraction(0)
    for count, row in zip(counts, costs, strict=True):
        slowdown = min(Fraction(cost, own) for cost, own in zip(row, base, strict=True) if own > 0)
        if slowdown == 0:
            return 0
        power += count / slowdown
    if len(counts) > 1:
        return ceil(work / power)
    # One class: every load is a sum of the stages' costs, so a multiple of their common divisor.
    step = gcd(*base)
    return step * ceil(Fraction(work, counts[0] * step))
