"""What a move changes in the sequence and the times, and nothing else.

Ends are repaired forwards and reaches backwards. Ranks of the sequence that are still to be visited are flagged, a byte each; of
``words``, the same bytes, eight are looked at at once. All flags are down again when a function returns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from planner.schedule import IntColumn
from solver_models.annealing.state import (
    AFTER,
    BEFORE,
    DATA,
    DATA_LAG,
    DURATION,
    END,
    MARK,
    NEXT,
    NEXT_LAG,
    OTHER_LAG,
    OTHER_NEXT,
    PLACE,
    RANK,
    REACH,
    WORKER,
)


@njit(cache=True)
def _soonest_end(state: IntColumn, fixed: IntColumn, release: IntColumn, x: int) -> int:
    """End of a node that starts as soon as its worker is free, its slot released and its data there."""
    previous, source = state[x, BEFORE], fixed[x, DATA]
    begin = state[previous, END] if previous >= 0 else release[fixed[x, WORKER] % len(release)]
    if source >= 0:
        begin = max(begin, state[source, END] + fixed[x, DATA_LAG])
    return int(begin + fixed[x, DURATION])


@njit(cache=True)
def find_delayed(
    state: IntColumn,
    fixed: IntColumn,
    sequence: IntColumn,
    flags: npt.NDArray[np.uint8],
    words: IntColumn,
    low: int,
    high: int,
    b_low: int,
    b_high: int,
    stamp: int,
    delayed: IntColumn,
) -> int:
    """Mark and list what stands at ranks ``low..high`` and waits for block A, whose first node stands at ``low``.

    In the sequence that suits the swapped blocks these come behind all others (Pearce and Kelly 2006).

    Returns
    -------
    int
        How many there are; -1 where B, at places ``b_low..b_high``, is among them, so that workers would wait in a cycle.
    """
    count, needed, rank = 0, low, low
    flags[low] = 1
    while rank <= needed:
        if flags[rank] == 0:
            rank += 8 if rank % 8 == 0 and words[rank // 8] == 0 else 1
            continue
        flags[rank] = 0
        x = sequence[rank]
        rank += 1
        if b_low <= state[x, PLACE] <= b_high:
            flags[rank : needed + 1] = 0
            return -1
        state[x, MARK] = stamp
        delayed[count] = x
        count += 1
        for y in (state[x, AFTER], fixed[x, NEXT], fixed[x, OTHER_NEXT]):
            if y >= 0 and state[y, RANK] <= high:
                flags[state[y, RANK]] = 1
                needed = max(needed, state[y, RANK])
    return count


@njit(cache=True)
def _window_beyond(state: IntColumn, fixed: IntColumn, x: int, high: int, sink: IntColumn) -> int:
    """Largest window through a node and what follows it behind rank ``high``."""
    window = -(2**61)
    following, y, z = state[x, AFTER], fixed[x, NEXT], fixed[x, OTHER_NEXT]
    if following < 0:
        window = sink[fixed[x, WORKER] % len(sink)]
    elif state[following, RANK] > high:
        window = state[following, REACH]
    if y >= 0 and state[y, RANK] > high:
        window = max(window, fixed[x, NEXT_LAG] + state[y, REACH])
    if z >= 0 and state[z, RANK] > high:
        window = max(window, fixed[x, OTHER_LAG] + state[z, REACH])
    return int(state[x, END] + window)


@njit(cache=True)
def time_region(
    state: IntColumn,
    fixed: IntColumn,
    sequence: IntColumn,
    flags: npt.NDArray[np.uint8],
    words: IntColumn,
    b_first: int,
    a_last: int,
    high: int,
    stamp: int,
    delayed: IntColumn,
    num_delayed: int,
    release: IntColumn,
    sink: IntColumn,
    changed: IntColumn,
    old_end: IntColumn,
) -> Any:
    """Time again what the swap moves up to rank ``high``: what follows B first, then what is delayed.

    Returns
    -------
    changes, local
        How many ends changed, listed in ``changed`` and ``old_end``, and the largest window through what was timed. A node whose
        end and successors stay as they were is in no window that is new.
    """
    changes, local = 0, -(2**61)
    rank = needed = state[b_first, RANK]
    flags[rank] = 1
    turn = 0
    while rank <= needed or turn < num_delayed:
        if rank > needed:
            x = delayed[turn]
            turn += 1
        elif flags[rank] == 0:
            rank += 8 if rank % 8 == 0 and words[rank // 8] == 0 else 1
            continue
        else:
            flags[rank] = 0
            x = sequence[rank]
            rank += 1
        end = _soonest_end(state, fixed, release, x)
        if end != state[x, END]:
            changed[changes], old_end[changes] = x, state[x, END]
            changes += 1
            state[x, END] = end
            if turn == 0:
                for y in (state[x, AFTER], fixed[x, NEXT], fixed[x, OTHER_NEXT]):
                    if y >= 0 and state[y, RANK] <= high and state[y, MARK] != stamp:
                        flags[state[y, RANK]] = 1
                        needed = max(needed, state[y, RANK])
        elif x != a_last:
            continue
        local = max(local, _window_beyond(state, fixed, x, high, sink))
    return changes, local


@njit(cache=True)
def time_rest(
    state: IntColumn,
    fixed: IntColumn,
    sequence: IntColumn,
    flags: npt.NDArray[np.uint8],
    words: IntColumn,
    high: int,
    following: int,
    release: IntColumn,
    changed: IntColumn,
    old_end: IntColumn,
    changes: int,
) -> int:
    """Time again whatever behind rank ``high`` is moved by the region or stands right behind it on its worker.

    Returns
    -------
    int
        How many ends changed in all; ``changed`` and ``old_end`` list them.
    """
    needed = high
    if following >= 0:
        needed = state[following, RANK]
        flags[needed] = 1
    for i in range(changes):
        x = changed[i]
        for y in (state[x, AFTER], fixed[x, NEXT], fixed[x, OTHER_NEXT]):
            if y >= 0 and state[y, RANK] > high:
                flags[state[y, RANK]] = 1
                needed = max(needed, state[y, RANK])
    rank = high + 1
    while rank <= needed:
        if flags[rank] == 0:
            rank += 8 if rank % 8 == 0 and words[rank // 8] == 0 else 1
            continue
        flags[rank] = 0
        x = sequence[rank]
        rank += 1
        end = _soonest_end(state, fixed, release, x)
        if end == state[x, END]:
            continue
        changed[changes], old_end[changes] = x, state[x, END]
        changes += 1
        state[x, END] = end
        for y in (state[x, AFTER], fixed[x, NEXT], fixed[x, OTHER_NEXT]):
            if y >= 0:
                flags[state[y, RANK]] = 1
                needed = max(needed, state[y, RANK])
    return changes


@njit(cache=True)
def resequence(
    state: IntColumn,
    sequence: IntColumn,
    low: int,
    high: int,
    stamp: int,
    delayed: IntColumn,
    num_delayed: int,
) -> None:
    """Put what is delayed behind all else at ranks ``low..high``."""
    to = low
    for rank in range(low, high + 1):
        x = sequence[rank]
        if state[x, MARK] != stamp:
            sequence[to] = x
            state[x, RANK] = to
            to += 1
    for i in range(num_delayed):
        sequence[to] = delayed[i]
        state[delayed[i], RANK] = to
        to += 1


@njit(cache=True)
def reach_again(
    state: IntColumn,
    fixed: IntColumn,
    sequence: IntColumn,
    flags: npt.NDArray[np.uint8],
    words: IntColumn,
    needed: int,
    high: int,
    sink: IntColumn,
) -> int:
    """Find the reaches of flagged ranks, the lowest ``needed`` and the highest ``high``, again, and of what that moves.

    Returns
    -------
    int
        How many were found again.
    """
    slots, rank, visits = len(sink), high, 0
    while rank >= needed:
        if flags[rank] == 0:
            rank -= 8 if rank % 8 == 7 and words[rank // 8] == 0 else 1
            continue
        flags[rank] = 0
        x = sequence[rank]
        rank -= 1
        visits += 1
        following, y, z = state[x, AFTER], fixed[x, NEXT], fixed[x, OTHER_NEXT]
        reach = state[following, REACH] if following >= 0 else sink[fixed[x, WORKER] % slots]
        if y >= 0:
            reach = max(reach, fixed[x, NEXT_LAG] + state[y, REACH])
        if z >= 0:
            reach = max(reach, fixed[x, OTHER_LAG] + state[z, REACH])
        reach += fixed[x, DURATION]
        if reach == state[x, REACH]:
            continue
        state[x, REACH] = reach
        for y in (state[x, BEFORE], fixed[x, DATA]):
            if y >= 0:
                flags[state[y, RANK]] = 1
                needed = min(needed, state[y, RANK])
    return visits
