"""Times of an order: its steady period, and the shifted planned times that reach it.

A plan fixes routing and order; times follow. Run as early as possible, iteration after iteration, an order settles
into a steady state whose period is the largest cycle ratio of its event graph. Iterations are linked only where a slot
releases its workers for the next one, so the graph condenses to one node per slot: ``A[s, t]`` is the longest path
from the release of slot ``s`` to the end of slot ``t``'s sync. The period is the largest cycle mean of ``A``, and
release times ``x`` with ``x[t] >= x[s] + A[s, t] - period`` for all ``s, t`` (longest paths, Bellman and Ford) are the
slots' shifted starts (docs/model.md, "Period").

This module times what the planner makes. :mod:`planner.validation` and :mod:`planner.replay`, which check it, do not use it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from planner.errors import InvalidScheduleError
from planner.operation import Kind
from planner.problem import Optimizer, Problem, scaled_ns
from planner.schedule import IntColumn, Schedule

_NEVER = -(2**62)
"""Stands for "no path" inside the compiled loops; far below every time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventGraph:
    """Precedence of one iteration of an order, one node per row of the schedule.

    ``N`` rows; each has at most two predecessors: the row before it on its worker, and its data.

    Parameters
    ----------
    duration_ns
        Shape ``(N,)``.
    first_on_worker
        Shape ``(N,)``, bool: whether the row is its worker's first.
    data_row, data_crosses
        Shape ``(N,)``: the row whose result this one needs (-1 for the first stage's F), and whether another worker runs it.
    sent_lag_ns
        Shape ``(N,)``: transfer time of the message this row sends to another worker, 0 where it sends none.
    previous_message
        Shape ``(N,)``: the row that sent the previous message over the directed link this row sends over, or -1.
        All -1 where every message of a link takes the same time, since these cannot overtake.
    topological
        Shape ``(N,)``: rows so that predecessors come first.
    slot_of_row
        Shape ``(N,)``.
    """

    duration_ns: IntColumn
    first_on_worker: npt.NDArray[np.bool_]
    data_row: IntColumn
    data_crosses: npt.NDArray[np.bool_]
    sent_lag_ns: IntColumn
    previous_message: IntColumn
    topological: IntColumn
    slot_of_row: IntColumn


def time_schedule(problem: Problem, schedule: Schedule) -> tuple[Schedule, int]:
    r"""Find the steady period of an order and the shifted times that reach it.

    Parameters
    ----------
    problem
        The instance.
    schedule
        Each microbatch once per stage, on workers of the right slots; its times are ignored.

    Returns
    -------
    Schedule
        The same order, timed so that iteration ``n`` may run the same times moved by ``n`` periods; starts at 0.
    int
        The period in nanoseconds: the least integer that is at least the largest cycle ratio.

    Raises
    ------
    InvalidScheduleError
        If operations are missing or repeated, or the order waits for itself.

    Examples
    --------
    One worker, one microbatch, F, I and W of 1 ns each: the period is 3.

    >>> from planner.problem import Slot, Stage
    >>> from planner.schedule import parse_schedule
    >>> one = Problem(stages=(Stage(forward_ns=1, input_grad_ns=1, weight_grad_ns=1),),
    ...               slots=(Slot(stages=(0,)),), microbatches=(1,))
    >>> timed, period = time_schedule(one, parse_schedule("0/0: 0F0.0 0I0.0 0W0.0", 1, 1))
    >>> timed.to_text(times=True), period
    ('0/0: 0F0.0@0+1 0I0.0@1+1 0W0.0@2+1\n', 3)
    """
    graph = event_graph(problem, schedule)
    sync = np.array([slot.sync_ns for slot in problem.slots], dtype=np.int64)
    if problem.optimizer is Optimizer.GLOBAL:
        release = np.zeros(problem.num_slots, dtype=np.int64)
        end = _earliest_ends(graph, release)
        period = int(end.max(initial=0)) + int(sync.max())
    else:
        paths = _slot_paths(graph, sync)
        period = _ceil_largest_cycle_mean(paths)
        release = _release_times(paths, period)
        end = _earliest_ends(graph, release)
    start = end - graph.duration_ns
    origin = int(start.min(initial=0)) if len(start) == 0 else int(start.min())
    return replace(schedule, start_ns=start - origin, end_ns=end - origin), period


def durations_ns(problem: Problem, schedule: Schedule) -> IntColumn:
    """Duration of each row on the worker it stands on, shape ``(N,)``."""
    cost = np.array(
        [
            [stage.forward_ns for stage in problem.stages],
            [stage.input_grad_ns for stage in problem.stages],
            [stage.weight_grad_ns for stage in problem.stages],
        ],
        dtype=np.int64,
    )
    by_kind = np.concatenate([cost, cost[1:2] + cost[2:3]])
    result: IntColumn = by_kind[schedule.kind, schedule.stage]
    for worker, speed in problem.speeds_ppm.items():
        rows = schedule.rows(worker)
        span = slice(rows.start, rows.stop)
        # In Python's integers: a long operation times a million leaves 64 bits.
        scaled = np.array([[scaled_ns(c, speed) for c in row] for row in cost.tolist()], dtype=np.int64)
        slow = np.concatenate([scaled, scaled[1:2] + scaled[2:3]])
        result[span] = slow[schedule.kind[span], schedule.stage[span]]
    return result


def event_graph(problem: Problem, schedule: Schedule) -> EventGraph:
    """Build the precedence graph of one iteration of an order.

    Raises
    ------
    InvalidScheduleError
        If operations are missing or repeated, or the order waits for itself.
    """
    worker = schedule.worker_of_row()
    data_row, successor = _data_edges(problem, schedule)
    transfer = np.array([stage.transfer_ns for stage in problem.stages], dtype=np.int64)
    boundary = np.where(schedule.kind == Kind.F, schedule.stage - 1, schedule.stage)
    crosses = (data_row >= 0) & (worker != worker[data_row])
    lag = np.where(crosses, transfer[np.clip(boundary, 0, None)], 0)
    sent_lag = np.zeros(schedule.num_operations, dtype=np.int64)
    sent_lag[data_row[crosses]] = lag[crosses]
    first = np.zeros(schedule.num_operations, dtype=np.bool_)
    first[schedule.offsets[:-1][np.diff(schedule.offsets) > 0]] = True
    topological = _topological(first, data_row, successor)
    if len(topological) < schedule.num_operations:
        done = np.zeros(schedule.num_operations, dtype=np.bool_)
        done[topological] = True
        stuck = int(np.flatnonzero(~done)[0])
        raise InvalidScheduleError(
            f"the order waits for itself: worker {schedule.worker_at(int(worker[stuck]))} never reaches "
            f"{schedule.operation(stuck)}; {schedule.num_operations - len(topological)} operations cannot run"
        )
    return EventGraph(
        duration_ns=durations_ns(problem, schedule),
        first_on_worker=first,
        data_row=data_row,
        data_crosses=crosses,
        sent_lag_ns=sent_lag,
        previous_message=_previous_messages(worker, data_row, lag, crosses),
        topological=topological,
        slot_of_row=worker % problem.num_slots,
    )


def _data_edges(problem: Problem, schedule: Schedule) -> tuple[IntColumn, IntColumn]:
    """Row each row's data comes from, and the row on the next or previous stage that waits for it; -1 for none."""
    counts = np.array(problem.microbatches, dtype=np.int64)
    home = np.concatenate([[0], np.cumsum(counts)])
    total, stages = problem.num_microbatches, problem.num_stages
    inside = (schedule.pipeline < problem.num_pipelines) & (schedule.stage < stages)
    inside &= schedule.microbatch < counts[np.clip(schedule.pipeline, 0, problem.num_pipelines - 1)]
    if not bool(inside.all()):
        row = int(np.flatnonzero(~inside)[0])
        raise InvalidScheduleError(f"operation {schedule.operation(row)} does not exist in the problem")
    rows = np.arange(schedule.num_operations, dtype=np.int64)
    place = (home[schedule.pipeline] + schedule.microbatch) * stages + schedule.stage
    forward = _row_table(schedule, schedule.kind == Kind.F, place, total * stages)
    backward = _row_table(schedule, (schedule.kind == Kind.I) | (schedule.kind == Kind.B), place, total * stages)
    num_weight = int((schedule.kind == Kind.W).sum()) + int((schedule.kind == Kind.B).sum())
    if num_weight != total * stages:
        raise InvalidScheduleError(f"{num_weight} weight gradients (W or B); expected {total * stages}")

    data_row = np.full(schedule.num_operations, -1, dtype=np.int64)
    successor = np.full(schedule.num_operations, -1, dtype=np.int64)
    is_forward = (schedule.kind == Kind.F) & (schedule.stage > 0)
    data_row[is_forward] = forward[place[is_forward] - 1]
    is_back = (schedule.kind == Kind.I) | (schedule.kind == Kind.B)
    inner = is_back & (schedule.stage < stages - 1)
    data_row[inner] = backward[place[inner] + 1]
    last = is_back & (schedule.stage == stages - 1)
    data_row[last] = forward[place[last]]
    is_weight = schedule.kind == Kind.W
    data_row[is_weight] = backward[place[is_weight]]
    # A row may be awaited twice on its own worker (I by W, last F by its I): those wait in worker order anyway,
    # checked below, so one cross-stage successor per row is enough.
    across = is_forward | inner
    successor[data_row[across]] = rows[across]
    own = is_weight | last
    early = own & (data_row > rows)
    if bool(early.any()):
        row = int(np.flatnonzero(early)[0])
        raise InvalidScheduleError(
            f"the order waits for itself: {schedule.operation(row)} stands before {schedule.operation(int(data_row[row]))}"
        )
    return data_row, successor


def _row_table(schedule: Schedule, chosen: npt.NDArray[np.bool_], place: IntColumn, size: int) -> IntColumn:
    """Row of the chosen operation of each (microbatch, stage); each must stand exactly once."""
    table = np.full(size, -1, dtype=np.int64)
    rows = np.flatnonzero(chosen)
    if len(rows) != size:
        raise InvalidScheduleError(f"{len(rows)} forwards or backwards; expected {size}, one per microbatch and stage")
    table[place[rows]] = rows
    if bool((table < 0).any()):
        kept = np.zeros(schedule.num_operations, dtype=np.bool_)
        kept[table[table >= 0]] = True
        twice = int(rows[~kept[rows]][0])
        raise InvalidScheduleError(f"operation {schedule.operation(twice)} stands more than once")
    return table


def _previous_messages(
    worker: IntColumn, data_row: IntColumn, lag: IntColumn, crosses: npt.NDArray[np.bool_]
) -> IntColumn:
    """For each row that sends, the row that sent before it on the same directed link, where the order could matter."""
    previous = np.full(len(worker), -1, dtype=np.int64)
    if len(np.unique(lag[crosses])) <= 1:
        return previous
    receivers = np.flatnonzero(crosses)
    senders = data_row[receivers]
    order = np.lexsort((senders, worker[receivers], worker[senders]))
    senders, targets = senders[order], worker[receivers[order]]
    same = (worker[senders[1:]] == worker[senders[:-1]]) & (targets[1:] == targets[:-1])
    previous[senders[1:][same]] = senders[:-1][same]
    return previous


@njit(cache=True)
def _topological(first: npt.NDArray[np.bool_], data_row: IntColumn, successor: IntColumn) -> Any:
    """Kahn's algorithm over worker order and cross-stage data; shorter than the input where a cycle waits."""
    count = len(first)
    missing = np.zeros(count, dtype=np.int8)
    for row in range(count):
        if not first[row]:
            missing[row] += 1
        if data_row[row] >= 0 and successor[data_row[row]] == row:
            missing[row] += 1
    order = np.empty(count, dtype=np.int64)
    tail = 0
    for row in range(count):
        if missing[row] == 0:
            order[tail] = row
            tail += 1
    head = 0
    while head < tail:
        row = order[head]
        head += 1
        if row + 1 < count and not first[row + 1]:
            missing[row + 1] -= 1
            if missing[row + 1] == 0:
                order[tail] = row + 1
                tail += 1
        after = successor[row]
        if after >= 0:
            missing[after] -= 1
            if missing[after] == 0:
                order[tail] = after
                tail += 1
    return order[:tail]


@njit(cache=True)
def _pass(
    topological: IntColumn,
    first: npt.NDArray[np.bool_],
    duration: IntColumn,
    data_row: IntColumn,
    crosses: npt.NDArray[np.bool_],
    sent_lag: IntColumn,
    previous_message: IntColumn,
    slot_of_row: IntColumn,
    release: IntColumn,
    end: IntColumn,
    departed: IntColumn,
) -> None:
    """Longest path to every row's end from the slots' releases; ``departed`` is when the row's message has arrived."""
    for row in topological:
        start = release[slot_of_row[row]] if first[row] else end[row - 1]
        source = data_row[row]
        if source >= 0:
            start = max(start, departed[source] if crosses[row] else end[source])
        end[row] = start + duration[row] if start > _NEVER // 2 else start
        # A message arrives no earlier than the one sent before it on its link, by an earlier row of the same worker.
        departed[row] = end[row] + sent_lag[row]
        if previous_message[row] >= 0:
            departed[row] = max(departed[row], departed[previous_message[row]])


def _earliest_ends(graph: EventGraph, release: IntColumn) -> IntColumn:
    """End of each row when slots are released at the given times, shape ``(N,)``."""
    end = np.empty(len(graph.duration_ns), dtype=np.int64)
    departed = np.empty(len(graph.duration_ns), dtype=np.int64)
    _pass(
        graph.topological,
        graph.first_on_worker,
        graph.duration_ns,
        graph.data_row,
        graph.data_crosses,
        graph.sent_lag_ns,
        graph.previous_message,
        graph.slot_of_row,
        release,
        end,
        departed,
    )
    return end


def _slot_paths(graph: EventGraph, sync: IntColumn) -> IntColumn:
    """``A[s, t]``: longest path from the release of slot ``s`` to the end of the sync of slot ``t``, shape ``(P, P)``."""
    num_slots = len(sync)
    paths = np.full((num_slots, num_slots), _NEVER, dtype=np.int64)
    for s in range(num_slots):
        release = np.full(num_slots, _NEVER, dtype=np.int64)
        release[s] = 0
        end = _earliest_ends(graph, release)
        np.maximum.at(paths[s], graph.slot_of_row, end)
        paths[s, paths[s] > _NEVER // 2] += sync[paths[s] > _NEVER // 2]
    return paths


def _ceil_largest_cycle_mean(paths: IntColumn) -> int:
    """Least integer ``T`` for which no cycle of ``paths - T`` is positive, by bisection with Bellman and Ford."""
    low, high = int(paths.diagonal().max(initial=0)), int(paths.max(initial=0))
    low = max(low, 0)
    while low < high:
        middle = (low + high) // 2
        if _has_positive_cycle(paths, middle):
            low = middle + 1
        else:
            high = middle
    return low


def _relax(paths: IntColumn, period: int, release: IntColumn) -> IntColumn:
    """One round of ``x[t] = max(x[t], x[s] + A[s, t] - period)``."""
    reach = np.where(paths > _NEVER // 2, paths - period, _NEVER)
    step: IntColumn = np.maximum(release, (release[:, None] + reach).max(axis=0))
    return step


def _has_positive_cycle(paths: IntColumn, period: int) -> bool:
    release = np.zeros(len(paths), dtype=np.int64)
    for _ in range(len(paths)):
        step = _relax(paths, period, release)
        if np.array_equal(step, release):
            return False
        release = step
    return not np.array_equal(_relax(paths, period, release), release)


def _release_times(paths: IntColumn, period: int) -> IntColumn:
    """Least release times, at least 0, with which every slot's window fits the period, shape ``(P,)``."""
    release = np.zeros(len(paths), dtype=np.int64)
    for _ in range(len(paths)):
        release = _relax(paths, period, release)
    return release
