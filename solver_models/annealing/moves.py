"""The moves of annealing: which operation is shifted where, whether that is allowed, and how an order changes by it."""

from __future__ import annotations

import numpy as np
from numba import njit

from planner.schedule import IntColumn
from solver_models.annealing.state import (
    AFTER,
    BEFORE,
    DURATION,
    END,
    KIN,
    PLACE,
    REACH,
    WORKER,
)

_LATE_SHARE = 0.7
_LATE_DRAWS = 24
_MEAN_SHIFT = 3.0
_KEEP_KIN = 0.9
"""Share of shifts that end where the node would pass one of its kin."""


@njit(cache=True)
def shift(order: IntColumn, state: IntColumn, here: int, there: int) -> None:
    """Move the node at one place to another, the ones between by one."""
    node = order[here]
    step = 1 if there > here else -1
    at = here
    while at != there:
        order[at] = order[at + step]
        state[order[at], PLACE] = at
        at += step
    order[there] = node
    state[node, PLACE] = there


@njit(cache=True)
def hold(
    order: IntColumn, held: IntColumn, acquire: IntColumn, release_bytes: IntColumn, before: int, low: int, high: int
) -> None:
    """Count again the bytes held behind each place ``low..high``; ``before`` are held at its beginning."""
    for at in range(low, high + 1):
        before += acquire[order[at]] - release_bytes[order[at]]
        held[at] = before


@njit(cache=True)
def fits(
    order: IntColumn,
    held: IntColumn,
    acquire: IntColumn,
    release_bytes: IntColumn,
    low: int,
    capacity: int,
    here: int,
    there: int,
) -> bool:
    """Whether a shift keeps the order F, I, W of its microbatch and the worker's memory."""
    node = order[here]
    gain = acquire[node] - release_bytes[node]
    stem = node - node % 3
    if there > here:
        for at in range(here + 1, there + 1):
            passed = order[at]
            if passed - passed % 3 == stem or held[at - 1] - gain + acquire[passed] > capacity:
                return False
        return bool(held[there] - gain + acquire[node] <= capacity)
    for at in range(there, here):
        passed = order[at]
        before = held[at - 1] if at > low else 0
        if passed - passed % 3 == stem or before + gain + acquire[passed] > capacity:
            return False
    before = held[there - 1] if there > low else 0
    return bool(before + acquire[node] <= capacity)


@njit(cache=True)
def draw(
    order: IntColumn, first: IntColumn, state: IntColumn, fixed: IntColumn, window: int, target: int
) -> tuple[int, int]:
    """Draw a place and where to shift its node; the same twice for no move."""
    total = len(order)
    here = np.random.randint(total)
    if np.random.random() < _LATE_SHARE:
        # A longest path, or any that is too long: other workers must come down too.
        level = target if np.random.random() < 0.5 else window - 1
        for _ in range(_LATE_DRAWS):
            x = order[here]
            if state[x, END] - fixed[x, DURATION] + state[x, REACH] > level:
                break
            here = np.random.randint(total)
    w = fixed[order[here], WORKER]
    far = 1 + int(-np.log(1.0 - np.random.random()) * _MEAN_SHIFT)
    there = here + far if np.random.random() < 0.5 else here - far
    there = min(max(there, first[w]), first[w + 1] - 1)
    if np.random.random() < _KEEP_KIN:
        kin, step, at = state[order[here], KIN], 1 if there > here else -1, here
        while at != there and state[order[at + step], KIN] != kin:
            at += step
        there = at
    return here, there


@njit(cache=True)
def swap_blocks(
    state: IntColumn,
    w: int,
    firsts: IntColumn,
    lasts: IntColumn,
    a_first: int,
    a_last: int,
    b_first: int,
    b_last: int,
) -> None:
    """Link two neighbouring blocks of a worker's order, A then B, as B then A."""
    previous, following = state[a_first, BEFORE], state[b_last, AFTER]
    state[b_first, BEFORE] = previous
    state[b_last, AFTER] = a_first
    state[a_first, BEFORE] = b_last
    state[a_last, AFTER] = following
    if previous >= 0:
        state[previous, AFTER] = b_first
    else:
        firsts[w] = b_first
    if following >= 0:
        state[following, BEFORE] = a_last
    else:
        lasts[w] = a_last
