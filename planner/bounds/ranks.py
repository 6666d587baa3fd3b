"""Bound by rank: how soon the k-th of all microbatches can be back, and what that leaves to do (docs/model.md, (39)-(41)).

The other bounds follow one worker. Where a slot has lost workers, the microbatches of all pipelines pass through fewer of
them and come back later one after the other, whichever they are. So here starts and ends are counted by rank over a whole slot.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from planner.bounds.bound import Bound
from planner.bounds.idle import StageWorker, fastest_worker
from planner.bounds.view import ProblemView
from planner.schedule import IntColumn

_MOST_RUN = 128
"""Longest run of microbatches on one worker that is looked at; longer ones are what the bound across slots counts."""

_MOST_TIME_NS = 2**60
"""Problems whose microbatches take longer one after the other are left out: times are 64-bit integers here."""


def ranks_bound(view: ProblemView) -> Bound | None:
    """``T >= d(k) - Q + r(ceil((N - k + 1) / n)) + sync`` for the rank ``k`` in the first stage's slot where it is largest.

    ``None`` where times do not fit into 64 bits, and where all slots have as many workers: there the bounds on one worker say as
    much.
    """
    stages = range(len(view.slot_of_stage))
    workers = [fastest_worker(view, v) for v in stages]
    counts = [sum(view.slots[s].counts) for s in view.slot_of_stage]
    serial = sum(worker.microbatch_ns for worker in workers) + 2 * sum(view.transfer_ns)
    if serial * view.total > _MOST_TIME_NS or len(set(counts)) == 1:
        return None
    back = _backward_ends(view, workers, counts)
    first, sync = workers[0], view.slots[view.slot_of_stage[0]].sync_ns
    left = _table(first.remaining_ns, _longest_run(view.total, counts[0]))
    last = -(-np.arange(view.total, 0, -1, dtype=np.int64) // counts[0])
    ends: IntColumn = back - first.backward_ns + left[np.minimum(last, len(left)) - 1]
    worst = int(ends.argmax())
    begins, value = int(back[worst]) - first.backward_ns, int(ends[worst])
    return Bound(
        name="ranks",
        value_ns=value + sync,
        slot=view.slot_of_stage[0],
        detail=f"backward {worst + 1} of {view.total} starts {begins} ns after the first F at the earliest; {value - begins} ns "
        f"for it and the later ones on {counts[0]} workers + {sync} ns sync",
    )


def _backward_ends(view: ProblemView, workers: list[StageWorker], counts: list[int]) -> IntColumn:
    """Earliest end of the backward of each rank at stage 0, shape ``(N,)``; time 0 is its slot's first start."""
    total, last = view.total, len(workers) - 1
    starts = [np.zeros(total, dtype=np.int64)]
    for v, (worker, count) in enumerate(zip(workers, counts, strict=True)):
        begun = _soonest(starts[v], count, worker.nth_forward_ns)
        starts[v] = begun
        if v < last:
            starts.append(begun + worker.forward_ns + view.transfer_ns[v])
    arrived = starts[last] + workers[last].forward_ns
    for v in range(last, -1, -1):
        ended = np.maximum(
            _soonest(arrived, counts[v], workers[v].backward_run_ns),
            _soonest(starts[v], counts[v], workers[v].last_backward_ns),
        )
        arrived = ended + (view.transfer_ns[v - 1] if v > 0 else 0)
    return arrived


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
    runs = _table(run_ns, _longest_run(len(begin), workers))
    soonest: IntColumn = begin + runs[0]
    for number, run in enumerate(runs[1:].tolist(), start=1):
        np.maximum(soonest[number * workers :], begin[: -number * workers] + run, out=soonest[number * workers :])
    return soonest


def _longest_run(total: int, workers: int) -> int:
    return min(_MOST_RUN, -(-total // workers))


def _table(run_ns: Callable[[int], int], longest: int) -> IntColumn:
    """``run_ns`` of 1 to ``longest``; more never takes less, even where the formula knows less about it."""
    table: IntColumn = np.array([run_ns(run) for run in range(1, longest + 1)], dtype=np.int64)
    np.maximum.accumulate(table, out=table)
    return table
