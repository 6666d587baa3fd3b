"""The compiled annealing loop.

The state is each worker's order. A move shifts one operation within its worker's order; it must keep the worker's memory and
the order F, I, W of its microbatch. Every move is judged by timing the whole order again: one visit per operation, a few
nanoseconds each, which also tells where workers would wait in a cycle. Most moves are taken from the critical path of the largest
window, since no other move can shorten it.

The energy is the largest slot window plus a small share of what every worker's own window exceeds the target by, so
that progress on other workers shows before it counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from planner.schedule import IntColumn

_EXCESS_SHARE = 0.05
_CRITICAL_SHARE = 0.7
_MEAN_SHIFT = 3.0
_TRACE_EVERY = 8


@njit(cache=True)
def time_order(
    order: IntColumn,
    first: IntColumn,
    worker: IntColumn,
    duration: IntColumn,
    successor: IntColumn,
    data: IntColumn,
    data_lag: IntColumn,
    release: IntColumn,
    end: IntColumn,
    pointer: IntColumn,
    clock: IntColumn,
    stack: IntColumn,
    begin: IntColumn,
) -> int:
    """Time an order as early as possible; the last five arrays are filled in.

    ``end`` gets each node's end, ``clock`` each worker's, ``begin`` each slot's first start.

    Returns
    -------
    int
        Nodes that could be reached; fewer than the order has where workers wait in a cycle.
    """
    workers, slots = len(first) - 1, len(release)
    begin[:] = 2**61
    depth = 0
    for w in range(workers - 1, -1, -1):
        pointer[w] = first[w]
        clock[w] = release[w % slots]
        if first[w + 1] > first[w]:
            stack[depth] = w
            depth += 1
    end[:] = -1
    reached = 0
    while depth > 0:
        depth -= 1
        w = stack[depth]
        time, at, last = clock[w], pointer[w], first[w + 1]
        while at < last:
            node = order[at]
            source = data[node]
            if source >= 0:
                if end[source] < 0:
                    break
                time = max(time, end[source] + data_lag[node])
            if at == first[w] and time < begin[w % slots]:
                begin[w % slots] = time
            time += duration[node]
            end[node] = time
            at += 1
            reached += 1
            after = successor[node, 0]
            if after >= 0:
                wa = worker[after]
                if wa != w and pointer[wa] < first[wa + 1] and order[pointer[wa]] == after:
                    stack[depth] = wa
                    depth += 1
        clock[w], pointer[w] = time, at
    return reached


@njit(cache=True)
def _energy(first: IntColumn, begin: IntColumn, clock: IntColumn, sync: IntColumn, target: int, joint: bool) -> Any:
    """Largest window, the energy, and the worker of the largest window."""
    slots = len(sync)
    worst, worst_worker, excess = -(2**61), 0, 0
    origin = begin.min()
    for w in range(len(first) - 1):
        if first[w + 1] > first[w]:
            s = w % slots
            window = clock[w] - (origin if joint else begin[s]) + sync[s]
            if window > worst:
                worst, worst_worker = window, w
            if window > target:
                excess += window - target
    return worst, worst + _EXCESS_SHARE * excess, worst_worker


@njit(cache=True)
def _trace(
    tail: int,
    order: IntColumn,
    first: IntColumn,
    position: IntColumn,
    worker: IntColumn,
    duration: IntColumn,
    data: IntColumn,
    data_lag: IntColumn,
    end: IntColumn,
    critical: IntColumn,
) -> int:
    """Fill ``critical`` with a longest path to the node ``tail``, backwards; return its length."""
    count, node = 0, tail
    while True:
        critical[count] = node
        count += 1
        start = end[node] - duration[node]
        source = data[node]
        w, at = worker[node], position[node]
        if at > first[w] and end[order[at - 1]] == start:
            node = order[at - 1]
        elif source >= 0 and end[source] + data_lag[node] == start:
            node = source
        else:
            return count


@njit(cache=True)
def _shift(order: IntColumn, position: IntColumn, here: int, there: int) -> None:
    """Move the node at one place to another, the ones between by one."""
    node = order[here]
    step = 1 if there > here else -1
    at = here
    while at != there:
        order[at] = order[at + step]
        position[order[at]] = at
        at += step
    order[there] = node
    position[node] = there


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
def anneal(
    order: IntColumn,
    first: IntColumn,
    worker: IntColumn,
    duration: IntColumn,
    successor: IntColumn,
    data: IntColumn,
    data_lag: IntColumn,
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
    worker, duration, successor
        The network's columns, shape ``(N,)`` and ``(N, 2)``.
    data, data_lag
        Shape ``(N,)``: the node whose result a node needs, or -1, and the transfer time.
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
    position = np.full(len(worker), -1, dtype=np.int64)
    held = np.zeros(total, dtype=np.int64)  # bytes after each place
    for w in range(workers):
        running = 0
        for at in range(first[w], first[w + 1]):
            position[order[at]] = at
            running += acquire[order[at]] - release_bytes[order[at]]
            held[at] = running
    end = np.empty(len(worker), dtype=np.int64)
    trial_end = np.empty(len(worker), dtype=np.int64)
    pointer = np.empty(workers, dtype=np.int64)
    clock = np.zeros(workers, dtype=np.int64)
    stack = np.empty(total + workers, dtype=np.int64)
    begin = np.empty(slots, dtype=np.int64)
    critical = np.empty(total, dtype=np.int64)
    time_order(order, first, worker, duration, successor, data, data_lag, release, end, pointer, clock, stack, begin)
    window, energy, worst = _energy(first, begin, clock, sync, target, joint)
    best_order, best_window, best_energy = order.copy(), window, energy
    num_critical = _trace(
        order[first[worst + 1] - 1], order, first, position, worker, duration, data, data_lag, end, critical
    )
    since_trace = 0
    cooling = (cold / hot) ** (1.0 / max(1, moves))
    temperature = hot
    judged, tries = 0, 0
    while judged < moves and tries < 20 * moves and best_window > target:
        tries += 1
        if np.random.random() < _CRITICAL_SHARE:
            here = position[critical[np.random.randint(num_critical)]]
        else:
            here = np.random.randint(total)
        w = worker[order[here]]
        low, high = first[w], first[w + 1] - 1
        far = 1 + int(-np.log(1.0 - np.random.random()) * _MEAN_SHIFT)
        there = here + far if np.random.random() < 0.5 else here - far
        there = min(max(there, low), high)
        if there == here or not _fits(order, held, acquire, release_bytes, low, capacity[w], here, there):
            continue
        judged += 1
        temperature *= cooling
        _shift(order, position, here, there)
        reached = time_order(
            order, first, worker, duration, successor, data, data_lag, release, trial_end, pointer, clock, stack, begin
        )
        accepted = False
        if reached == total:
            new_window, new_energy, new_worst = _energy(first, begin, clock, sync, target, joint)
            change = new_energy - energy
            accepted = change <= 0 or np.random.random() < np.exp(-change / temperature)
        if not accepted:
            _shift(order, position, there, here)
            continue
        left = min(here, there)
        running = held[left - 1] if left > low else 0
        for at in range(left, max(here, there) + 1):
            running += acquire[order[at]] - release_bytes[order[at]]
            held[at] = running
        end, trial_end = trial_end, end
        energy = new_energy
        since_trace += 1
        if since_trace >= _TRACE_EVERY or new_worst != worst:
            since_trace, worst = 0, new_worst
            num_critical = _trace(
                order[first[worst + 1] - 1], order, first, position, worker, duration, data, data_lag, end, critical
            )
        if new_window < best_window or (new_window == best_window and new_energy < best_energy):
            best_window, best_energy = new_window, new_energy
            best_order[:] = order
    return order, best_order, best_window
