"""How long it takes to move failures between slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

Counts: TypeAlias = tuple[int, ...]
"""Dead workers of each slot."""


def copying_s(
    counts: Counts, new_counts: Counts, num_pipelines: int, state_bytes: Sequence[int], bytes_per_s: float
) -> float:
    """Seconds until the last worker that moves has its state.

    A slot that gains ``m`` workers has ``n`` live ones to copy from, each of which serves one after the other: ``ceil(m / n)``
    copies one after another. All slots copy at the same time.

    Parameters
    ----------
    counts, new_counts
        Dead workers of each slot before and after; a slot that gains has a live worker.
    num_pipelines
        ``D``.
    state_bytes
        What a worker of each slot copies, over all of its GPUs.
    bytes_per_s
        What a worker receives, over all of its GPUs.

    Examples
    --------
    Two of three dead workers of a slot of four pipelines replaced: one peer serves both, ``2 * 1000 / 100`` is 20 s.

    >>> copying_s((3, 0), (1, 2), 4, (1000, 1000), 100.0)
    20.0
    """
    longest = 0.0
    for old, new, size in zip(counts, new_counts, state_bytes, strict=True):
        gained = old - new
        if gained > 0:
            rounds = -(-gained // (num_pipelines - old))
            longest = max(longest, rounds * size / bytes_per_s)
    return longest
