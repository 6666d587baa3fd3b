"""Proof that programs do not deadlock, under rendezvous semantics.

Posting a receive never blocks. A send blocks until its receive is posted at the peer. A computation whose message is received
waits until it was sent. Collectives wait for the whole slot, the global barrier for every live worker. The programs
are run to their end in this way without times: which worker runs first makes no difference, since completing an instruction
never disables another, so one run that ends proves that every run does, and one that stops shows a set that always waits.

Before that, every result that an instruction computes on or sends must be there at all: computed earlier by the same worker,
or received by it. And whoever a collective waits for must join it, once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from planner.errors import DeadlockError
from planner.operation import Kind
from planner.programs import Opcode, Programs
from planner.schedule import IntColumn

_RECEIVE, _COMPUTE, _SEND = int(Opcode.RECEIVE), int(Opcode.COMPUTE), int(Opcode.SEND)
_ALL_REDUCE, _BARRIER = int(Opcode.ALL_REDUCE), int(Opcode.GLOBAL_BARRIER)
_NOT_SENT = 2


def require_deadlock_free(programs: Programs) -> None:
    """Check that all programs run to their end, and that each pair's receives stand in send order.

    Raises
    ------
    DeadlockError
        Naming the workers that wait for each other and the instruction each waits at, the first message out of order,
        the first instruction that needs a result its worker has neither computed nor received, or a worker that does not
        join a collective that others wait at.
    """
    _require_send_order(programs)
    _require_inputs(programs)
    _require_collectives(programs)
    message = _message_ids(programs)
    count = int(message.max(initial=-1)) + 1
    is_receive = programs.opcode == Opcode.RECEIVE
    receiver = np.full(count, -1, dtype=np.int64)
    worker = np.repeat(np.arange(len(programs.offsets) - 1), np.diff(programs.offsets))
    receiver[message[is_receive]] = worker[is_receive]
    live_in_slot = np.bincount(_live_workers(programs) % programs.num_slots, minlength=programs.num_slots)
    at = _run(
        programs.offsets,
        programs.opcode,
        programs.peer,
        programs.stage,
        message,
        receiver,
        live_in_slot.astype(np.int64),
        programs.num_stages,
    )
    stuck = np.flatnonzero(at < programs.offsets[1:])
    if len(stuck):
        raise DeadlockError(_explain(programs, at, message, worker))


def _message_ids(programs: Programs) -> IntColumn:
    """Number of the message that each row sends, receives or computes on, shape ``(R,)``; others get -1."""
    home = np.concatenate([[0], np.cumsum(programs.microbatches)])
    backward = np.where((programs.kind == Kind.I) | (programs.kind == Kind.B), 1, 0)
    number = ((home[programs.pipeline] + programs.microbatch) * programs.num_stages + programs.stage) * 2 + backward
    carries = (programs.opcode == Opcode.RECEIVE) | (programs.opcode == Opcode.SEND)
    carries |= (programs.opcode == Opcode.COMPUTE) & (programs.kind != Kind.W)
    ids: IntColumn = np.where(carries, number, -1)
    return ids


def _require_send_order(programs: Programs) -> None:
    """Check that on every directed pair the receives stand in the order of the sends, and that both match."""
    worker = np.repeat(np.arange(len(programs.offsets) - 1), np.diff(programs.offsets))
    message = _message_ids(programs)
    sends = np.flatnonzero(programs.opcode == Opcode.SEND)
    receives = np.flatnonzero(programs.opcode == Opcode.RECEIVE)
    sends = sends[np.lexsort((sends, programs.peer[sends], worker[sends]))]
    receives = receives[np.lexsort((receives, worker[receives], programs.peer[receives]))]
    ahead = min(len(sends), len(receives))
    pairs = (
        (worker[sends[:ahead]], programs.peer[receives[:ahead]]),
        (programs.peer[sends[:ahead]], worker[receives[:ahead]]),
        (message[sends[:ahead]], message[receives[:ahead]]),
    )
    wrong = np.flatnonzero(np.logical_or.reduce([a != b for a, b in pairs]))
    if len(wrong) == 0 and len(sends) == len(receives):
        return
    first = int(wrong[0]) if len(wrong) else ahead
    shown = [
        f"worker {programs.worker_at(int(worker[rows[first]]))}: {programs.instruction(int(rows[first]))}"
        for rows in (sends, receives)
        if first < len(rows)
    ]
    raise DeadlockError(
        "sends and receives of a directed pair do not match in order: " + " against ".join(shown),
        hint="each pair's receives must be posted in the order of its sends",
    )


def _require_inputs(programs: Programs) -> None:
    """Check that what each row computes on or sends was computed above it on its worker, or is received there."""
    worker = np.repeat(np.arange(len(programs.offsets) - 1), np.diff(programs.offsets))
    home = np.concatenate([[0], np.cumsum(programs.microbatches)])
    total, last = int(home[-1]), programs.num_stages - 1
    place = programs.stage * total + home[programs.pipeline] + programs.microbatch
    is_compute = programs.opcode == Opcode.COMPUTE
    is_forward, is_weight = programs.kind == Kind.F, programs.kind == Kind.W
    # Only a receive names the data itself; of repeated rows the first counts. Row R stands for "nowhere".
    nowhere = programs.num_instructions
    made = np.full((2, programs.num_stages * total), nowhere, dtype=np.int64)
    posted = np.full((2, programs.num_stages * total), nowhere, dtype=np.int64)
    for backward, kinds in ((0, is_forward), (1, ~is_forward & ~is_weight)):
        for table, chosen in ((made, is_compute), (posted, programs.opcode == Opcode.RECEIVE)):
            rows = np.flatnonzero(chosen & kinds)[::-1]
            table[backward, place[rows]] = rows

    uses = (is_compute & ~(is_forward & (programs.stage == 0))) | (programs.opcode == Opcode.SEND)
    rows = np.flatnonzero(uses)
    # F takes the F of the stage before, W its own I, a backward that of the stage after or the last stage's own F.
    turns = ~is_forward & ~is_weight & (programs.stage == last)
    shift = np.where(is_forward, -total, np.where(is_weight | turns, 0, total))
    source = made[np.where(is_forward | turns, 0, 1)[rows], (place + shift)[rows]]
    owner = np.append(worker, -1)
    is_there = (owner[source] == worker[rows]) & (source < rows)
    received = posted[np.where(is_forward, 0, 1)[rows], place[rows]]
    is_there |= is_compute[rows] & ~is_weight[rows] & (owner[received] == worker[rows])
    if not bool(is_there.all()):
        row = int(rows[~is_there][0])
        raise DeadlockError(
            f"worker {programs.worker_at(int(worker[row]))} at {programs.instruction(row)} needs a result that it has "
            "neither computed before nor receives"
        )


def _require_collectives(programs: Programs) -> None:
    """Check that all live workers of a slot join the same all-reduces, and all live workers the same barrier, once each."""
    live = _live_workers(programs)
    worker = np.repeat(np.arange(len(programs.offsets) - 1), np.diff(programs.offsets))
    # The barrier is counted behind the all-reduces of every stage.
    kinds = programs.num_stages + 1
    rows = np.flatnonzero((programs.opcode == Opcode.ALL_REDUCE) | (programs.opcode == Opcode.GLOBAL_BARRIER))
    which = np.where(programs.opcode[rows] == Opcode.ALL_REDUCE, programs.stage[rows], programs.num_stages)
    joins = np.bincount(worker[rows] * kinds + which, minlength=(len(programs.offsets) - 1) * kinds).reshape(-1, kinds)
    twice = rows[joins[worker[rows], which] > 1]
    if len(twice):
        row = int(twice[0])
        raise DeadlockError(
            f"worker {programs.worker_at(int(worker[row]))} joins {programs.instruction(row)} more than once"
        )
    expected = np.zeros((programs.num_slots, kinds), dtype=np.int64)
    np.maximum.at(expected, live % programs.num_slots, joins[live])
    expected[:, -1] = expected[:, -1].max()
    missing, lacking = np.nonzero(joins[live] < expected[live % programs.num_slots])
    if len(missing):
        absent, what = int(live[missing[0]]), int(lacking[0])
        same_slot = worker[rows] % programs.num_slots == absent % programs.num_slots
        row = int(rows[(which == what) & (same_slot | (what == programs.num_stages))][0])
        raise DeadlockError(
            f"worker {programs.worker_at(int(worker[row]))} waits at {programs.instruction(row)} for "
            f"worker {programs.worker_at(absent)}, whose program ends without it"
        )


def _live_workers(programs: Programs) -> IntColumn:
    """Worker indices of all live workers, also of those without instructions."""
    live = np.ones(len(programs.offsets) - 1, dtype=np.bool_)
    for dead in programs.dead:
        live[dead.pipeline * programs.num_slots + dead.slot] = False
    return np.flatnonzero(live)


@njit(cache=True)
def _run(
    offsets: IntColumn,
    opcode: IntColumn,
    peer: IntColumn,
    stage: IntColumn,
    message: IntColumn,
    receiver: IntColumn,
    live_in_slot: IntColumn,
    num_stages: int,
) -> Any:
    """Run until nothing moves; the row each worker stands at, its end where it is done."""
    workers, slots = len(offsets) - 1, len(live_in_slot)
    at = offsets[:-1].copy()
    posted = np.zeros(len(receiver), dtype=np.bool_)
    sent = np.zeros(len(receiver), dtype=np.bool_)
    joined = np.zeros(slots * (num_stages + 1), dtype=np.int64)
    arrived = np.full(workers, -1, dtype=np.int64)  # row of the collective a worker has already joined
    stack = np.empty(3 * len(opcode) + 2 * workers + 1, dtype=np.int64)
    waiting = np.zeros(workers, dtype=np.bool_)
    depth, in_barrier, live = 0, 0, live_in_slot.sum()
    for w in range(workers):
        stack[depth] = w
        depth += 1
        waiting[w] = True
    while depth > 0:
        depth -= 1
        w = stack[depth]
        waiting[w] = False
        while at[w] < offsets[w + 1]:
            row = at[w]
            op = opcode[row]
            woken = -1
            if op == _RECEIVE:
                posted[message[row]] = True
                woken = peer[row]
            elif op == _COMPUTE:
                m = message[row]
                if m >= 0 and receiver[m] == w and not sent[m]:
                    break
            elif op == _SEND:
                if not posted[message[row]]:
                    break
                sent[message[row]] = True
                woken = peer[row]
            elif op in (_ALL_REDUCE, _BARRIER):
                slot = w % slots
                if arrived[w] != row:
                    arrived[w] = row
                    if op == _BARRIER:
                        in_barrier += 1
                    else:
                        joined[slot * num_stages + stage[row]] += 1
                    complete = (
                        in_barrier == live
                        if op == _BARRIER
                        else joined[slot * num_stages + stage[row]] == live_in_slot[slot]
                    )
                    if complete:
                        for other in range(workers):
                            if not waiting[other] and other != w and (op == _BARRIER or other % slots == slot):
                                stack[depth] = other
                                depth += 1
                                waiting[other] = True
                    else:
                        break
                elif op == _BARRIER:
                    if in_barrier < live:
                        break
                elif joined[slot * num_stages + stage[row]] < live_in_slot[slot]:
                    break
            at[w] += 1
            if woken >= 0 and not waiting[woken]:
                stack[depth] = woken
                depth += 1
                waiting[woken] = True
    return at


def _explain(programs: Programs, at: IntColumn, message: IntColumn, worker: IntColumn) -> str:
    """Follow who waits for whom from the first stuck worker until one comes up twice."""
    stuck = np.flatnonzero(at < programs.offsets[1:])
    path: list[int] = []
    current = int(stuck[0])
    while current not in path:
        path.append(current)
        current = _awaited(programs, at, message, worker, current)
    cycle = path[path.index(current) :]
    steps = [f"worker {programs.worker_at(w)} at {programs.instruction(int(at[w]))}" for w in cycle]
    return "programs wait for each other: " + ", which waits for ".join(
        [*steps, f"worker {programs.worker_at(current)}"]
    )


def _awaited(programs: Programs, at: IntColumn, message: IntColumn, worker: IntColumn, waiter: int) -> int:
    """A stuck worker that a stuck worker waits for."""
    row = int(at[waiter])
    opcode = Opcode(int(programs.opcode[row]))
    if opcode is Opcode.SEND:
        return int(programs.peer[row])
    if opcode is Opcode.COMPUTE:
        sends = np.flatnonzero((message == message[row]) & (programs.opcode == Opcode.SEND))
        return int(worker[sends[0]])
    others = np.flatnonzero(at < programs.offsets[1:])
    if opcode is Opcode.ALL_REDUCE:
        others = others[others % programs.num_slots == waiter % programs.num_slots]
    # Two peers may both stand at an all-reduce, of different stages. A barrier's stage is 0 everywhere.
    here = (programs.opcode[row], programs.stage[row])
    return next(int(w) for w in others if (programs.opcode[at[w]], programs.stage[at[w]]) != here)
