"""Bound by rank: how soon the k-th of all microbatches can be back, and what that leaves to do (docs/model.md, (39)-(41)).

The other bounds follow one worker. Where a slot has lost workers, the microbatches of all pipelines pass through fewer of
them and come back later one after the other, whichever they are. So here starts and ends are counted by rank over a whole slot.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.bounds.bound import Bound
from planner.bounds.idle import StageWorker, fastest_worker
from planner.bounds.rank_times import MOST_TIME_NS, backward_ends, forward_starts, longest_run, serial_ns, table_of
from planner.bounds.view import ProblemView

_MOST_CHANGES = 16
"""Where the last backwards change with the period more often before one is possible, what is refuted by then is the bound."""


def ranks_bound(view: ProblemView, floor_ns: int) -> Bound | None:
    """``T >= d(k) - Q + r(ceil((N - k + 1) / n)) + sync`` for the rank ``k`` in the first stage's slot where it is largest.

    ``floor_ns`` is a period below which none is possible. ``None`` where times do not fit into 64 bits, and where all slots have
    as many workers: there the bounds on one worker say as much.
    """
    stages = range(len(view.slot_of_stage))
    workers = [fastest_worker(view, v) for v in stages]
    counts = [sum(view.slots[s].counts) for s in view.slot_of_stage]
    if serial_ns(view, workers) > MOST_TIME_NS or len(set(counts)) == 1:
        return None
    slots = [view.slots[s] for s in view.slot_of_stage]
    first, sync = workers[0], slots[0].sync_ns
    left = table_of(first.remaining_ns, longest_run(view.total, counts[0]))
    last = -(-np.arange(view.total, 0, -1, dtype=np.int64) // counts[0])
    later_ns = left[np.minimum(last, len(left)) - 1] - first.backward_ns + sync
    starts = forward_starts(view, workers, counts)
    waves = [_waves(view, v, worker, count) for v, (worker, count) in enumerate(zip(workers, counts, strict=True))]
    # No period below the floor is possible, nor any below the value up to which the waves stay as they are.
    period, refuted = floor_ns, 0
    for _ in range(_MOST_CHANGES):
        ends = backward_ends(view, workers, counts, starts, [wave.at(period) for wave in waves])[0]
        worst = int((ends + later_ns).argmax())
        value = int(ends[worst] + later_ns[worst])
        change = min((at for wave in waves for at in wave.changes if at > period), default=value)
        if value <= change:
            refuted = max(refuted, value)
            break
        period = refuted = change
    begins = int(ends[worst]) - first.backward_ns
    return Bound(
        name="ranks",
        value_ns=refuted,
        slot=view.slot_of_stage[0],
        detail=f"backward {worst + 1} of {view.total} starts {begins} ns after the first F at the earliest; "
        f"{refuted - sync - begins} ns for it and the later ones on {counts[0]} workers + {sync} ns sync",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waves:
    """Last backwards of a stage's busiest workers, which come in step where the period leaves them little room.

    Parameters
    ----------
    tight
        How many workers carry ``q`` at least, none more.
    periods
        ``periods[x - 1]``: least period with which ``x`` backwards of a worker may follow its last F.
    loose
        From this period on a worker may carry more.
    ends
        ``ends[x - 1]``: earliest end of the ``1..x``-th last backward of a tight worker where at least ``x`` follow its last F.
    """

    tight: int
    periods: tuple[int, ...]
    loose: int
    ends: tuple[tuple[int, ...], ...]

    @property
    def changes(self) -> tuple[int, ...]:
        """Periods at which :meth:`at` may change."""
        return (*self.periods, self.loose) if self.periods else ()

    def at(self, period: int) -> tuple[int, tuple[int, ...]]:
        """Tight workers and the earliest ends of their last backwards, last first, for periods from this one up to a change."""
        if not self.periods or period >= self.loose:
            return 0, ()
        return self.tight, self.ends[next((x for x, at in enumerate(self.periods) if at <= period), len(self.ends) - 1)]


def _waves(view: ProblemView, stage: int, worker: StageWorker, count: int) -> _Waves:
    """Equation (42): what a period says of the last backwards at a stage, times from the first slot's start."""
    load = -(-view.total // count)
    each = worker.input_grad_ns
    if not worker.splittable or each == 0:
        return _Waves(tight=0, periods=(), loose=0, ends=())
    # As many as it takes to fill the round trip: more never asks for a shorter period, since they only leave less room for W.
    most = min(worker.in_flight(load), worker.round_trip_ns // each + 2)
    begins = view.forward_ns(0, stage)
    around = begins + view.backward_ns(stage, 0) + view.least_weight_ns(0) + view.slots[view.slot_of_stage[0]].sync_ns
    warm_up = worker.warm_up_ns(load) if load > worker.in_flight(load) else 0
    owed = [worker.owed_ns(load, pending) for pending in range(1, most + 1)]
    work = load * worker.microbatch_ns + warm_up
    return _Waves(
        tight=view.total - count * (load - 1),
        periods=tuple(around + work - owed[x] + max(0, worker.round_trip_ns - x * each) for x in range(most)),
        loose=around + worker.last_backward_ns(load + 1),
        ends=tuple(tuple(begins + work - owed[x] - j * each for j in range(x + 1)) for x in range(most)),
    )
