"""Bound by supply: what a slot cannot run yet, it runs later (docs/model.md, equation (43)).

The warm-up bound waits for a worker's first backward. But where memory is full in the first slots too, the next F comes only
after that gradient has gone all the way up and a new microbatch all the way down; until then there is less to do than time
to do it in. So here the work that can have reached a slot by some time is summed over ranks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

import numpy as np

from planner.bounds.bound import Bound
from planner.bounds.idle import StageWorker, fastest_worker
from planner.bounds.rank_times import MOST_TIME_NS, backward_ends, forward_starts, serial_ns
from planner.bounds.view import ProblemView
from planner.schedule import IntColumn


@dataclass(frozen=True, slots=True, kw_only=True)
class _Supply:
    """What the workers of a stage's slot must leave idle early on, all together.

    Parameters
    ----------
    starts
        Shape ``(N,)``: earliest start of the F of each rank.
    at_ns
        Shape ``(n,)``: some times after the first slot's start, ascending.
    idle_ns
        Shape ``(n,)``: least time that the workers together have been idle by then.
    workers
        How many they are.
    """

    starts: IntColumn
    at_ns: IntColumn
    idle_ns: IntColumn
    workers: int

    def least(self, until_ns: int) -> tuple[int, int]:
        """Most idle time that is known up to a time, and when that is."""
        known = int(np.searchsorted(self.at_ns, until_ns, side="right"))
        if known == 0:
            return 0, 0
        best = int(self.idle_ns[:known].argmax())
        return int(self.idle_ns[best]), int(self.at_ns[best])


def supply_bound(view: ProblemView, floor_ns: int) -> Bound | None:
    """``T >= (N (F+I+W) + idle) / n - V + bwd(b..0) + W_0 + sync`` for the slot ``b`` where it is largest.

    ``floor_ns`` is a period below which none is possible; ``None`` where nothing larger comes out, or times do not fit into
    64 bits.
    """
    stages = range(len(view.slot_of_stage))
    workers = [fastest_worker(view, v) for v in stages]
    counts = [sum(view.slots[s].counts) for s in view.slot_of_stage]
    if serial_ns(view, workers) > MOST_TIME_NS:
        return None
    # A common divisor of the numbers of workers makes blocks of equal ranks, of which one of each is enough.
    # Ranks left over, fewer than a block, are on workers that have run one more than any `least` below: after all that counts.
    block = gcd(*counts)
    few, fewer = replace(view, total=view.total // block), [count // block for count in counts]
    if few.total == 0:
        return None
    starts = forward_starts(few, workers, fewer)
    ends = backward_ends(few, workers, fewer, starts)
    best: Bound | None = None
    for v in stages:
        if v > 0 and len(view.slots[view.slot_of_stage[v]].stages) == 1 and workers[v].microbatch_ns > 0:
            supply = _supply(workers[v], fewer[v], starts[v], ends[v])
            bound = _bound(view, v, workers[v], supply, block, max(floor_ns, 0 if best is None else best.value_ns))
            best = best if bound is None else bound
    return best


def _supply(worker: StageWorker, workers: int, starts: IntColumn, ends: IntColumn) -> _Supply:
    """Idle time at the moments at which an F or a backward comes in: only there does it stop growing."""
    weight_ns = worker.weight_grad_ns if worker.splittable else 0
    releases = [np.maximum.accumulate(starts), np.maximum.accumulate(ends - worker.backward_ns)]
    at: IntColumn = np.unique(np.concatenate(releases))
    idle = workers * at
    for release, duration in (
        (releases[0], worker.forward_ns),
        (releases[1], worker.backward_ns),
        (releases[1] + worker.backward_ns, weight_ns),
    ):
        idle -= _elapsed(release, at) - _elapsed(release + duration, at)
    return _Supply(starts=releases[0], at_ns=at, idle_ns=idle, workers=workers)


def _elapsed(since: IntColumn, at: IntColumn) -> IntColumn:
    """Time that has passed at each moment since all of the ascending times before it, summed."""
    before = np.searchsorted(since, at)
    total: IntColumn = before * at - np.concatenate([[0], np.cumsum(since)])[before]
    return total


def _bound(
    view: ProblemView, stage: int, worker: StageWorker, supply: _Supply, block: int, floor_ns: int
) -> Bound | None:
    """Equation (43) for one stage; ``None`` where it says no more than ``floor_ns``."""
    slot = view.slots[view.slot_of_stage[stage]]
    first_sync = view.slots[view.slot_of_stage[0]].sync_ns
    workers = supply.workers * block
    around = view.backward_ns(stage, 0) + view.least_weight_ns(0) + first_sync
    begin = view.forward_ns(0, stage)

    def refuted(period: int) -> tuple[int, int, int]:
        """With loads that are possible below a period: least period, idle time of a worker, and until when it is counted."""
        most = (period - slot.sync_ns) // worker.microbatch_ns
        while most > 1 and begin + worker.last_backward_ns(most) + around > period:
            most -= 1
        least = view.total - (workers - 1) * most
        if least < 1:
            return 0, 0, 0
        # Up to the end of its last F, no time that a worker idles is the tail's; that F is at least of rank `least` in the slot.
        own = begin + worker.nth_forward_ns(least)
        idle, at = supply.least(max(own, int(supply.starts[-(-least // block) - 1])) + worker.forward_ns)
        work = view.total * worker.microbatch_ns + block * idle
        return -(-work // workers) - worker.credit_ns(most) + around, block * idle // workers, at

    # Whoever assumes a shorter period than this one knows these loads, and arrives at the second value.
    value, idle, at = refuted(max(floor_ns, refuted(floor_ns)[0]))
    if value <= floor_ns:
        return None
    return Bound(
        name="supply",
        value_ns=value,
        slot=slot.index,
        detail=f"by {at} ns after the first F each of its {workers} workers has idled {idle} ns on average, as too little "
        f"can have come; {around} ns after its last backward + {first_sync} ns sync",
    )
