"""Bound by late gradients: the busy workers of a late slot end in step, and an early slot cannot keep up.

Equation (36) of docs/model.md. Where the live workers of slot ``b`` have so much to do that little but I fits between their
last F and its own I, they pass on their last gradients in step, and the workers of slot ``a`` need I and W for each before
its window ends.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.bounds.bound import Bound
from planner.bounds.idle import StageWorker, stage_workers
from planner.bounds.view import ProblemView, SlotView


@dataclass(frozen=True, slots=True, kw_only=True)
class _LateSlot:
    """Slot ``b``: one stage, splittable, ``workers`` live ones of one speed, of which ``tight`` carry ``load`` at least.

    ``tight`` of them carry ``load`` exactly while none can carry one more: ``least_ns`` is the time to the last backward with
    ``load``, ``more_ns`` with one more.
    """

    worker: StageWorker
    workers: int
    load: int
    tight: int
    least_ns: int
    more_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """An early slot ``a`` with one stage, and a late slot ``b``.

    ``around_ns`` is what the period holds beside the time up to the last backward in ``b``: the way there and back, and W and
    sync in ``a``.
    """

    late: _LateSlot
    early_workers: int
    early_backward_ns: int
    around_ns: int

    @property
    def base_ns(self) -> int:
        """The bound across the two slots, which late gradients may raise."""
        return self.around_ns + self.late.least_ns

    def is_impossible(self, period_ns: int) -> bool:
        """Whether the argument refutes a period of at least ``base_ns``; ``False`` says nothing."""
        room = period_ns - self.around_ns
        if room >= self.late.more_ns:
            return False  # some may carry more, so the others need not be that busy
        trailing = self._trailing(self.late.load, room)
        return trailing is None or self._overrun(*trailing)

    def _trailing(self, load: int, room: int) -> tuple[int, int] | None:
        """Fewest I after a worker's last F, and the time that anything else takes from then on; ``None`` if there is no way."""
        late = self.late.worker
        spare = room - load * late.microbatch_ns
        if load > late.in_flight(load):
            spare -= late.warm_up_ns(load)
        for pending in range(1, late.in_flight(load) + 1):
            other = spare + late.owed_ns(load, pending)
            if other < 0:
                return None
            if (pending - 1) * late.input_grad_ns + other >= late.round_trip_ns:
                return pending, other
        return None

    def _overrun(self, trailing: int, other: int) -> bool:
        """Whether ``a``'s workers cannot finish I and W of the last gradients, ``trailing`` from each tight worker.

        The ``j``-th last gradients leave at most ``(j - 1) I_b + other`` before the last could. So, backwards from the end of its
        window, ``a`` may work on those of rank ``j`` only within ``I + W + other + (j - 1) I_b``, each on one worker at a time.
        """
        tight, workers, length = self.late.tight, self.early_workers, self.early_backward_ns
        steps = 0
        for rank in range(1, trailing + 1):
            capacity = min(workers, tight * rank) * (length + other) + steps * self.late.worker.input_grad_ns
            if tight * rank * length > capacity:
                return True
            steps += min(workers, tight * rank)
        return False


def late_gradients_bound(view: ProblemView, slot: SlotView) -> Bound | None:
    """Largest period, plus one, that late gradients refute; ``None`` where they add nothing to the bound across slots.

    Only for slots with a single stage, splittable, whose live workers run at one speed.
    """
    if len(slot.stages) > 1 or len(slot.classes) > 1 or not slot.splittable[0]:
        return None
    late = _late_slot(view, slot)
    best: Bound | None = None
    for other in view.slots:
        if len(other.stages) > 1 or other.first_stage >= slot.first_stage:
            continue
        pair = _pair(view, other, slot, late)
        value = _first_possible(pair)
        if value > pair.base_ns and (best is None or value > best.value_ns):
            best = Bound(
                name="late_gradients",
                value_ns=value,
                slot=slot.index,
                detail=f"{late.tight} workers of slot {slot.index} end in step; {pair.early_workers} of slot {other.index} need "
                f"{value - pair.base_ns} ns more than the {pair.base_ns} ns across the two slots",
            )
    return best


def _late_slot(view: ProblemView, slot: SlotView) -> _LateSlot:
    """With loads of at most ``q``, no more than ``n q - N`` workers can carry less; all others carry ``q``."""
    (worker,) = stage_workers(view, slot)
    workers = sum(slot.counts)
    load = -(-view.total // workers)
    return _LateSlot(
        worker=worker,
        workers=workers,
        load=load,
        tight=view.total - workers * (load - 1),
        least_ns=worker.last_backward_ns(load),
        more_ns=worker.last_backward_ns(load + 1),
    )


def _pair(view: ProblemView, early: SlotView, slot: SlotView, late: _LateSlot) -> _Pair:
    source, target = early.first_stage, slot.first_stage
    fastest = early.classes[0]
    around = view.forward_ns(source, target) + view.backward_ns(target, source) + view.least_weight_ns(source)
    return _Pair(
        late=late,
        early_workers=sum(early.counts),
        early_backward_ns=fastest.input_grad_ns[0] + fastest.weight_grad_ns[0],
        around_ns=around + early.sync_ns,
    )


def _first_possible(pair: _Pair) -> int:
    """One more than the largest period refuted, by bisection; ``base_ns`` where that is not refuted."""
    if not pair.is_impossible(pair.base_ns):
        return pair.base_ns
    refuted, open_end = pair.base_ns, max(pair.base_ns + 1, pair.around_ns + pair.late.more_ns)
    while open_end - refuted > 1:
        middle = (refuted + open_end) // 2
        if pair.is_impossible(middle):
            refuted = middle
        else:
            open_end = middle
    return refuted + 1
