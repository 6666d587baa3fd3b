"""How soon the F and the backward of each rank come at each stage (docs/model.md, equations (39) and (40))."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from planner.bounds.idle import StageWorker
from planner.bounds.view import ProblemView
from planner.schedule import IntColumn

MOST_TIME_NS = 2**60
"""Problems whose microbatches take longer one after the other are left out: times are 64-bit integers here."""

_MOST_RUN = 128
"""Longest run of microbatches on one worker that is looked at; longer ones are what the bound across slots counts."""


def serial_ns(view: ProblemView, workers: list[StageWorker]) -> int:
    """Time of all microbatches one after the other."""
    return (sum(worker.microbatch_ns for worker in workers) + 2 * sum(view.transfer_ns)) * view.total


def forward_starts(view: ProblemView, workers: list[StageWorker], counts: list[int]) -> list[IntColumn]:
    """Earliest start of the F of each rank at each stage, shape ``(N,)`` each; time 0 is the first slot's start."""
    arrived, starts = np.zeros(view.total, dtype=np.int64), []
    for v, (worker, count) in enumerate(zip(workers, counts, strict=True)):
        starts.append(_soonest(arrived, count, worker.nth_forward_ns))
        arrived = starts[v] + worker.forward_ns + (view.transfer_ns[v] if v + 1 < len(workers) else 0)
    return starts


def backward_ends(
    view: ProblemView,
    workers: list[StageWorker],
    counts: list[int],
    starts: list[IntColumn],
    waves: list[tuple[int, tuple[int, ...]]] | None = None,
) -> list[IntColumn]:
    """Earliest end of the backward of each rank at each stage, shape ``(N,)`` each; time 0 is the first slot's start.

    ``waves`` tells of each stage how many of its last backwards come in step, and their earliest ends, last first.
    """
    last = len(workers) - 1
    arrived, found = starts[last] + workers[last].forward_ns, []
    for v in range(last, -1, -1):
        ended = np.maximum(
            _soonest(arrived, counts[v], workers[v].backward_run_ns),
            _soonest(starts[v], counts[v], workers[v].last_backward_ns),
        )
        tight, ends = waves[v] if waves is not None else (0, ())
        for number, end in enumerate(ends, start=1):
            ended[-tight * number :] = np.maximum(ended[-tight * number :], end)
        found.append(ended)
        arrived = ended + (view.transfer_ns[v - 1] if v > 0 else 0)
    return found[::-1]


def _soonest(begin: IntColumn, workers: int, run_ns: Callable[[int], int]) -> IntColumn:
    """Earliest time of each rank where ranks ``m..k`` begin no sooner than ``begin[m]`` and share ``workers`` workers.

    One worker has at least ``ceil((k - m + 1) / workers)`` of them, which takes it ``run_ns`` of that number from the first's
    beginning; the largest ``m`` for each number says most.

    Examples
    --------
    Three at once on two workers, 5 ns each:

    >>> _soonest(np.zeros(3, dtype=np.int64), 2, lambda run: 5 * run).tolist()
    [5, 5, 10]
    """
    runs = table_of(run_ns, longest_run(len(begin), workers))
    soonest: IntColumn = begin + runs[0]
    for number, run in enumerate(runs[1:].tolist(), start=1):
        np.maximum(soonest[number * workers :], begin[: -number * workers] + run, out=soonest[number * workers :])
    return soonest


def longest_run(total: int, workers: int) -> int:
    """Longest run of ranks on one worker that is looked at where so many workers share ``total``."""
    return min(_MOST_RUN, -(-total // workers))


def table_of(run_ns: Callable[[int], int], longest: int) -> IntColumn:
    """``run_ns`` of 1 to ``longest``; more never takes less, even where the formula knows less about it."""
    table: IntColumn = np.array([run_ns(run) for run in range(1, longest + 1)], dtype=np.int64)
    np.maximum.accumulate(table, out=table)
    return table
