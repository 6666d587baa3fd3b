"""Lowering: from a schedule to the programs of its workers.

Rows of a schedule are taken by planned end, then planned start, then in a sequence in which inputs come first. That
order keeps every worker's own order and puts each operation after its input. Taking a row appends its ``COMPUTE`` to its
worker; if another worker needs the result it then appends the receive to that worker and the send to this one.

So a receive stands behind the last operation that its worker ends before the sender is done: posted in time, and no
earlier than a worker that is busy with an operation can post it. Receives of one directed pair stand in send order. And
the programs cannot deadlock, whatever the real times are: by induction, all instructions appended up to a row can be
completed, since the row's input was sent before, and its receive is only preceded by instructions appended before
(:mod:`planner.deadlock` checks the result itself all the same).

One iteration's proof holds for all: a worker that is ahead waits for messages of its own iteration only, and whoever
owes them can complete the iteration before without it.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from planner.dataflow import NO_ROW
from planner.errors import InvalidScheduleError
from planner.operation import Kind, Worker
from planner.problem import Optimizer, Problem
from planner.programs import Opcode, Programs
from planner.schedule import IntColumn, Schedule
from planner.simulation import Order, prepare_order

_RECEIVE, _COMPUTE, _SEND = int(Opcode.RECEIVE), int(Opcode.COMPUTE), int(Opcode.SEND)
_GRADIENT, _FUSED = int(Kind.I), int(Kind.B)


def lower(problem: Problem, schedule: Schedule) -> Programs:
    """Turn a schedule into one program for each live worker.

    Each worker computes in its schedule's order, then for every stage it holds takes part in ``ALL_REDUCE``, waits at
    ``GLOBAL_BARRIER`` where the optimizer is ``global``, and steps. No message is sent within a worker.

    Parameters
    ----------
    problem
        The instance.
    schedule
        A schedule that keeps the order its own times say; times of 0 throughout (none known) are taken as well.

    Raises
    ------
    InvalidScheduleError
        If operations are missing, repeated or misplaced, wait for each other in a cycle, or are planned to end before
        their input or the operation ahead of them does.
    """
    order = prepare_order(problem, schedule)
    by_time = _sort_rows(schedule, order)
    tails = _tails(problem)
    num_workers = problem.num_pipelines * problem.num_slots
    worker, receiver = order.flow.worker, order.receiver_row
    senders = np.flatnonzero(receiver != NO_ROW)
    lengths = np.bincount(worker, minlength=num_workers)
    lengths += np.bincount(worker[senders], minlength=num_workers)
    lengths += np.bincount(worker[receiver[senders]], minlength=num_workers)
    tail_lengths = np.zeros(num_workers, dtype=np.int64)
    for index in range(num_workers):
        if Worker(index // problem.num_slots, index % problem.num_slots) not in problem.dead:
            tail_lengths[index] = len(tails[index % problem.num_slots])
    offsets = np.concatenate([[0], np.cumsum(lengths + tail_lengths)])
    columns = np.zeros((6, offsets[-1]), dtype=np.int64)
    _append_rows(
        by_time,
        worker,
        receiver,
        schedule.kind,
        schedule.stage,
        schedule.pipeline,
        schedule.microbatch,
        offsets,
        columns,
    )
    for index in np.flatnonzero(tail_lengths).tolist():
        begin, end = int(offsets[index + 1] - tail_lengths[index]), int(offsets[index + 1])
        columns[0, begin:end] = tails[index % problem.num_slots][:, 0]
        columns[2, begin:end] = tails[index % problem.num_slots][:, 1]
        columns[5, begin:end] = index
    columns.setflags(write=False)
    return Programs(
        num_slots=problem.num_slots,
        num_stages=problem.num_stages,
        microbatches=problem.microbatches,
        dead=problem.dead,
        offsets=offsets,
        opcode=columns[0],
        kind=columns[1],
        stage=columns[2],
        pipeline=columns[3],
        microbatch=columns[4],
        peer=columns[5],
    )


def _sort_rows(schedule: Schedule, order: Order) -> IntColumn:
    """Rows by planned end, planned start and place in the simulation's sequence.

    Raises
    ------
    InvalidScheduleError
        If that puts a row before its input or before the row ahead of it on its worker.
    """
    rank = np.empty(schedule.num_operations, dtype=np.int64)
    rank[order.sequence] = np.arange(schedule.num_operations)
    by_time = np.lexsort((rank, schedule.start_ns, schedule.end_ns))
    rank[by_time] = np.arange(schedule.num_operations)
    flow = order.flow
    rows = np.arange(schedule.num_operations)
    late = np.flatnonzero((flow.input_row != NO_ROW) & (rank[flow.input_row] > rank))
    swapped = rows[1:][(flow.worker[1:] == flow.worker[:-1]) & (rank[1:] < rank[:-1])]
    for found, what in ((late, "its input ends"), (swapped, "the operation ahead of it ends")):
        if len(found):
            row = int(found[0])
            raise InvalidScheduleError(
                f"worker {schedule.worker_at(int(flow.worker[row]))}, {schedule.operation(row)} is planned to end at "
                f"{schedule.end_ns[row]} ns, before {what}",
                hint="time the schedule by its order first",
            )
    return by_time


def _tails(problem: Problem) -> list[IntColumn]:
    """For each slot, opcode and stage of the instructions after the last operation, shape ``(n, 2)``."""
    tails = []
    for slot in problem.slots:
        barrier = [(Opcode.GLOBAL_BARRIER, 0)] if problem.optimizer is Optimizer.GLOBAL else []
        reduces = [(Opcode.ALL_REDUCE, v) for v in slot.stages]
        steps = [(Opcode.OPTIMIZER_STEP, v) for v in slot.stages]
        tails.append(np.array([*reduces, *barrier, *steps], dtype=np.int64))
    return tails


@njit(cache=True)
def _append_rows(
    by_time: IntColumn,
    worker: IntColumn,
    receiver_row: IntColumn,
    kind: IntColumn,
    stage: IntColumn,
    pipeline: IntColumn,
    microbatch: IntColumn,
    offsets: IntColumn,
    columns: IntColumn,
) -> None:
    """Fill the columns opcode, kind, stage, pipeline, microbatch, peer up to each worker's tail."""
    filled = offsets[:-1].copy()
    for row in by_time:
        w = worker[row]
        at = filled[w]
        columns[0, at] = _COMPUTE
        columns[1, at] = kind[row]
        columns[2, at] = stage[row]
        columns[3, at] = pipeline[row]
        columns[4, at] = microbatch[row]
        columns[5, at] = w
        filled[w] += 1
        receiver = receiver_row[row]
        if receiver < 0:
            continue
        other = worker[receiver]
        for here, there, opcode in ((other, w, _RECEIVE), (w, other, _SEND)):
            at = filled[here]
            columns[0, at] = opcode
            columns[1, at] = _GRADIENT if kind[receiver] == _FUSED else kind[receiver]
            columns[2, at] = stage[receiver]
            columns[3, at] = pipeline[receiver]
            columns[4, at] = microbatch[receiver]
            columns[5, at] = there
            filled[here] += 1
