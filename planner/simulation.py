"""Discrete-event simulation of an order, one iteration at a time: what replay and lowering run.

Only the order of operations on each worker counts. An operation starts at the latest of: its slot's release, the end of
the operation ahead of it on its worker, the arrival of its input. A message arrives at the sender's end plus transfer
time, yet never before the message sent ahead of it over the same directed link.

Links are taken to be idle when an iteration begins. That loses nothing: a link's last message of one iteration is used
by its receiver before the receiver's slot ends that iteration, so it cannot delay what the receiver does in the next.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from planner.dataflow import Dataflow
from planner.errors import InvalidScheduleError
from planner.execution import find_receivers, run_until_blocked
from planner.problem import Problem
from planner.render_grid import render_around
from planner.schedule import IntColumn, Schedule
from planner.validation import require_sound

NEVER = -(2**62)
"""A time before all others; whatever follows from it stays below ``NEVER // 2``."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Order:
    """An order that can run, ready to be simulated; int64 columns.

    Parameters
    ----------
    flow
        Inputs and costs of every row.
    sequence
        Shape ``(N,)``: rows so that each follows its input and the row ahead of it on its worker.
    receiver_row
        Shape ``(N,)``: row on another worker that uses this row's result, or ``NO_ROW``. There is at most one.
    message_ahead
        Shape ``(N,)``: row that sent the message ahead of this row's on the same directed link, or ``NO_ROW``.
    slot_of_worker
        Shape ``(D * P,)``.
    """

    flow: Dataflow
    sequence: IntColumn
    receiver_row: IntColumn
    message_ahead: IntColumn
    slot_of_worker: IntColumn


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IterationRun:
    """One simulated iteration: start and end of each row ``(N,)``, and the time each slot is done ``(P,)``, in ns."""

    start_ns: IntColumn
    end_ns: IntColumn
    done_ns: IntColumn


def prepare_order(problem: Problem, schedule: Schedule) -> Order:
    """Check that an order can run, and make it ready for simulation.

    Raises
    ------
    InvalidScheduleError
        If operations are missing, repeated or misplaced, or wait for each other in a cycle; the message names the
        waiting workers and operations.
    """
    flow = require_sound(problem, schedule)
    receiver_row = find_receivers(flow)
    num_workers = schedule.num_pipelines * schedule.num_slots
    sequence, position = run_until_blocked(schedule.offsets, flow.input_row, receiver_row, flow.worker)
    if len(sequence) < schedule.num_operations:
        raise InvalidScheduleError(_describe_cycle(schedule, flow, position))
    return Order(
        flow=flow,
        sequence=sequence,
        receiver_row=receiver_row,
        message_ahead=_messages_ahead(receiver_row, flow.worker, num_workers),
        slot_of_worker=np.arange(num_workers, dtype=np.int64) % schedule.num_slots,
    )


def run_iteration(order: Order, release_ns: IntColumn, duration_ns: IntColumn) -> IterationRun:
    """Simulate one iteration as early as possible.

    Parameters
    ----------
    order
        The order.
    release_ns
        Shape ``(P,)``: earliest start in each slot; ``NEVER`` is allowed.
    duration_ns
        Shape ``(N,)``: durations, those of ``order.flow`` or noisy ones.
    """
    start, end, done = _simulate(
        order.sequence,
        order.flow.worker,
        order.receiver_row,
        order.message_ahead,
        order.flow.link_ns,
        duration_ns,
        order.slot_of_worker,
        release_ns,
    )
    return IterationRun(start_ns=start, end_ns=end, done_ns=done)


@njit(cache=True)
def _messages_ahead(receiver_row: IntColumn, worker: IntColumn, num_workers: int) -> IntColumn:
    ahead = np.full(len(receiver_row), -1, np.int64)
    latest = np.full(num_workers, -1, np.int64)
    for row in range(len(receiver_row)):
        if receiver_row[row] < 0:
            continue
        target = worker[receiver_row[row]]
        # Rows of one worker stand together, so a row of another worker is not of this link.
        if latest[target] >= 0 and worker[latest[target]] == worker[row]:
            ahead[row] = latest[target]
        latest[target] = row
    return ahead


@njit(cache=True)
def _simulate(
    sequence: IntColumn,
    worker: IntColumn,
    receiver_row: IntColumn,
    message_ahead: IntColumn,
    link_ns: IntColumn,
    duration_ns: IntColumn,
    slot_of_worker: IntColumn,
    release_ns: IntColumn,
) -> tuple[IntColumn, IntColumn, IntColumn]:
    start = np.empty_like(duration_ns)
    end = np.empty_like(duration_ns)
    arrival = np.full(len(duration_ns), -(2**62), np.int64)
    free = release_ns[slot_of_worker]
    for row in sequence:
        w = worker[row]
        start[row] = max(free[w], arrival[row])
        end[row] = start[row] + duration_ns[row]
        free[w] = end[row]
        receiver = receiver_row[row]
        if receiver >= 0:
            arrival[receiver] = end[row] + link_ns[receiver]
            if message_ahead[row] >= 0:
                arrival[receiver] = max(arrival[receiver], arrival[receiver_row[message_ahead[row]]])
    done = release_ns.copy()
    for w in range(len(free)):
        done[slot_of_worker[w]] = max(done[slot_of_worker[w]], free[w])
    return start, end, done


def _describe_cycle(schedule: Schedule, flow: Dataflow, position: IntColumn) -> str:
    """Follow the waits from one worker that cannot go on until a worker comes up again."""
    worker = int(np.flatnonzero(position < schedule.offsets[1:])[0])
    path: list[int] = []
    while worker not in path:
        path.append(worker)
        worker = int(flow.worker[flow.input_row[position[worker]]])
    cycle = path[path.index(worker) :]
    waits = [
        f"worker {schedule.worker_at(w)} waits to run {schedule.operation(int(position[w]))}, which needs "
        f"{schedule.operation(int(flow.input_row[position[w]]))} of worker "
        f"{schedule.worker_at(int(flow.worker[flow.input_row[position[w]]]))}"
        for w in cycle
    ]
    lines = ["the order cannot run, operations wait for each other in a cycle:", *(f"  {wait}" for wait in waits)]
    grid = render_around(schedule, schedule.worker_at(cycle[0]), schedule.operation(int(position[cycle[0]])))
    return "\n".join([*lines, grid.rstrip()])
