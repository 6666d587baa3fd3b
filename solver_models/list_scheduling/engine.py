"""Event-driven construction of a schedule, compiled.

Workers wake when they are free or when something arrives, and decide: run a ready operation, or wait for one that is known to
be on its way. Two rules of decision exist. *By priority*: the ready operation with the smallest priority number, waiting
for a more urgent one that arrives within the worker's patience. *By rounds*: input gradients before forwards before weight
gradients, one forward to one input gradient; a weight gradient only where a gap holds it, where memory forces it,
or where waiting would take the worker's idle time past its budget.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from planner.schedule import IntColumn

RULE_PRIORITY = 0
RULE_ROUNDS = 1

FAR = 2**61
"""Later than every time that occurs."""


@njit(cache=True)
def _push(times: IntColumn, items: IntColumn, base: int, size: int, time: int, item: int) -> None:
    """Add to the binary heap in ``[base, base + size)``; the caller then counts one more."""
    i = size
    while i > 0:
        parent = (i - 1) // 2
        if times[base + parent] <= time:
            break
        times[base + i] = times[base + parent]
        items[base + i] = items[base + parent]
        i = parent
    times[base + i] = time
    items[base + i] = item


@njit(cache=True)
def _pop(times: IntColumn, items: IntColumn, base: int, size: int) -> None:
    """Remove the top of the binary heap in ``[base, base + size)``; the caller then counts one fewer."""
    last = size - 1
    time, item = times[base + last], items[base + last]
    i = 0
    while True:
        child = 2 * i + 1
        if child >= last:
            break
        if child + 1 < last and times[base + child + 1] < times[base + child]:
            child += 1
        if times[base + child] >= time:
            break
        times[base + i] = times[base + child]
        items[base + i] = items[base + child]
        i = child
    times[base + i] = time
    items[base + i] = item


@njit(cache=True)
def construct(
    rule: int,
    chunks: int,
    worker: IntColumn,
    queue: IntColumn,
    duration: IntColumn,
    successor: IntColumn,
    lag: IntColumn,
    num_predecessors: IntColumn,
    acquire: IntColumn,
    release: IntColumn,
    reserve: IntColumn,
    capacity: IntColumn,
    priority: IntColumn,
    patience: IntColumn,
    budget: IntColumn,
    limit: IntColumn,
) -> Any:
    """Build one schedule.

    Parameters
    ----------
    rule
        ``RULE_PRIORITY`` or ``RULE_ROUNDS``.
    chunks, worker, ..., capacity
        The network's columns.
    priority
        Shape ``(N,)``: smaller is more urgent.
    patience
        Shape ``(K,)``: longest a worker waits for something more urgent that is known to arrive, in nanoseconds.
    budget
        Shape ``(K,)``: idle nanoseconds a worker may collect by choice (rounds only).
    limit
        Shape ``(K,)``: most forwards a worker may hold whose input gradient has not ended (rounds only).

    Returns
    -------
    start
        Shape ``(N,)``: start of each node; the first is -1 where memory came to a standstill, which only reversed networks
        can reach.
    turn
        Shape ``(N,)``: how many nodes were started before each. It tells in which order a worker runs nodes without length
        that start together, on which its memory may depend.
    """
    count, workers, queues = len(worker), len(capacity), 3 * chunks
    base = np.zeros(workers * queues + 1, dtype=np.int64)
    for node in range(count):
        if worker[node] >= 0:
            base[worker[node] * queues + queue[node] + 1] += 1
    for i in range(workers * queues):
        base[i + 1] += base[i]
    ready_key = np.empty(base[-1], dtype=np.int64)
    ready_node = np.empty(base[-1], dtype=np.int64)
    ready_size = np.zeros(workers * queues, dtype=np.int64)
    flight_time = np.empty(base[-1], dtype=np.int64)
    flight_node = np.empty(base[-1], dtype=np.int64)
    flight_size = np.zeros(workers, dtype=np.int64)
    wake_time = np.empty(3 * base[-1] + workers, dtype=np.int64)
    wake_worker = np.empty(3 * base[-1] + workers, dtype=np.int64)
    wakes = 0

    start = np.full(count, -1, dtype=np.int64)
    turn = np.full(count, -1, dtype=np.int64)
    missing = num_predecessors.copy()
    known = np.zeros(count, dtype=np.int64)  # earliest arrival so far of a node's data
    free_at = np.zeros(workers, dtype=np.int64)
    begun = np.zeros(workers, dtype=np.bool_)
    held = np.zeros(workers, dtype=np.int64)
    running = np.full(workers, -1, dtype=np.int64)
    in_flight = np.zeros(workers, dtype=np.int64)
    idle = np.zeros(workers, dtype=np.int64)
    last_kind = np.full(workers, -1, dtype=np.int64)

    for node in range(count):
        if worker[node] >= 0 and missing[node] == 0:
            w = worker[node]
            q = w * queues + queue[node]
            _push(ready_key, ready_node, base[q], ready_size[q], priority[node], node)
            ready_size[q] += 1
    for w in range(workers):
        if base[(w + 1) * queues] > base[w * queues]:
            _push(wake_time, wake_worker, 0, wakes, 0, w)
            wakes += 1

    done = 0
    while wakes > 0:
        now, w = wake_time[0], wake_worker[0]
        _pop(wake_time, wake_worker, 0, wakes)
        wakes -= 1
        if free_at[w] > now:
            continue
        if running[w] >= 0:
            held[w] -= release[running[w]]
            if running[w] % 3 == 1:
                in_flight[w] -= 1
            running[w] = -1
        flight_base = base[w * queues]
        while flight_size[w] > 0 and flight_time[flight_base] <= now:
            node = flight_node[flight_base]
            _pop(flight_time, flight_node, flight_base, flight_size[w])
            flight_size[w] -= 1
            q = w * queues + queue[node]
            _push(ready_key, ready_node, base[q], ready_size[q], priority[node], node)
            ready_size[q] += 1

        # The most urgent ready node of each kind that memory admits.
        best = np.full(3, -1, dtype=np.int64)
        blocked = False
        for q in range(queues):
            at = w * queues + q
            if ready_size[at] == 0:
                continue
            node = ready_node[base[at]]
            kind = q // chunks
            if acquire[node] > 0 and held[w] + acquire[node] + reserve[node] > capacity[w]:
                blocked = True
                continue
            # Only what enters the slot: a microbatch already in it must be able to go on, or all of them may wait.
            if rule == RULE_ROUNDS and q == 0 and in_flight[w] >= limit[w]:
                continue
            if best[kind] < 0 or priority[node] < priority[best[kind]]:
                best[kind] = node
        coming_f, coming_i, urgent, urgent_priority = FAR, FAR, FAR, FAR
        for i in range(flight_size[w]):
            node = flight_node[flight_base + i]
            arrival = flight_time[flight_base + i]
            if node % 3 == 1:
                coming_i = min(coming_i, arrival)
            elif node % 3 == 0 and held[w] + acquire[node] + reserve[node] <= capacity[w]:
                coming_f = min(coming_f, arrival)
            if arrival - now <= patience[w] and priority[node] < urgent_priority:
                urgent, urgent_priority = arrival, priority[node]

        chosen = -1
        if rule == RULE_PRIORITY:
            for kind in range(3):
                if best[kind] >= 0 and (chosen < 0 or priority[best[kind]] < priority[chosen]):
                    chosen = best[kind]
            # Wait only where running the chosen one would keep the more urgent one waiting.
            late = chosen >= 0 and now + duration[chosen] > urgent
            if late and urgent_priority < priority[chosen]:
                chosen = -1
        else:
            spare = budget[w] - idle[w] - (now - free_at[w] if begun[w] else 0)
            if best[1] >= 0 and best[0] >= 0:
                chosen = best[0] if last_kind[w] == 1 else best[1]
            elif best[1] >= 0:
                chosen = best[1]
            elif best[0] >= 0:
                chosen = best[0]
                wait = coming_i - now
                if begun[w] and last_kind[w] == 0 and wait < duration[chosen] and wait <= patience[w] and wait <= spare:
                    chosen = -1
            elif best[2] >= 0:
                chosen = best[2]
                wait = min(coming_i, coming_f) - now
                if not blocked and wait < duration[chosen] and wait <= spare:
                    chosen = -1
        if chosen < 0:
            continue

        q = w * queues + queue[chosen]
        _pop(ready_key, ready_node, base[q], ready_size[q])
        ready_size[q] -= 1
        if begun[w]:
            idle[w] += now - free_at[w]
        begun[w] = True
        start[chosen] = now
        turn[chosen] = done
        done += 1
        end = now + duration[chosen]
        free_at[w] = end
        running[w] = chosen
        held[w] += acquire[chosen]
        if chosen % 3 == 0:
            in_flight[w] += 1
        if chosen % 3 != 2:
            last_kind[w] = chosen % 3
        _push(wake_time, wake_worker, 0, wakes, end, w)
        wakes += 1
        for j in range(2):
            after = successor[chosen, j]
            if after < 0:
                continue
            known[after] = max(known[after], end + lag[chosen, j])
            missing[after] -= 1
            if missing[after] == 0:
                target = worker[after]
                _push(flight_time, flight_node, base[target * queues], flight_size[target], known[after], after)
                flight_size[target] += 1
                _push(wake_time, wake_worker, 0, wakes, known[after], target)
                wakes += 1
    if done < base[-1]:
        start[0] = -1
    return start, turn
