"""Idling that no worker can avoid, where its slot holds several stages (docs/model.md, section 6.6).

Which stages' microbatches a worker carries is open, so memory is filled with whatever is worth most per byte.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import floor, gcd

from planner.bounds.view import ProblemView, SlotView, WorkerClass


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkIdle:
    """What holds for every worker of a slot with several stages, in nanoseconds.

    Parameters
    ----------
    first_backward_ns
        ``R``: no backward of the slot starts earlier than this after the slot's first operation.
    chain_ns
        From the first F of a microbatch in the slot to the end of its last W there.
    warm_up_ns
        Idling before that: ``R`` less the forwards that fit into memory.
    waiting_ns
        Idling before one of the slot's later stages has anything to do, where the slot has one live worker; else 0. That
        worker's last F is of the last stage, so this idling always lies before it.
    tail_ns
        Idling from a worker's last F to the end of the slot's last operation.
    """

    first_backward_ns: int
    chain_ns: int
    warm_up_ns: int
    waiting_ns: int
    tail_ns: int


def chunk_idle(view: ProblemView, slot: SlotView) -> ChunkIdle:
    """Unavoidable idling of a slot's workers, on whichever of its speed classes it is least."""
    first, last = slot.first_stage, slot.last_stage
    first_backward = view.forward_ns(first, last) + view.stage_forward_ns(last) + view.round_trip_ns[last]
    back = view.stage_backward_ns(last) + view.backward_ns(last, first) + view.least_weight_ns(first)
    chain = view.round_trip_ns[last] + back
    warm_up, tail = [], []
    for group in slot.classes:
        forwards = most_value(slot.capacity_bytes, zip(slot.activation_bytes, group.forward_ns, strict=True))
        backlog = most_value(slot.capacity_bytes, _backlog_items(slot, group))
        warm_up.append(0 if forwards is None else max(0, first_backward - forwards))
        tail.append(0 if backlog is None else max(0, chain - backlog))
    return ChunkIdle(
        first_backward_ns=first_backward,
        chain_ns=first_backward + back,
        warm_up_ns=min(warm_up),
        waiting_ns=floor(waiting_ns(view, slot)) if sum(slot.counts) == 1 else 0,
        tail_ns=min(tail),
    )


def waiting_ns(view: ProblemView, slot: SlotView) -> Fraction:
    """Idling before a later stage has anything to do, of a worker with an even share of the microbatches; ``H`` of (44)."""
    load, done, most = Fraction(view.total, sum(slot.counts)), 0, Fraction(0)
    for at, stage in enumerate(slot.stages):
        most = max(most, view.forward_ns(slot.first_stage, stage) - load * done)
        done += slot.classes[0].forward_ns[at]
    return most


def _backlog_items(slot: SlotView, group: WorkerClass) -> Iterable[tuple[int, int]]:
    """Bytes held and time left for each state a microbatch may be in after its F: before I, and between I and W."""
    for at in range(len(slot.stages)):
        yield slot.activation_bytes[at], group.input_grad_ns[at] + group.weight_grad_ns[at]
        if slot.splittable[at]:
            yield slot.weight_grad_bytes[at], group.weight_grad_ns[at]


def most_owed_ns(slot: SlotView, group: WorkerClass) -> int | None:
    """Most W that a worker may owe after its last backward; ``None`` where memory does not limit it."""
    items = [
        (slot.weight_grad_bytes[at], group.weight_grad_ns[at]) for at in range(len(slot.stages)) if slot.splittable[at]
    ]
    return most_value(slot.capacity_bytes, items)


def most_credit_ns(view: ProblemView, slot: SlotView, group: WorkerClass) -> int | None:
    """Most W that a worker may owe after its last backward, less its idling after its last F; ``V`` of (45).

    It may be negative; ``None`` where memory does not limit it.
    """
    if slot.capacity_bytes is None:
        return None
    # A worker that has its slot to itself ends with an F of the last stage, and holds that microbatch at all its stages.
    together = sum(slot.counts) == 1
    ends = [range(len(slot.stages))] if together else [[at] for at in range(len(slot.stages))]
    limits = []
    for held in ends:
        room = slot.capacity_bytes - sum(slot.activation_bytes[at] for at in held)
        owed = sum(group.weight_grad_ns[at] for at in held if slot.splittable[at])
        round_trip = view.round_trip_ns[slot.stages[held[-1]]]
        items = list(_held_items(slot, group))
        # For every share of the I that counts as time well spent this bounds the difference; the least of them is the best.
        filled = [(share, _most(room, [(size, w + share * i) for size, w, i in items])) for share in _shares(items)]
        bounds = [owed + most - share * round_trip for share, most in filled if most is not None]
        if not bounds:
            return None
        limits.append(floor(min(bounds)))
    return max(limits)


def _held_items(slot: SlotView, group: WorkerClass) -> Iterable[tuple[int, int, int]]:
    """Bytes held, W that may be owed and backward that may run meanwhile, for each state after an F."""
    for at in range(len(slot.stages)):
        input_grad, weight = group.input_grad_ns[at], group.weight_grad_ns[at]
        if slot.splittable[at]:
            yield slot.activation_bytes[at], weight, input_grad
            yield slot.weight_grad_bytes[at], weight, 0
        else:
            yield slot.activation_bytes[at], 0, input_grad + weight


def _shares(items: Iterable[tuple[int, int, int]]) -> list[Fraction]:
    """Shares of the backward at which the densest item may change, 0 and 1 among them."""
    lines = {(Fraction(w, size), Fraction(i, size)) for size, w, i in items if size > 0}
    ties = {(w - v) / (j - i) for w, i in lines for v, j in lines if i != j}
    return [Fraction(0), *sorted(tie for tie in ties if 0 < tie < 1), Fraction(1)]


def most_value(room_bytes: int | None, items: Iterable[tuple[int, int]]) -> int | None:
    """Bound the value that fits: any number of each ``(bytes, value)`` in ``room_bytes``.

    The room is rounded down to a multiple of the sizes' common divisor and filled with the densest kind, in fractions;
    exact where all kinds have equal bytes. ``None`` where the value has no limit.

    Examples
    --------
    >>> most_value(7, [(2, 10), (4, 12)])
    30
    """
    most = _most(room_bytes, items)
    return None if most is None else floor(most)


def _most(room_bytes: int | None, items: Iterable[tuple[int, int | Fraction]]) -> Fraction | None:
    valued = [(size, value) for size, value in items if value > 0]
    if not valued:
        return Fraction(0)
    if room_bytes is None or any(size == 0 for size, _ in valued):
        return None
    step = gcd(*(size for size, _ in valued))
    room = room_bytes // step * step
    return room * max(Fraction(value) / size for size, value in valued)


def splits_warm_up_from_tail(slot: SlotView, work_ns: int) -> bool:
    """Whether a worker carrying ``work_ns`` must hold more bytes over the iteration than fit into memory at once.

    Its last F then waits for one of its backwards, so warm-up and tail lie apart. ``work_ns`` of the kind that needs the
    fewest bytes is the least it can hold.
    """
    if slot.capacity_bytes is None:
        return False
    for group in slot.classes:
        densities = [
            Fraction(size, cost)
            for size, cost in zip(slot.activation_bytes, group.microbatch_ns, strict=True)
            if cost > 0
        ]
        if not densities or work_ns * min(densities) <= slot.capacity_bytes:
            return False
    return True
