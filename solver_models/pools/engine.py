"""Compiled construction with pools: time moves on, and a worker of a slot that is free takes whatever waits there.

A microbatch is given a worker when its F starts, and runs its I and W there too. One stage a slot. A free worker takes

1. the I of the earliest microbatch it may run;
2. an F that waits at the slot, if its load and memory allow, unless one of its I comes within ``patience`` and there is time;
3. a W, if nothing known of comes before it is over, if memory holds up an F that waits, or if no time to wait is left.

An arrival is known of from the start of the operation before it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from planner.schedule import IntColumn

NEVER = 2**61
"""Later than every time."""

ANYONE, PIPELINE, HOME = 0, 1, 2
"""Whom an F prefers among those that may take it: whoever has the least, the pipeline that ran the F before, or its home."""


@njit(cache=True)
def construct_pooled(
    rank: IntColumn,
    home: IntColumn,
    duration: npt.NDArray[np.int64],
    split: npt.NDArray[np.bool_],
    transfer: IntColumn,
    held: IntColumn,
    kept: IntColumn,
    capacity: IntColumn,
    room: IntColumn,
    joint: bool,
    even: npt.NDArray[np.int64],
    most: npt.NDArray[np.int64],
    few: IntColumn,
    patience: IntColumn,
    margin: IntColumn,
    preference: int,
) -> Any:
    """Construct one schedule.

    Parameters
    ----------
    rank, home
        Shape ``(N,)``: place of each microbatch in the order in which slots take them, and its home pipeline.
    duration
        Shape ``(D, P, 3)``: F, I and W of each worker; negative for dead ones. I is the whole backward where not ``split``.
    split, transfer, held, kept, capacity
        Shape ``(P,)``: of each slot's stage, and each worker's bytes. Nothing is ``kept`` where not ``split``.
    room
        Shape ``(P,)``: target window of each slot, without synchronisation.
    joint
        Whether all windows begin at 0.
    even, most, few
        Shapes ``(D, P)``, ``(D, P)`` and ``(P,)``: load of each worker where all are spread evenly, the most it may get, and how
        many workers of a slot may get that.
    patience, margin
        Shape ``(P,)``: nanoseconds to wait for an I that could run instead of an F, and by which a W may delay an F.
    preference
        One of the constants above.

    Returns
    -------
    start, turn, runs : arrays of int64, shapes ``(N, P, 3)`` twice and ``(N, P)``
        Start of each operation and how many were started before it (-1 for a W that a stage does not have), and the pipeline that
        runs each microbatch; ``start[0, 0, 0]`` is -1 where it came to a standstill.
    looks : int
        How many microbatches were looked at in all: what took the time.
    """
    total, (pipelines, slots) = len(rank), most.shape
    start = np.full((total, slots, 3), -1, dtype=np.int64)
    turn = np.full((total, slots, 3), -1, dtype=np.int64)
    runs = np.full((total, slots), -1, dtype=np.int64)
    # When F and I can start, as far as is known.
    ready = np.full((total, slots, 2), NEVER, dtype=np.int64)
    ready[:, 0, 0] = 0
    free = np.zeros((pipelines, slots), dtype=np.int64)
    used = np.zeros((pipelines, slots), dtype=np.int64)
    count = np.zeros((pipelines, slots, 3), dtype=np.int64)
    mine = np.full((pipelines, slots, max(1, most.max())), -1, dtype=np.int64)
    full = np.zeros(slots, dtype=np.int64)
    opened = np.full(slots, 0 if joint else NEVER, dtype=np.int64)
    look = np.full(slots, NEVER, dtype=np.int64)
    look[0] = 0
    done, operations = 0, total * slots * 2 + total * int(split.sum())
    wants, looks = np.zeros(pipelines, dtype=np.bool_), 0
    while done < operations:
        s = int(np.argmin(look))
        now = look[s]
        if now >= NEVER:
            start[0, 0, 0] = -1
            return start, turn, runs, looks
        looks += total
        waiting, next_forward = _forwards(ready, runs, s, now)
        again = next_forward
        for k in range(pipelines):
            wants[k] = False
            if duration[k, s, 0] < 0 or free[k, s] > now:
                again = min(again, free[k, s] if free[k, s] > now else NEVER)
                continue
            own = mine[k, s, : count[k, s, 0]]
            looks += len(own)
            m, next_backward = _backwards(ready, start, rank, own, s, now)
            again = min(again, next_backward)
            kind = 1
            if m < 0:
                load = count[k, s, 0]
                may_take = load < most[k, s] - 1 or (load == most[k, s] - 1 and full[s] < few[s])
                fits = used[k, s] + held[s] <= capacity[s]
                share = max(load, even[k, s]) if may_take else load
                to_do = (share - load) * duration[k, s, 0] + (share - count[k, s, 1]) * duration[k, s, 1]
                to_do += (share - count[k, s, 2]) * duration[k, s, 2]
                spare = NEVER if opened[s] == NEVER else opened[s] + room[s] - now - to_do
                if may_take and fits and waiting > 0:
                    if next_backward >= now + patience[s] or spare < next_backward - now:
                        wants[k] = True
                        waiting -= 1
                    continue
                if not split[s] or count[k, s, 2] == count[k, s, 1]:
                    continue
                comes = min(next_backward, next_forward + margin[s]) if may_take and fits else next_backward
                forced = (may_take and not fits and waiting > 0) or spare < min(next_backward, next_forward) - now
                if now + duration[k, s, 2] > comes and not forced:
                    continue
                m, kind = _oldest_without_w(start, own, s), 2
            start[m, s, kind], turn[m, s, kind] = now, done
            free[k, s] = now + duration[k, s, kind]
            again = min(again, free[k, s])
            # Nobody looks at a worker's memory before it is free again, so what the end gives back may go at the start.
            used[k, s] -= held[s] - kept[s] if kind == 1 else kept[s]
            count[k, s, kind] += 1
            done += 1
            if kind == 1 and s > 0:
                ready[m, s - 1, 1] = free[k, s] + transfer[s - 1]
                look[s - 1] = min(look[s - 1], ready[m, s - 1, 1])
        while wants.any():
            looks += total
            m = _earliest_forward(ready, runs, rank, s, now)
            near = -1
            if preference != ANYONE:
                near = home[m] if preference == HOME or s == 0 else runs[m, s - 1]
            k = near if near >= 0 and wants[near] else _least_loaded(wants, count, s)
            wants[k] = False
            runs[m, s] = k
            start[m, s, 0], turn[m, s, 0] = now, done
            mine[k, s, count[k, s, 0]] = m
            count[k, s, 0] += 1
            full[s] += count[k, s, 0] == most[k, s]
            used[k, s] += held[s]
            free[k, s] = now + duration[k, s, 0]
            again = min(again, free[k, s])
            done += 1
            opened[s] = min(opened[s], now)
            if s + 1 < slots:
                ready[m, s + 1, 0] = free[k, s] + transfer[s]
                look[s + 1] = min(look[s + 1], ready[m, s + 1, 0])
            else:
                ready[m, s, 1] = free[k, s]
        look[s] = again
    return start, turn, runs, looks


@njit(cache=True)
def _forwards(ready: npt.NDArray[np.int64], runs: npt.NDArray[np.int64], s: int, now: int) -> Any:
    """How many F wait at a slot, and when the next one comes."""
    waiting, comes = 0, NEVER
    for m in range(len(runs)):
        if runs[m, s] < 0:
            if ready[m, s, 0] <= now:
                waiting += 1
            else:
                comes = min(comes, ready[m, s, 0])
    return waiting, comes


@njit(cache=True)
def _backwards(
    ready: npt.NDArray[np.int64], start: npt.NDArray[np.int64], rank: IntColumn, own: IntColumn, s: int, now: int
) -> Any:
    """The earliest rank of a worker's microbatches whose I can run, -1 for none, and when the next I comes."""
    chosen, comes = -1, NEVER
    for m in own:
        if start[m, s, 1] < 0:
            if ready[m, s, 1] > now:
                comes = min(comes, ready[m, s, 1])
            elif chosen < 0 or rank[m] < rank[chosen]:
                chosen = m
    return chosen, comes


@njit(cache=True)
def _oldest_without_w(start: npt.NDArray[np.int64], own: IntColumn, s: int) -> Any:
    """The microbatch whose I ran first of those whose W did not."""
    chosen = -1
    for m in own:
        if start[m, s, 1] >= 0 and start[m, s, 2] < 0 and (chosen < 0 or start[m, s, 1] < start[chosen, s, 1]):
            chosen = m
    return chosen


@njit(cache=True)
def _earliest_forward(
    ready: npt.NDArray[np.int64], runs: npt.NDArray[np.int64], rank: IntColumn, s: int, now: int
) -> Any:
    """The earliest rank whose F waits at a slot."""
    chosen = -1
    for m in range(len(runs)):
        if runs[m, s] < 0 and ready[m, s, 0] <= now and (chosen < 0 or rank[m] < rank[chosen]):
            chosen = m
    return chosen


@njit(cache=True)
def _least_loaded(wants: npt.NDArray[np.bool_], count: npt.NDArray[np.int64], s: int) -> Any:
    """Of the workers that want an F the one that has had the fewest."""
    chosen = -1
    for k in range(len(wants)):
        if wants[k] and (chosen < 0 or count[k, s, 0] < count[chosen, s, 0]):
            chosen = k
    return chosen
