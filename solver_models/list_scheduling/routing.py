"""Which live worker runs each microbatch at each stage.

Loads come first: a slot's microbatches are spread so that its slowest worker finishes as early as integers and speeds
allow. Then who helps whom: a worker keeps its home microbatches as far as its load allows, and what it sheds goes to peers
that help the fewest others, nearest pipelines first.
"""

from __future__ import annotations

import numpy as np

from planner.operation import Kind, Worker
from planner.problem import FULL_SPEED_PPM, Problem
from planner.schedule import IntColumn

_LEVEL_UNIT = 10**6
"""Loads are levelled to a millionth of a microbatch at full speed."""

_MOST_SPLIT = 0.25
"""Share of a slot's shed microbatches whose stages may go to different helpers."""


def balanced_routing(problem: Problem, shuffle: np.random.Generator | None = None) -> IntColumn:
    """Route every microbatch so that each slot's loads are balanced.

    Parameters
    ----------
    problem
        Every slot with at least one live worker.
    shuffle
        Deals the shed microbatches to the helpers at random; by default in turn.

    Returns
    -------
    array of int64, shape ``(sum(M), V)``
        Pipeline whose worker runs each global microbatch at each stage; the stages of a slot go together but where that
        leaves one worker more to do than the others.
    """
    home = np.repeat(np.arange(problem.num_pipelines, dtype=np.int64), problem.microbatches)
    routing = np.repeat(home[:, None], problem.num_stages, axis=1)
    # A broken pipeline counts as one that helps: who helps it depends on it, and should not have to wait for others too.
    guests = np.bincount(
        [worker.pipeline for worker in (*problem.dead, *problem.speeds_ppm)], minlength=problem.num_pipelines
    )
    touched = {worker.slot for worker in (*problem.dead, *problem.speeds_ppm)}
    if len(set(problem.microbatches)) > 1:
        touched = set(range(problem.num_slots))
    for s in sorted(touched):
        moved, helpers = _deal(problem, s, guests, shuffle)
        for v in problem.slots[s].stages:
            routing[moved, v] = helpers
        _even_out(problem, s, routing)
        np.add.at(guests, helpers, 1)
    return routing


def _even_out(problem: Problem, slot: int, routing: IntColumn) -> None:
    """Move single stages of microbatches between a slot's workers while that takes work off the busiest.

    Whole microbatches cannot be dealt out more evenly than that; with several stages a slot, halves of them can.
    """
    stages = problem.slots[slot].stages
    live = np.array(problem.live_pipelines(slot), dtype=np.int64)
    if len(stages) == 1:
        return
    home = np.repeat(np.arange(problem.num_pipelines, dtype=np.int64), problem.microbatches)
    cost = np.array(
        [
            [
                sum(problem.duration_ns(kind, v, Worker(k, slot)) for kind in (Kind.F, Kind.I, Kind.W))
                for k in live.tolist()
            ]
            for v in stages
        ],
        dtype=np.int64,
    )
    counts = np.array([[np.count_nonzero(routing[:, v] == k) for k in live.tolist()] for v in stages], dtype=np.int64)
    load, split = (cost * counts).sum(axis=0), routing.copy()
    shed = np.count_nonzero(routing[:, stages[0]] != home)
    moves = 0
    for v, by_worker in zip(stages[:0:-1], cost[:0:-1], strict=True):
        while True:
            busiest, idlest = int(load.argmax()), int(load.argmin())
            guests = np.flatnonzero((split[:, v] == live[busiest]) & (home != live[busiest]))
            if len(guests) == 0 or load[idlest] + by_worker[idlest] >= load[busiest]:
                break
            moves += 1
            split[guests[len(guests) // 2], v] = live[idlest]
            load[busiest] -= by_worker[busiest]
            load[idlest] += by_worker[idlest]
    # Where each helper takes little anyway, twice as many would have to help.
    if moves <= _MOST_SPLIT * shed:
        routing[:] = split


def most_loads(problem: Problem, slot: int) -> IntColumn:
    """Most microbatches each worker of a slot runs when the slowest finishes as early as possible, shape ``(D,)``.

    The level is the least time, in microbatches at full speed, by which the slot's live workers together can run all
    microbatches; a worker of speed ``r`` runs ``floor(level * r)`` by then.
    """
    speed = np.array([problem.speed_ppm(Worker(k, slot)) for k in range(problem.num_pipelines)], dtype=np.int64)
    for worker in problem.dead:
        if worker.slot == slot:
            speed[worker.pipeline] = 0
    total = problem.num_microbatches
    low, high = 0, -(-total * _LEVEL_UNIT * FULL_SPEED_PPM // int(speed.max()))
    while low < high:
        level = (low + high) // 2
        if int((level * speed // (_LEVEL_UNIT * FULL_SPEED_PPM)).sum()) >= total:
            high = level
        else:
            low = level + 1
    most: IntColumn = low * speed // (_LEVEL_UNIT * FULL_SPEED_PPM)
    return most


def _deal(
    problem: Problem, slot: int, guests: IntColumn, shuffle: np.random.Generator | None
) -> tuple[IntColumn, IntColumn]:
    """Microbatches that leave their home worker in a slot, and the pipeline that takes each."""
    counts = np.array(problem.microbatches, dtype=np.int64)
    first = np.concatenate([[0], np.cumsum(counts)])
    most = most_loads(problem, slot)
    loads = np.minimum(counts, most)
    num_pipelines = len(counts)
    moved: list[int] = []
    helpers: list[int] = []
    for k in np.flatnonzero(counts > loads):
        shed = int(counts[k] - loads[k])
        # Spread the shed ones evenly over the iteration, so that no helper is flooded at one end of it.
        indices = (np.arange(shed, dtype=np.int64) * 2 + 1) * counts[k] // (2 * shed)
        takers: list[int] = []
        while len(takers) < shed:
            room = np.flatnonzero(loads < most)
            distance = np.minimum((room - k) % num_pipelines, (k - room) % num_pipelines)
            order = room[np.lexsort((distance, guests[room] + loads[room] - counts[room]))]
            taken = order[: shed - len(takers)]
            loads[taken] += 1
            takers.extend(int(t) for t in taken)
        if shuffle is not None:
            shuffle.shuffle(takers)
        moved.extend(int(first[k] + j) for j in indices)
        helpers.extend(takers)
    return np.array(moved, dtype=np.int64), np.array(helpers, dtype=np.int64)
