"""Random orders of a problem: any routing, any sequence in which inputs come first; memory is not looked at."""

from __future__ import annotations

import random

from planner.operation import Kind, Operation, Worker
from planner.problem import Problem
from planner.schedule import Schedule, TimedOperation, schedule_from_orders


def random_order(problem: Problem, rng: random.Random) -> Schedule:
    """Draw an order that can run, all times 0."""
    chains = []
    for pipeline, count in enumerate(problem.microbatches):
        for microbatch in range(count):
            chains.append(_operations(problem, rng, pipeline, microbatch))
    orders: dict[Worker, list[TimedOperation]] = {}
    ready = [(worker, operation, rest) for chain in chains for worker, operation, rest in chain[:1]]
    while ready:
        worker, operation, following = ready.pop(rng.randrange(len(ready)))
        orders.setdefault(worker, []).append(TimedOperation(operation, 0, 0))
        ready.extend(following)
    return schedule_from_orders(problem.num_pipelines, problem.num_slots, orders)


def _operations(problem: Problem, rng: random.Random, pipeline: int, microbatch: int) -> list:  # type: ignore[type-arg]
    """The microbatch's first operation as ``(worker, operation, what it makes ready)``, in a list."""
    workers = [
        Worker(rng.choice(problem.live_pipelines(problem.slot_of_stage[v])), problem.slot_of_stage[v])
        for v in range(problem.num_stages)
    ]

    def entry(kind: Kind, stage: int, following: list) -> tuple:  # type: ignore[type-arg]
        return workers[stage], Operation(kind, stage, pipeline, microbatch), following

    following: list = []  # type: ignore[type-arg]
    for v in range(problem.num_stages):
        if problem.stages[v].splittable and rng.random() < 0.7:
            following = [entry(Kind.I, v, [*following, entry(Kind.W, v, [])])]
        else:
            following = [entry(Kind.B, v, following)]
    for v in reversed(range(problem.num_stages)):
        following = [entry(Kind.F, v, following)]
    return following
