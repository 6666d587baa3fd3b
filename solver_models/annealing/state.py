"""What the annealing loop knows about each operation: two rows of integers, each one line of the processor's cache.

``fixed`` holds what the network says and never changes. ``state`` holds what an order makes of it: neighbours on the worker, the
end when all run as early as possible, and the *reach*, the longest path from an operation's start to the end of a slot's
window. ``end - duration + reach`` is thus the largest window that the operation takes part in. ``sequence`` lists all
operations so that whatever one waits for comes before it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from planner.problem import Problem
from planner.schedule import IntColumn
from solver_models.list_scheduling.network import Network, sources_of

WORKER, DURATION, DATA, DATA_LAG, NEXT, OTHER_NEXT, NEXT_LAG, OTHER_LAG = range(8)
"""Columns of ``fixed``: worker, duration, node whose result is needed and its transfer time, two nodes that need this one's
result and the transfer times to them; -1 for no node."""

BEFORE, AFTER, END, REACH, RANK, PLACE, MARK, KIN = range(8)
"""Columns of ``state``: neighbours on the worker (-1 for none), times, place in ``sequence`` and in the order, the last move that
delayed the node, and its kin: nodes of one kind, stage and home pipeline, which gain nothing by changing places."""


def fixed_rows(network: Network) -> IntColumn:
    """Rows of ``fixed``, shape ``(N, 8)``."""
    count = len(network.worker)
    rows = np.full((count, 8), -1, dtype=np.int64)
    rows[:, WORKER], rows[:, DURATION] = network.worker, network.duration
    rows[:, NEXT], rows[:, OTHER_NEXT] = network.successor.T
    rows[:, NEXT_LAG], rows[:, OTHER_LAG] = network.lag.T
    rows[:, DATA], rows[:, DATA_LAG] = sources_of(network)
    return rows


def kin_of(problem: Problem) -> IntColumn:
    """A number for each kind, stage and home pipeline, shape ``(N,)``."""
    home = np.repeat(np.arange(problem.num_pipelines, dtype=np.int64), problem.microbatches)
    one = np.arange(3 * problem.num_stages, dtype=np.int64)
    kin: IntColumn = (home[:, None] * len(one) + one).reshape(-1)
    return kin


@njit(cache=True)
def start_state(order: IntColumn, first: IntColumn, fixed: IntColumn, kin: IntColumn, release: IntColumn) -> Any:
    """Time an order as early as possible.

    Parameters
    ----------
    order, first
        Shapes ``(N',)`` and ``(K + 1,)``: nodes in each worker's order, and each worker's first place.
    fixed, kin
        Of :func:`fixed_rows` and :func:`kin_of`.
    release
        Shape ``(P,)``: earliest time at which the workers of each slot may begin.

    Returns
    -------
    state, sequence
        Shapes ``(N, 8)`` and ``(N',)``; reaches are still to be found. The sequence is shorter where workers wait in a cycle.
    """
    slots, workers, total = len(release), len(first) - 1, len(order)
    state = np.full((len(fixed), 8), -1, dtype=np.int64)
    state[:, KIN] = kin
    for w in range(workers):
        for at in range(first[w], first[w + 1]):
            x = order[at]
            state[x, PLACE] = at
            if at > first[w]:
                state[x, BEFORE] = order[at - 1]
                state[order[at - 1], AFTER] = x
    emitted = np.empty(total, dtype=np.int64)
    start = np.empty(total, dtype=np.int64)
    pointer = first[:-1].copy()
    stack = np.arange(workers)
    waiting = np.empty(total + workers, dtype=np.int64)
    waiting[:workers] = stack
    depth, reached = workers, 0
    while depth > 0:
        depth -= 1
        w = waiting[depth]
        while pointer[w] < first[w + 1]:
            x = order[pointer[w]]
            source, previous = fixed[x, DATA], state[x, BEFORE]
            if source >= 0 and state[source, END] < 0:
                break
            time = state[previous, END] if previous >= 0 else release[w % slots]
            if source >= 0:
                time = max(time, state[source, END] + fixed[x, DATA_LAG])
            state[x, END] = time + fixed[x, DURATION]
            emitted[reached], start[reached] = x, time
            reached += 1
            pointer[w] += 1
            for column in (NEXT, OTHER_NEXT):
                y = fixed[x, column]
                if y >= 0 and fixed[y, WORKER] != w and state[y, PLACE] == pointer[fixed[y, WORKER]]:
                    waiting[depth] = fixed[y, WORKER]
                    depth += 1
    # Stable, so that what starts together keeps the order in which it was reached.
    by_start = np.argsort(start[:reached], kind="mergesort")
    sequence = emitted[:reached][by_start]
    for rank in range(reached):
        state[sequence[rank], RANK] = rank
    return state, sequence


@njit(cache=True)
def windows(
    state: IntColumn,
    fixed: IntColumn,
    firsts: IntColumn,
    lasts: IntColumn,
    begin: IntColumn,
    sync: IntColumn,
    target: int,
    joint: bool,
) -> Any:
    """Largest window, and what all workers' windows together exceed the target by; fills in each slot's first start.

    Parameters
    ----------
    firsts, lasts
        Shape ``(K,)``: each worker's first and last node, -1 for none.
    begin
        Shape ``(P,)``: is filled in.
    sync
        Shape ``(P,)``.
    target, joint
        As in :func:`solver_models.annealing.engine.anneal`.
    """
    slots = len(begin)
    begin[:] = 2**61
    for w in range(len(firsts)):
        x = firsts[w]
        if x >= 0:
            begin[w % slots] = min(begin[w % slots], state[x, END] - fixed[x, DURATION])
    if joint:
        begin[:] = begin.min()
    worst, excess = -(2**61), 0
    for w in range(len(lasts)):
        if lasts[w] >= 0:
            window = state[lasts[w], END] - begin[w % slots] + sync[w % slots]
            worst = max(worst, window)
            excess += max(0, window - target)
    return worst, excess
