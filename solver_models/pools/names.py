"""Names after scheduling: each microbatch gets a home where most of its stages run, each worker the place where most are at home.

A home only names a microbatch, and workers of one slot and speed are alike, so both may swap names at will: nothing about the
schedule changes but how many microbatches count as rerouted.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from planner.operation import Worker
from planner.problem import Problem
from planner.schedule import IntColumn

_ROUNDS = 3


def near_home(problem: Problem, routing: IntColumn, first_start: IntColumn) -> tuple[IntColumn, IntColumn]:
    """Deal out names greedily, to workers and microbatches in turn, by how many stages run at home.

    Parameters
    ----------
    problem
        One stage a slot.
    routing
        Shape ``(sum(M), V)``: pipeline that runs each microbatch at each stage, whatever both are called so far.
    first_start
        Shape ``(sum(M),)``: start of its F at stage 0; a pipeline's names follow it.

    Returns
    -------
    named, routing
        Shape ``(sum(M),)``: for each global microbatch index the one that is to get its name; and the routing by the new names.
    """
    routing = routing.copy()
    for v in range(1, problem.num_stages):
        routing[:, v] = _workers_near(problem, v, routing[:, v], routing[:, v - 1])
    home = _homes(problem, routing)
    for _ in range(_ROUNDS):
        for v in range(problem.num_stages):
            routing[:, v] = _workers_near(problem, v, routing[:, v], home)
        home = _homes(problem, routing)
    named: IntColumn = np.lexsort((first_start, home))
    return named, routing[named]


def _homes(problem: Problem, routing: IntColumn) -> IntColumn:
    """A home for each microbatch: those with the most stages in one pipeline choose first."""
    pipelines = problem.num_pipelines
    at_home = np.stack([(routing == k).sum(axis=1) for k in range(pipelines)], axis=1)
    left = list(problem.microbatches)
    home = np.full(len(routing), -1, dtype=np.int64)
    for pair in np.argsort(-at_home.reshape(-1), kind="stable").tolist():
        m, k = divmod(pair, pipelines)
        if home[m] < 0 and left[k] > 0:
            home[m] = k
            left[k] -= 1
    return home


def _workers_near(problem: Problem, stage: int, runs: IntColumn, wanted: IntColumn) -> IntColumn:
    """Who runs each microbatch after workers of one speed have swapped places, so that more run where they are wanted."""
    pipelines, slot = problem.num_pipelines, problem.slot_of_stage[stage]
    together = np.bincount(runs * pipelines + wanted, minlength=pipelines * pipelines).reshape(pipelines, pipelines)
    alike: dict[int, set[int]] = defaultdict(set)
    for k in problem.live_pipelines(slot):
        alike[problem.speed_ppm(Worker(k, slot))].add(k)
    place = np.arange(pipelines, dtype=np.int64)
    for members in alike.values():
        workers, free = set(members), set(members)
        own = np.array(sorted(members), dtype=np.int64)
        for pair in np.argsort(-together[np.ix_(own, own)].reshape(-1), kind="stable").tolist():
            worker, to = int(own[pair // len(own)]), int(own[pair % len(own)])
            if worker in workers and to in free:
                place[worker] = to
                workers.remove(worker)
                free.remove(to)
    result: IntColumn = place[runs]
    return result
