"""The compiled annealing loop.

The state is each worker's order. A move shifts one operation within its worker's order; it must keep the worker's memory and
the order F, I, W of its microbatch. Start times are longest paths and are repaired incrementally: changed nodes are taken
by their old start, so that almost every node is visited once. A move that makes workers wait in a cycle never settles;
it is noticed by the number of visits and undone.

The energy is the largest slot window plus a small share of what every worker's own window exceeds the target by, so
that progress on other workers shows before it counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from planner.schedule import IntColumn
from solver_models.list_scheduling.engine import _pop, _push

_EXCESS_SHARE = 0.05


@njit(cache=True)
def _start_of(
    node: int,
    position: IntColumn,
    order: IntColumn,
    first: IntColumn,
    worker: IntColumn,
    release: IntColumn,
    data: IntColumn,
    data_lag: IntColumn,
    duration: IntColumn,
    start: IntColumn,
) -> int:
    """Earliest start of a node from its predecessors' current starts."""
    w = worker[node]
    at = position[node]
    time = release[w % len(release)]
    if at > first[w]:
        before = order[at - 1]
        time = start[before] + duration[before]
    source = data[node]
    if source >= 0:
        time = max(time, start[source] + duration[source] + data_lag[node])
    return time


@njit(cache=True)
def _windows(
    order: IntColumn,
    first: IntColumn,
    num_slots: int,
    duration: IntColumn,
    start: IntColumn,
    begin: IntColumn,
    finish: IntColumn,
) -> None:
    """Start of each slot and end of each worker."""
    begin[:] = 2**61
    workers = len(first) - 1
    for w in range(workers):
        if first[w + 1] > first[w]:
            head, tail = order[first[w]], order[first[w + 1] - 1]
            begin[w % num_slots] = min(begin[w % num_slots], start[head])
            finish[w] = start[tail] + duration[tail]


@njit(cache=True)
def _energy(
    first: IntColumn, num_slots: int, begin: IntColumn, finish: IntColumn, sync: IntColumn, target: int, joint: bool
) -> Any:
    """Largest window, the energy, and the slot of the largest window."""
    worst, worst_slot, excess = -(2**61), 0, 0
    origin = 2**61
    if joint:
        for s in range(num_slots):
            origin = min(origin, begin[s])
    for w in range(len(first) - 1):
        if first[w + 1] > first[w]:
            s = w % num_slots
            window = finish[w] - (origin if joint else begin[s]) + sync[s]
            if window > worst:
                worst, worst_slot = window, s
            if window > target:
                excess += window - target
    return worst, worst + _EXCESS_SHARE * excess, worst_slot


@njit(cache=True)
def earliest_starts(
    order: IntColumn,
    first: IntColumn,
    worker: IntColumn,
    duration: IntColumn,
    successor: IntColumn,
    data: IntColumn,
    data_lag: IntColumn,
    release: IntColumn,
) -> Any:
    """Starts of an order as early as possible when slots are released at given times; parameters as for :func:`anneal`."""
    position = np.full(len(worker), -1, dtype=np.int64)
    missing = np.zeros(len(worker), dtype=np.int64)
    for at in range(len(order)):
        position[order[at]] = at
    ready = np.empty(len(order), dtype=np.int64)
    tail = 0
    for at in range(len(order)):
        node = order[at]
        missing[node] = (1 if at > first[worker[node]] else 0) + (1 if data[node] >= 0 else 0)
        if missing[node] == 0:
            ready[tail] = node
            tail += 1
    start = np.zeros(len(worker), dtype=np.int64)
    head = 0
    while head < tail:
        node = ready[head]
        head += 1
        start[node] = _start_of(node, position, order, first, worker, release, data, data_lag, duration, start)
        for j in range(3):
            if j < 2:
                after = successor[node, j]
            else:
                after = order[position[node] + 1] if position[node] + 1 < first[worker[node] + 1] else -1
            if after >= 0:
                missing[after] -= 1
                if missing[after] == 0:
                    ready[tail] = after
                    tail += 1
    return start


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
    start: IntColumn,
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
    start
        Shape ``(N,)``: starts of the order as early as possible under ``release``.
    target
        Stop once the largest window is at most this many nanoseconds.
    joint
        Whether all slots share one window (the global optimizer; ``sync`` then is the slowest one for every slot).
    moves
        Moves to try.
    hot, cold
        First and last temperature in nanoseconds of energy.
    seed
        Of the random moves.

    Returns
    -------
    order, start
        Where the walk stands at the end.
    best_order, best_window
        The best order met, the first included, and its largest window.
    """
    np.random.seed(seed)
    num_slots, total = len(sync), len(order)
    order, start = order.copy(), start.copy()
    position = np.full(len(worker), -1, dtype=np.int64)
    held = np.zeros(total, dtype=np.int64)  # bytes after each place
    live = np.empty(len(first) - 1, dtype=np.int64)
    num_live = 0
    for w in range(len(first) - 1):
        total_held = 0
        for at in range(first[w], first[w + 1]):
            position[order[at]] = at
            total_held += acquire[order[at]] - release_bytes[order[at]]
            held[at] = total_held
        if first[w + 1] > first[w] + 1:
            live[num_live] = w
            num_live += 1
    begin = np.empty(num_slots, dtype=np.int64)
    finish = np.zeros(len(first) - 1, dtype=np.int64)
    _windows(order, first, num_slots, duration, start, begin, finish)
    window, energy, worst_slot = _energy(first, num_slots, begin, finish, sync, target, joint)
    best_order, best_window, best_energy = order.copy(), window, energy

    heap_time = np.empty(total + 8, dtype=np.int64)
    heap_node = np.empty(total + 8, dtype=np.int64)
    queued = np.zeros(len(worker), dtype=np.bool_)
    touched = np.zeros(len(worker), dtype=np.bool_)
    log_node = np.empty(total + 8, dtype=np.int64)
    log_start = np.empty(total + 8, dtype=np.int64)
    if num_live == 0:
        return order, start, best_order, best_window

    cooling = (cold / hot) ** (1.0 / max(1, moves))
    temperature = hot
    for _ in range(moves):
        temperature *= cooling
        w = live[np.random.randint(num_live)]
        if np.random.random() < 0.5 and w % num_slots != worst_slot:
            # Half of the moves go to the slot that binds.
            pipeline = np.random.randint((len(first) - 1) // num_slots)
            if first[pipeline * num_slots + worst_slot + 1] > first[pipeline * num_slots + worst_slot] + 1:
                w = pipeline * num_slots + worst_slot
        low, high = first[w], first[w + 1] - 1
        here = low + np.random.randint(high - low + 1)
        far = 1 + int(-np.log(1.0 - np.random.random()) * 3.0)
        there = here + far if np.random.random() < 0.5 else here - far
        there = min(max(there, low), high)
        if there == here:
            continue
        node = order[here]
        gain = acquire[node] - release_bytes[node]
        stem = node - node % 3
        fits = True
        if there > here:
            for at in range(here + 1, there + 1):
                passed = order[at]
                if (
                    (passed - passed % 3 == stem)
                    or held[at] - gain > capacity[w]
                    or (held[at - 1] - gain + acquire[passed] > capacity[w])
                ):
                    fits = False
                    break
            if fits and held[there] - gain + acquire[node] > capacity[w]:
                fits = False
        else:
            for at in range(there, here):
                passed = order[at]
                before = held[at - 1] if at > low else 0
                if (passed - passed % 3 == stem) or before + gain + acquire[passed] > capacity[w]:
                    fits = False
                    break
            before = held[there - 1] if there > low else 0
            if before + acquire[node] > capacity[w]:
                fits = False
        if not fits:
            continue
        step = 1 if there > here else -1
        at = here
        while at != there:
            order[at] = order[at + step]
            position[order[at]] = at
            at += step
        order[there] = node
        position[node] = there

        # Repair starts from the places whose predecessor changed.
        size, logged, visits = 0, 0, 0
        left, right = min(here, there), min(max(here, there) + 1, high)
        for at in range(left, right + 1):
            changed = order[at]
            _push(heap_time, heap_node, 0, size, start[changed], changed)
            size += 1
            queued[changed] = True
        limit = 2 * total + 64
        while size > 0 and visits < limit:
            now = heap_node[0]
            _pop(heap_time, heap_node, 0, size)
            size -= 1
            queued[now] = False
            visits += 1
            time = _start_of(now, position, order, first, worker, release, data, data_lag, duration, start)
            if time == start[now]:
                continue
            if not touched[now]:
                touched[now] = True
                log_node[logged] = now
                log_start[logged] = start[now]
                logged += 1
            start[now] = time
            wn = worker[now]
            for j in range(3):
                if j < 2:
                    after = successor[now, j]
                else:
                    after = order[position[now] + 1] if position[now] + 1 < first[wn + 1] else -1
                if after >= 0 and not queued[after]:
                    _push(heap_time, heap_node, 0, size, start[after], after)
                    size += 1
                    queued[after] = True
        settled = size == 0
        while size > 0:
            queued[heap_node[size - 1]] = False
            size -= 1
        accepted = False
        if settled:
            _windows(order, first, num_slots, duration, start, begin, finish)
            new_window, new_energy, new_slot = _energy(first, num_slots, begin, finish, sync, target, joint)
            change = new_energy - energy
            if change <= 0 or np.random.random() < np.exp(-change / temperature):
                accepted = True
        for i in range(logged):
            touched[log_node[i]] = False
            if not accepted:
                start[log_node[i]] = log_start[i]
        if not accepted:
            at = there
            while at != here:
                order[at] = order[at - step]
                position[order[at]] = at
                at -= step
            order[here] = node
            position[node] = here
            continue
        running = held[left - 1] if left > low else 0
        for at in range(left, max(here, there) + 1):
            running += acquire[order[at]] - release_bytes[order[at]]
            held[at] = running
        energy, worst_slot = new_energy, new_slot
        if new_window < best_window or (new_window == best_window and new_energy < best_energy):
            best_window, best_energy = new_window, new_energy
            best_order[:] = order
            if best_window <= target:
                break
    return order, start, best_order, best_window
