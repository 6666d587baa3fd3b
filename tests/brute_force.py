"""Exact answers for the tiniest problems: every routing and order there is, each timed by :mod:`planner.replay`.

It shares nothing with :mod:`tests.exhaustive`, which searches through time, and so checks it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product

from planner.errors import InvalidScheduleError
from planner.operation import Kind, Operation, Worker
from planner.problem import Problem
from planner.replay import replay
from planner.schedule import TimedOperation, schedule_from_orders

Place = tuple[int, int, int]
"""Home pipeline, microbatch and stage."""


class TooManyOrdersError(Exception):
    """The problem has more orders than may be tried."""


def brute_force_period_ns(problem: Problem, *, most_orders: int) -> int:
    """Smallest period of any routing and order that memory holds, backwards split wherever they can be.

    Parameters
    ----------
    problem
        A plannable problem.
    most_orders
        Most orders to time.

    Raises
    ------
    TooManyOrdersError
        If it has more.
    """
    best: int | None = None
    left = most_orders
    for orders in _orders_by_worker(problem, most_orders):
        left -= math.prod(map(len, orders.values()))
        if left < 0:
            raise TooManyOrdersError
        for chosen in product(*orders.values()):
            timed = {
                worker: [TimedOperation(op, 0, 0) for op in order] for worker, order in zip(orders, chosen, strict=True)
            }
            schedule = schedule_from_orders(problem.num_pipelines, problem.num_slots, timed)
            try:
                period = replay(problem, schedule, iterations=3).period_ns
            except InvalidScheduleError:
                continue  # the workers wait for each other in a cycle
            best = period if best is None else min(best, period)
    assert best is not None
    return best


def _orders_by_worker(problem: Problem, most_orders: int) -> Iterator[dict[Worker, list[tuple[Operation, ...]]]]:
    """For each routing, every order of each worker."""
    places = [
        (k, j, v)
        for k, count in enumerate(problem.microbatches)
        for j in range(count)
        for v in range(problem.num_stages)
    ]
    for runs in product(*(problem.live_pipelines(problem.slot_of_stage[v]) for _, _, v in places)):
        held: dict[Worker, list[Place]] = {}
        for place, pipeline in zip(places, runs, strict=True):
            held.setdefault(Worker(pipeline, problem.slot_of_stage[place[2]]), []).append(place)
        orders: dict[Worker, list[tuple[Operation, ...]]] = {}
        for worker, mine in held.items():
            orders[worker] = []
            for order in _orders(problem, worker, _operations(problem, mine), (), 0):
                orders[worker].append(order)
                if len(orders[worker]) > most_orders:
                    raise TooManyOrdersError
        yield orders


def _operations(problem: Problem, places: Sequence[Place]) -> list[Operation]:
    return [
        Operation(kind, v, k, j)
        for k, j, v in places
        for kind in ((Kind.F, Kind.I, Kind.W) if problem.stages[v].splittable else (Kind.F, Kind.B))
    ]


def _orders(
    problem: Problem, worker: Worker, left: list[Operation], done: tuple[Operation, ...], held: int
) -> Iterator[tuple[Operation, ...]]:
    """Ways to go on after ``done`` such that memory holds and no operation waits for one of ``left``."""
    if not left:
        yield done
    capacity = problem.slots[worker.slot].capacity_bytes
    for op in left:
        if any(_follows(op, other) for other in left):
            continue
        stage = problem.stages[op.stage]
        change = {
            Kind.F: stage.activation_bytes,
            Kind.B: -stage.activation_bytes,
            Kind.I: stage.weight_grad_bytes - stage.activation_bytes,
            Kind.W: -stage.weight_grad_bytes,
        }[op.kind]
        if op.kind is Kind.F and capacity is not None and held + change > capacity:
            continue
        yield from _orders(problem, worker, [other for other in left if other != op], (*done, op), held + change)


def _follows(op: Operation, other: Operation) -> bool:
    """Whether ``op`` needs what comes of ``other``, directly or through other stages."""
    if (op.pipeline, op.microbatch) != (other.pipeline, other.microbatch) or op == other:
        return False
    if op.kind is Kind.W:
        # Its own backward comes last of all it needs.
        return other.kind is not Kind.W and (other.kind is Kind.F or other.stage >= op.stage)
    if op.kind is Kind.F:
        return other.kind is Kind.F and other.stage < op.stage
    return other.kind is Kind.F or (other.kind is not Kind.W and other.stage > op.stage)
