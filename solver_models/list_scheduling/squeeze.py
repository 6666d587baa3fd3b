"""Squeezing: each worker runs its F and I in the order of starts wished for, as early as that order allows.

A wished-for pattern repeats with a period, so it leaves no gap in the middle of an iteration; but its times leave gaps at the
beginning, where what came before is missing. Keeping its order and dropping its times closes them. A W is run where a gap
holds it, where memory forces it, and at the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from planner.schedule import IntColumn
from solver_models.list_scheduling.network import Network, sources_of


class Squeezer:
    """Squeezes schedules of one network.

    Parameters
    ----------
    network
        Nodes and what they need.
    """

    def __init__(self, network: Network) -> None:
        self._network = network
        count = len(network.worker)
        self._source, self._source_lag = sources_of(network)
        kind = np.arange(count, dtype=np.int64) % 3
        chained = np.flatnonzero((network.worker >= 0) & (kind != 2))
        # Stage by stage and kind by kind, so that wished-for starts come in few ascending runs, which sort fast.
        self._chained = chained[np.lexsort((chained, network.queue[chained], network.worker[chained]))]
        counts = np.bincount(network.worker[chained], minlength=network.num_workers)
        self._first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self._owes = np.zeros(count, dtype=np.bool_)
        self._owes[1::3] = network.worker[2::3] >= 0

    def squeeze(self, wished: IntColumn, gap_share: float) -> tuple[IntColumn, IntColumn] | None:
        """Build the schedule.

        Parameters
        ----------
        wished
            Shape ``(N,)``: the starts that order each worker's F and I.
        gap_share
            A gap holds a W if it is at least this share of its duration.

        Returns
        -------
        start, turn
            As :func:`solver_models.list_scheduling.engine.construct`; ``None`` where the order comes to a standstill, because
            memory is too small for it or it asks for a result before what makes it.
        """
        network = self._network
        span = int(wished.max()) - int(wished.min()) + 1
        key = network.worker[self._chained] * span + wished[self._chained]
        sequence = self._chained[np.argsort(key, kind="stable")]
        start, turn, done = _squeeze(
            sequence,
            self._first,
            network.worker,
            network.duration,
            network.successor,
            self._source,
            self._source_lag,
            self._owes,
            network.acquire,
            network.release,
            network.capacity,
            gap_share,
        )
        return (start, turn) if done else None


@njit(cache=True)
def _bring_input_grad(sequence: IntColumn, here: int, end: int) -> bool:
    """Put the next I of ``sequence[here:end]`` before all that stands there; say whether there is one."""
    for place in range(here, end):
        if sequence[place] % 3 == 1:
            node = sequence[place]
            sequence[here + 1 : place + 1] = sequence[here:place].copy()
            sequence[here] = node
            return True
    return False


@njit(cache=True)
def _squeeze(
    sequence: IntColumn,
    first: IntColumn,
    worker: IntColumn,
    duration: IntColumn,
    successor: IntColumn,
    source: IntColumn,
    source_lag: IntColumn,
    owes: Any,
    acquire: IntColumn,
    release: IntColumn,
    capacity: IntColumn,
    gap_share: float,
) -> Any:
    """Run each worker along its sequence, which is reordered where memory has no room for an F: the next I then goes before."""
    workers, count, total = len(capacity), len(duration), len(sequence)
    start = np.zeros(count, dtype=np.int64)
    end = np.full(count, -1, dtype=np.int64)
    turn = np.zeros(count, dtype=np.int64)
    free_at = np.zeros(workers, dtype=np.int64)
    held = np.zeros(workers, dtype=np.int64)
    at = first[:-1].copy()
    owed = np.empty(total, dtype=np.int64)  # each worker's W, in the order in which their I ran
    owed_from, owed_to = first[:-1].copy(), first[:-1].copy()
    awake = np.empty(2 * total + workers, dtype=np.int64)
    awake[:workers] = np.arange(workers)
    depth, placed = workers, 0
    while depth > 0:
        depth -= 1
        w = awake[depth]
        while at[w] < first[w + 1]:
            node = sequence[at[w]]
            if held[w] + acquire[node] > capacity[w] and owed_from[w] == owed_to[w]:
                if not _bring_input_grad(sequence, at[w], first[w + 1]):
                    break
                node = sequence[at[w]]
            before = source[node]
            if before >= 0 and end[before] < 0:
                break
            time = free_at[w] if before < 0 else max(free_at[w], end[before] + source_lag[node])
            while owed_from[w] < owed_to[w]:
                weight = owed[owed_from[w]]
                if held[w] + acquire[node] <= capacity[w] and time - free_at[w] < duration[weight] * gap_share:
                    break
                owed_from[w] += 1
                start[weight], turn[weight] = free_at[w], placed
                free_at[w] += duration[weight]
                held[w] -= release[weight]
                placed += 1
                time = max(time, free_at[w])
            if held[w] + acquire[node] > capacity[w]:
                continue
            at[w] += 1
            start[node], turn[node] = time, placed
            end[node] = time + duration[node]
            free_at[w] = end[node]
            held[w] += acquire[node] - release[node]
            placed += 1
            if owes[node]:
                owed[owed_to[w]] = node + 1
                owed_to[w] += 1
            for j in range(2):
                after = successor[node, j]
                if after >= 0 and after % 3 != 2:
                    awake[depth] = worker[after]
                    depth += 1
    for w in range(workers):
        if at[w] < first[w + 1]:
            return start, turn, False
        while owed_from[w] < owed_to[w]:
            weight = owed[owed_from[w]]
            owed_from[w] += 1
            start[weight], turn[weight] = free_at[w], placed
            free_at[w] += duration[weight]
            placed += 1
    return start, turn, True
