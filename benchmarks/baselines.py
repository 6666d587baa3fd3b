"""What does without our techniques: 1F1B with naive rerouting, and rerouting in fixed turns that keeps 1F1B's order.

Both deal a failed worker's microbatches to the live workers of its slot in turn, keep every pipeline's 1F1B order, and step all
slots together. They differ in where a guest's operations go. *Naive*: behind the host's own, so that a broken pipeline's
iteration follows the sound ones'. *Round robin*: wherever they are ready, backwards split, and memory is not looked at. The
latter is what a third-party re-implementation of ReCycle does with an integer program; here the merging is by time of arrival.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from planner.baseline import fault_free, one_f_one_b
from planner.operation import Kind, Operation, Worker
from planner.problem import Optimizer, Problem
from planner.schedule import Schedule, TimedOperation, schedule_from_orders
from planner.timing import time_schedule

MOST_OPERATIONS = 300_000
"""Larger problems are left out: these are built operation by operation in Python."""

Sequences = dict[Worker, list[list[Operation]]]
"""For each live worker the operations it runs of each home pipeline, in 1F1B's order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A schedule and the problem that it solves: the given one, less what the baseline does not know.

    Parameters
    ----------
    problem
        The relaxed or restricted problem by which the schedule is timed and to be validated.
    schedule, period_ns
        The schedule and its period there.
    """

    problem: Problem
    schedule: Schedule
    period_ns: int


def naive_rerouting(problem: Problem) -> Baseline:
    """1F1B; microbatches of failed workers run on their peers after all of these have done their own.

    Sound pipelines come first, then the broken ones one after the other, on every worker alike, so that nobody waits for each
    other in a cycle. Without failures this is 1F1B itself.

    Raises
    ------
    NoPlanError
        If a slot has no live worker or memory does not hold one microbatch.
    """
    problem.require_plannable()
    stepping = replace(problem, optimizer=Optimizer.GLOBAL)
    broken = {worker.pipeline for worker in problem.dead}
    orders = {}
    for worker, sequences in _dealt(problem, split=False).items():
        sequences.sort(key=lambda sequence: (sequence[0].pipeline in broken, sequence[0].pipeline))
        orders[worker] = [_untimed(operation) for sequence in sequences for operation in sequence]
    schedule = schedule_from_orders(problem.num_pipelines, problem.num_slots, orders)
    timed, period = time_schedule(stepping, schedule)
    return Baseline(problem=stepping, schedule=timed, period_ns=period)


def round_robin_in_order(problem: Problem) -> Baseline:
    """Rerouting in fixed turns that keeps each pipeline's 1F1B order; guests go in where they are ready. Memory is not looked at.

    Raises
    ------
    NoPlanError
        If a slot has no live worker.
    """
    relaxed = replace(
        problem,
        optimizer=Optimizer.GLOBAL,
        slots=tuple(replace(slot, capacity_bytes=None) for slot in problem.slots),
    )
    relaxed.require_plannable()
    schedule = _Merge(relaxed, _dealt(relaxed, split=True)).run()
    timed, period = time_schedule(relaxed, schedule)
    return Baseline(problem=relaxed, schedule=timed, period_ns=period)


def _dealt(problem: Problem, *, split: bool) -> Sequences:
    """Each pipeline's 1F1B order, a failed worker's dealt to its live peers in turn by microbatch."""
    by_count = {count: _orders_of_one(problem, count, split=split) for count in set(problem.microbatches) if count}
    turns = [0] * problem.num_slots
    found: Sequences = {}
    for k, count in enumerate(problem.microbatches):
        for s in range(problem.num_slots if count else 0):
            steps = by_count[count][s]
            if problem.is_live(Worker(k, s)):
                found.setdefault(Worker(k, s), []).append([_of_pipeline(step, k) for step in steps])
                continue
            live = problem.live_pipelines(s)
            parts: dict[int, list[Operation]] = {}
            for step in steps:
                host = live[(turns[s] + step.microbatch) % len(live)]
                parts.setdefault(host, []).append(_of_pipeline(step, k))
            for host, part in parts.items():
                found.setdefault(Worker(host, s), []).append(part)
            turns[s] += count
    return found


def _orders_of_one(problem: Problem, count: int, *, split: bool) -> list[list[Operation]]:
    """Each slot's 1F1B order for one pipeline of ``count`` microbatches; split backwards are I at once followed by W."""
    one = replace(fault_free(problem), microbatches=(count,))
    schedule = one_f_one_b(one)
    return [
        list(_split(problem, schedule, Worker(0, s)) if split else _operations(schedule, Worker(0, s)))
        for s in range(problem.num_slots)
    ]


def _operations(schedule: Schedule, worker: Worker) -> Iterator[Operation]:
    return (schedule.operation(row) for row in schedule.rows(worker))


def _split(problem: Problem, schedule: Schedule, worker: Worker) -> Iterator[Operation]:
    for operation in _operations(schedule, worker):
        if operation.kind is Kind.B and problem.stages[operation.stage].splittable:
            yield replace(operation, kind=Kind.I)
            yield replace(operation, kind=Kind.W)
        else:
            yield operation


def _of_pipeline(operation: Operation, pipeline: int) -> Operation:
    return Operation(operation.kind, operation.stage, pipeline, operation.microbatch)


def _untimed(operation: Operation) -> TimedOperation:
    return TimedOperation(operation, 0, 0)


@dataclass(slots=True)
class _Merge:
    """Plays sequences in time: a free worker runs the head that has been ready longest, of equals the furthest behind.

    Heads wait only for other pipelines' workers, never for each other, so every sequence comes to its end.
    """

    problem: Problem
    sequences: Sequences
    orders: dict[Worker, list[TimedOperation]] = field(default_factory=dict)
    ready_at: dict[Operation, int] = field(default_factory=dict)
    runs_on: dict[tuple[int, int, int], Worker] = field(default_factory=dict)
    """Worker of stage, home pipeline and microbatch."""

    def run(self) -> Schedule:
        """Play all of them to the end."""
        problem = self.problem
        places = {worker: [0] * len(sequences) for worker, sequences in self.sequences.items()}
        free_at = dict.fromkeys(self.sequences, 0)
        self._note_workers()
        wakes = [(0, worker) for worker in self.sequences]
        heapq.heapify(wakes)
        while wakes:
            now, worker = heapq.heappop(wakes)
            if free_at[worker] > now:
                continue
            chosen = self._longest_ready(self.sequences[worker], places[worker], now)
            if chosen is None:
                continue
            operation = self.sequences[worker][chosen][places[worker][chosen]]
            places[worker][chosen] += 1
            end = now + problem.duration_ns(operation.kind, operation.stage, worker)
            self.orders.setdefault(worker, []).append(TimedOperation(operation, now, end))
            free_at[worker] = end
            heapq.heappush(wakes, (end, worker))
            for after, lag in self._awaiting(operation, worker):
                self.ready_at[after] = end + lag
                heapq.heappush(wakes, (end + lag, self.runs_on[after.stage, after.pipeline, after.microbatch]))
        return schedule_from_orders(problem.num_pipelines, problem.num_slots, self.orders)

    def _note_workers(self) -> None:
        for worker, sequences in self.sequences.items():
            for sequence in sequences:
                for operation in sequence:
                    self.runs_on[operation.stage, operation.pipeline, operation.microbatch] = worker
                    if operation.kind is Kind.F and operation.stage == 0:
                        self.ready_at[operation] = 0

    def _longest_ready(self, sequences: Sequence[Sequence[Operation]], places: Sequence[int], now: int) -> int | None:
        best: tuple[int, int, int] | None = None
        for number, (sequence, place) in enumerate(zip(sequences, places, strict=True)):
            if place < len(sequence):
                ready = self.ready_at.get(sequence[place])
                if ready is not None and ready <= now and (best is None or (ready, place, number) < best):
                    best = (ready, place, number)
        return None if best is None else best[2]

    def _awaiting(self, operation: Operation, worker: Worker) -> Iterator[tuple[Operation, int]]:
        """Operations that an operation's result is for, and how long it travels to them."""
        problem, (k, j, v) = self.problem, (operation.pipeline, operation.microbatch, operation.stage)
        if operation.kind is Kind.F:
            last = v == problem.num_stages - 1
            target = v if last else v + 1
            kind = Kind.F if not last else self._backward(target)
        elif operation.kind is Kind.W:
            return
        else:
            if operation.kind is Kind.I:
                yield Operation(Kind.W, v, k, j), 0
            if v == 0:
                return
            target, kind = v - 1, self._backward(v - 1)
        there = self.runs_on[target, k, j]
        lag = 0 if target == v else problem.transfer_ns(min(v, target), worker, there)
        yield Operation(kind, target, k, j), lag

    def _backward(self, stage: int) -> Kind:
        return Kind.I if self.problem.stages[stage].splittable else Kind.B
