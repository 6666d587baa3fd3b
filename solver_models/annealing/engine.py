"""The compiled annealing loop.

The state is each worker's order. A move shifts one operation within its worker's order; it must keep the worker's memory and
the order F, I, W of its microbatch. To judge it, only the operations between the places it touches are timed again: whatever
comes later in the sequence has the reach it had, so the largest window through them is known (the "head and tail" of
job-shop search, after Taillard 1994, Balas and Vazacopoulos 1998). Most moves are refused at that. For the others the times
of what follows are repaired where they change, which gives the exact energy; where the move is taken, so are the reaches of
what comes before.

The energy is the largest slot window plus a small share of what every worker's own window exceeds the target by, so
that progress on other workers shows before it counts. Most moves are taken from operations on a path that is too long.
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
    KIN,
    MARK,
    NEXT,
    NEXT_LAG,
    OTHER_LAG,
    OTHER_NEXT,
    PLACE,
    RANK,
    REACH,
    WORKER,
    start_state,
    windows,
)

_EXCESS_SHARE = 0.05
_LATE_SHARE = 0.7
_LATE_DRAWS = 24
_MEAN_SHIFT = 3.0
_KEEP_KIN = 0.9
"""Share of shifts that end where the node would pass one of its kin."""


@njit(cache=True)
def _shift(order: IntColumn, state: IntColumn, here: int, there: int) -> None:
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
def _fits(
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
def _draw(
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
def _swap_blocks(
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


@njit(cache=True)
def _find_delayed(
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
def _time_region(
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
    slots, changes, local = len(release), 0, -(2**61)
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
        previous, source = state[x, BEFORE], fixed[x, DATA]
        end = state[previous, END] if previous >= 0 else release[fixed[x, WORKER] % slots]
        if source >= 0:
            end = max(end, state[source, END] + fixed[x, DATA_LAG])
        end += fixed[x, DURATION]
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
def _resequence(
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
def _time_rest(
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
    slots, needed = len(release), high
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
        previous, source = state[x, BEFORE], fixed[x, DATA]
        end = state[previous, END] if previous >= 0 else release[fixed[x, WORKER] % slots]
        if source >= 0:
            end = max(end, state[source, END] + fixed[x, DATA_LAG])
        end += fixed[x, DURATION]
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
def _reach_again(
    state: IntColumn,
    fixed: IntColumn,
    sequence: IntColumn,
    flags: npt.NDArray[np.uint8],
    words: IntColumn,
    needed: int,
    high: int,
    sink: IntColumn,
) -> None:
    """Find the reaches of flagged ranks, the lowest ``needed`` and the highest ``high``, again, and of what that moves."""
    slots, rank = len(sink), high
    while rank >= needed:
        if flags[rank] == 0:
            rank -= 8 if rank % 8 == 7 and words[rank // 8] == 0 else 1
            continue
        flags[rank] = 0
        x = sequence[rank]
        rank -= 1
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


@njit(cache=True)
def anneal(
    order: IntColumn,
    first: IntColumn,
    fixed: IntColumn,
    kin: IntColumn,
    acquire: IntColumn,
    release_bytes: IntColumn,
    capacity: IntColumn,
    sync: IntColumn,
    release: IntColumn,
    target: int,
    joint: bool,
    moves: int,
    hot: float,
    cold: float,
    seed: int,
) -> Any:
    """Run a number of moves from an order; works on copies.

    Parameters
    ----------
    order, first
        Shapes ``(N',)`` and ``(K + 1,)``: nodes in each worker's order, and each worker's first place.
    fixed, kin
        Of :func:`solver_models.annealing.state.fixed_rows` and ``kin_of``.
    acquire, release_bytes, capacity
        Bytes taken at the start and given back at the end of a node; bytes of a worker.
    sync, release
        Shape ``(P,)``: sync of each slot, and the earliest time its workers may begin.
    target
        Stop once the largest window is at most this many nanoseconds.
    joint
        Whether all slots share one window (the global optimizer; ``sync`` then is the slowest one for every slot).
    moves
        Moves to judge.
    hot, cold
        First and last temperature in nanoseconds of energy.
    seed
        Of the random moves.

    Returns
    -------
    order
        Where the walk stands at the end.
    best_order, best_window
        The best order met, the first included, and its largest window.
    """
    np.random.seed(seed)
    slots, total, workers = len(sync), len(order), len(first) - 1
    order = order.copy()
    state, sequence = start_state(order, first, fixed, kin, release)
    held = np.zeros(total, dtype=np.int64)  # bytes after each place
    firsts = np.full(workers, -1, dtype=np.int64)
    lasts = np.full(workers, -1, dtype=np.int64)
    for w in range(workers):
        running = 0
        for at in range(first[w], first[w + 1]):
            running += acquire[order[at]] - release_bytes[order[at]]
            held[at] = running
        if first[w + 1] > first[w]:
            firsts[w], lasts[w] = order[first[w]], order[first[w + 1] - 1]
    begin = np.empty(slots, dtype=np.int64)
    window, excess = windows(state, fixed, firsts, lasts, begin, sync, target, joint)
    energy = window + _EXCESS_SHARE * excess
    sink = sync - begin
    flags = np.zeros((total + 7) // 8 * 8, dtype=np.uint8)
    words = flags.view(np.int64)
    flags[:total] = 1
    _reach_again(state, fixed, sequence, flags, words, 0, total - 1, sink)
    delayed = np.empty(total, dtype=np.int64)
    changed, old_end = np.empty(total, dtype=np.int64), np.empty(total, dtype=np.int64)
    best_order, best_window, best_energy = order.copy(), window, energy
    cooling = (cold / hot) ** (1.0 / max(1, moves))
    temperature = hot
    judged, tries = 0, 0
    while judged < moves and tries < 20 * moves and best_window > target:
        tries += 1
        here, there = _draw(order, first, state, fixed, window, target)
        w = fixed[order[here], WORKER]
        if there == here or not _fits(order, held, acquire, release_bytes, first[w], capacity[w], here, there):
            continue
        judged += 1
        temperature *= cooling
        place_low, place_high = min(here, there), max(here, there)
        # Shifting a node is swapping it with the block of those it passes.
        b_low, b_high = (here + 1, there) if there > here else (here, here)
        a_first, a_last, b_first, b_last = order[place_low], order[b_low - 1], order[b_low], order[b_high]
        low, high = state[a_first, RANK], state[b_last, RANK]
        previous, following = state[a_first, BEFORE], state[b_last, AFTER]
        _swap_blocks(state, w, firsts, lasts, a_first, a_last, b_first, b_last)
        allowance = -temperature * np.log(1.0 - np.random.random())
        changes, accepted = 0, False
        num_delayed = _find_delayed(state, fixed, sequence, flags, words, low, high, b_low, b_high, tries, delayed)
        if num_delayed > 0:
            changes, local = _time_region(
                state,
                fixed,
                sequence,
                flags,
                words,
                b_first,
                a_last,
                high,
                tries,
                delayed,
                num_delayed,
                release,
                sink,
                changed,
                old_end,
            )
            if local <= window + allowance:
                changes = _time_rest(
                    state, fixed, sequence, flags, words, high, following, release, changed, old_end, changes
                )
                new_window, excess = windows(state, fixed, firsts, lasts, begin, sync, target, joint)
                accepted = new_window + _EXCESS_SHARE * excess <= energy + allowance
        if not accepted:
            for i in range(changes):
                state[changed[i], END] = old_end[i]
            _swap_blocks(state, w, firsts, lasts, b_first, b_last, a_first, a_last)
            continue
        _resequence(state, sequence, low, high, tries, delayed, num_delayed)
        _shift(order, state, here, there)
        running = held[place_low - 1] if place_low > first[w] else 0
        for at in range(place_low, place_high + 1):
            running += acquire[order[at]] - release_bytes[order[at]]
            held[at] = running
            flags[state[order[at], RANK]] = 1
        if previous >= 0:
            flags[state[previous, RANK]] = 1
            low = min(low, state[previous, RANK])
        if (sink != sync - begin).any():
            sink[:] = sync - begin
            flags[:total] = 1
            low, high = 0, total - 1
        _reach_again(state, fixed, sequence, flags, words, low, high, sink)
        window, energy = new_window, new_window + _EXCESS_SHARE * excess
        if window < best_window or (window == best_window and energy < best_energy):
            best_window, best_energy = window, energy
            best_order[:] = order
    return order, best_order, best_window
