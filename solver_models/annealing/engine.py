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
from numba import njit

from planner.schedule import IntColumn
from solver_models.annealing.moves import draw, fits, hold, shift, swap_blocks
from solver_models.annealing.retiming import find_delayed, reach_again, resequence, time_region, time_rest
from solver_models.annealing.state import (
    AFTER,
    BEFORE,
    END,
    RANK,
    WORKER,
    start_state,
    windows,
)

_EXCESS_SHARE = 0.05


@njit(cache=True, nogil=True)
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
    order, energy
        Where the walk stands at the end.
    best_order, best_window
        The best order met, the first included, and its largest window.
    counts
        What took the time, three numbers: moves drawn, nodes timed again or given another reach for them, and ranks between
        what they moved.
    """
    np.random.seed(seed)
    slots, total, workers = len(sync), len(order), len(first) - 1
    order = order.copy()
    state, sequence = start_state(order, first, fixed, kin, release)
    held = np.zeros(total, dtype=np.int64)  # bytes after each place
    firsts = np.full(workers, -1, dtype=np.int64)
    lasts = np.full(workers, -1, dtype=np.int64)
    for w in range(workers):
        hold(order, held, acquire, release_bytes, 0, first[w], first[w + 1] - 1)
        if first[w + 1] > first[w]:
            firsts[w], lasts[w] = order[first[w]], order[first[w + 1] - 1]
    begin = np.empty(slots, dtype=np.int64)
    window, excess = windows(state, fixed, firsts, lasts, begin, sync, target, joint)
    energy = window + _EXCESS_SHARE * excess
    sink = sync - begin
    flags = np.zeros((total + 7) // 8 * 8, dtype=np.uint8)
    words = flags.view(np.int64)
    flags[:total] = 1
    visits = reach_again(state, fixed, sequence, flags, words, 0, total - 1, sink)
    delayed = np.empty(total, dtype=np.int64)
    changed, old_end = np.empty(total, dtype=np.int64), np.empty(total, dtype=np.int64)
    best_order, best_window, best_energy = order.copy(), window, energy
    cooling = (cold / hot) ** (1.0 / max(1, moves))
    temperature = hot
    judged, tries, passed = 0, 0, 0
    while judged < moves and tries < 20 * moves and best_window > target:
        tries += 1
        here, there = draw(order, first, state, fixed, window, target)
        w = fixed[order[here], WORKER]
        if there == here or not fits(order, held, acquire, release_bytes, first[w], capacity[w], here, there):
            continue
        judged += 1
        temperature *= cooling
        place_low, place_high = min(here, there), max(here, there)
        # Shifting a node is swapping it with the block of those it passes.
        b_low, b_high = (here + 1, there) if there > here else (here, here)
        a_first, a_last, b_first, b_last = order[place_low], order[b_low - 1], order[b_low], order[b_high]
        low, high = state[a_first, RANK], state[b_last, RANK]
        passed += high - low
        previous, following = state[a_first, BEFORE], state[b_last, AFTER]
        swap_blocks(state, w, firsts, lasts, a_first, a_last, b_first, b_last)
        allowance = -temperature * np.log(1.0 - np.random.random())
        changes, accepted = 0, False
        num_delayed = find_delayed(state, fixed, sequence, flags, words, low, high, b_low, b_high, tries, delayed)
        if num_delayed > 0:
            changes, local = time_region(
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
            visits += num_delayed
            if local <= window + allowance:
                changes = time_rest(
                    state, fixed, sequence, flags, words, high, following, release, changed, old_end, changes
                )
                new_window, excess = windows(state, fixed, firsts, lasts, begin, sync, target, joint)
                accepted = new_window + _EXCESS_SHARE * excess <= energy + allowance
        visits += changes
        if not accepted:
            for i in range(changes):
                state[changed[i], END] = old_end[i]
            swap_blocks(state, w, firsts, lasts, b_first, b_last, a_first, a_last)
            continue
        resequence(state, sequence, low, high, tries, delayed, num_delayed)
        shift(order, state, here, there)
        before = held[place_low - 1] if place_low > first[w] else 0
        hold(order, held, acquire, release_bytes, before, place_low, place_high)
        for at in range(place_low, place_high + 1):
            flags[state[order[at], RANK]] = 1
        if previous >= 0:
            flags[state[previous, RANK]] = 1
            low = min(low, state[previous, RANK])
        if (sink != sync - begin).any():
            sink[:] = sync - begin
            flags[:total] = 1
            low, high = 0, total - 1
        visits += reach_again(state, fixed, sequence, flags, words, low, high, sink)
        window, energy = new_window, new_window + _EXCESS_SHARE * excess
        if window < best_window or (window == best_window and energy < best_energy):
            best_window, best_energy = window, energy
            best_order[:] = order
    return order, energy, best_order, best_window, (tries, visits, passed)
