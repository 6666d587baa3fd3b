"""Exact answers for tiny problems by exhaustive search, independent of the planner's timing, bounds and solvers.

"Is a period of T possible?" is asked for one T after another. It is, exactly where some schedule of one iteration keeps every
slot's window, from its first start to its last end plus sync, within T (docs/model.md, equation (20)). The search walks
through time. Whenever a worker is free it starts an operation that is ready or waits for one that is not; once it has
waited, only operations that became ready since are open to it, since anything else would have started earlier
(semi-active schedules suffice). A slot may open at any tick after its first input has come: its window begins there.
States already found hopeless are remembered, with microbatches, which are all alike, in sorted order. A fused backward is
never tried where a stage is splittable: I followed at once by W takes the same time, frees memory no later and passes the
gradient on earlier.

Link FIFO is not modelled. It could matter only where two boundaries between the same workers have different transfer
times; there the answer may be too small, never too large.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from planner.operation import Kind, Worker
from planner.problem import Optimizer, Problem

Microbatch = tuple[int, int, tuple[int, ...], int]
"""Chain operations started (F up, then backwards down), end of the last of them, worker index by stage (-1 where open), and
the W that are done, as bits."""


_NEVER = -(10**12)
"""Since when a worker waits that does not; before every time."""


class SearchTooLargeError(Exception):
    """The search met its limit of states."""


def exhaustive_period_ns(problem: Problem, *, at_least: int = 0, max_states: int = 2_000_000) -> int:
    """Smallest period of any routing and order, for problems of about 50 operations whose durations are a few ticks.

    Parameters
    ----------
    problem
        A plannable problem.
    at_least
        Periods below this are not asked for.
    max_states
        Most states one question may visit.

    Raises
    ------
    SearchTooLargeError
        If one question visits more.
    """
    period = at_least
    while not is_possible(problem, period, max_states=max_states):
        period += 1
    return period


def is_possible(problem: Problem, period_ns: int, *, max_states: int = 2_000_000) -> bool:
    """Whether some routing and order has a steady period of at most ``period_ns``.

    Raises
    ------
    SearchTooLargeError
        If the search visits more than ``max_states`` states.
    """
    return _Search(problem, period_ns, max_states).possible()


@dataclass(frozen=True, slots=True)
class _State:
    """Where an iteration stands: when each worker is free, since when it waits, when each slot opened, all microbatches."""

    free: tuple[int, ...]
    waiting: tuple[int, ...]
    opened: tuple[int, ...]
    microbatches: tuple[Microbatch, ...]


class _Search:
    def __init__(self, problem: Problem, period: int, max_states: int) -> None:
        self.problem, self.max_states = problem, max_states
        self.num_stages = problem.num_stages
        self.slot_of_stage = problem.slot_of_stage
        self.workers = [Worker(k, s) for s in range(problem.num_slots) for k in problem.live_pipelines(s)]
        self.of_slot = [[i for i, w in enumerate(self.workers) if w.slot == s] for s in range(problem.num_slots)]
        self.duration = [
            [
                [problem.duration_ns(kind, v, w) for kind in (Kind.F, Kind.I, Kind.W)]
                if self.slot_of_stage[v] == w.slot
                else []
                for v in range(self.num_stages)
            ]
            for w in self.workers
        ]
        self.fused = [not stage.splittable for stage in problem.stages]
        slowest = max(slot.sync_ns for slot in problem.slots)
        self.is_global = problem.optimizer is Optimizer.GLOBAL
        self.room = [period - (slowest if self.is_global else slot.sync_ns) for slot in problem.slots]
        self.least = [
            [min(self.duration[i][v][kind] for i in self.of_slot[self.slot_of_stage[v]]) for kind in range(3)]
            for v in range(self.num_stages)
        ]
        self.hopeless: set[tuple[int, _State]] = set()
        self.visited = 0

    def possible(self) -> bool:
        if min(self.room) < 0:
            return False
        fresh: Microbatch = (0, 0, (-1,) * self.num_stages, 0)
        count = len(self.workers)
        # With a global optimizer all slots share one window from time 0; else the slot of stage 0 opens then, others later.
        opened = tuple(0 if self.is_global or s == self.slot_of_stage[0] else -1 for s in range(self.problem.num_slots))
        return self._search(
            0,
            _State((0,) * count, (_NEVER,) * count, opened, (fresh,) * self.problem.num_microbatches),
        )

    def _search(self, now: int, state: _State) -> bool:
        if all(
            pos == 2 * self.num_stages and done == (1 << self.num_stages) - 1 for pos, _, _, done in state.microbatches
        ):
            return True
        state = self._canonical(now, state)
        if (now, state) in self.hopeless or not self._can_meet_deadlines(now, state):
            return False
        self.visited += 1
        if self.visited > self.max_states:
            raise SearchTooLargeError
        found = self._branch(now, state)
        if not found:
            self.hopeless.add((now, state))
        return found

    def _branch(self, now: int, state: _State) -> bool:
        """Decide for the first worker that is free, its slot open, and has something ready; else open slots or let time pass."""
        for i, worker in enumerate(self.workers):
            if state.free[i] > now or state.opened[worker.slot] < 0 or state.waiting[i] == now:
                continue
            startable = list(self._startable(now, state, i))
            if startable:
                if any(self._search(now, self._start(now, state, i, m, kind, v)) for m, kind, v in startable):
                    return True
                waiting = (*state.waiting[:i], now, *state.waiting[i + 1 :])
                return self._search(now, _State(state.free, waiting, state.opened, state.microbatches))
        closed = [s for s, at in enumerate(state.opened) if at < 0 and self._has_input(now, state, s)]
        # Each subset of the slots that could open now: the lowest opens or not, then the next tick.
        for s in closed:
            opened = (*state.opened[:s], now, *state.opened[s + 1 :])
            if self._search(now, _State(state.free, state.waiting, opened, state.microbatches)):
                return True
        after = self._next_event(now, state, bool(closed))
        return after is not None and self._search(after, state)

    def _chain(self, pos: int) -> tuple[int, int]:
        """Kind and stage of the chain operation number ``pos``."""
        return (0, pos) if pos < self.num_stages else (1, 2 * self.num_stages - 1 - pos)

    def _ready(self, microbatch: Microbatch, i: int) -> int:
        """When the next chain operation of a microbatch may start on worker ``i``."""
        pos, end, where, _ = microbatch
        if pos == 0:
            return 0
        kind, v = self._chain(pos)
        if pos == self.num_stages:
            return end
        before, boundary = (v - 1, v - 1) if kind == 0 else (v + 1, v)
        return end + self.problem.transfer_ns(boundary, self.workers[where[before]], self.workers[i])

    def _startable(self, now: int, state: _State, i: int) -> Iterator[tuple[int, int, int]]:
        """Operations worker ``i`` may start now: (microbatch, kind, stage), alike ones once."""
        slot, since, seen = self.workers[i].slot, state.waiting[i], set()
        held = self._held(state, i)
        cap = self.problem.slots[slot].capacity_bytes
        for m, microbatch in enumerate(state.microbatches):
            if microbatch in seen:
                continue
            seen.add(microbatch)
            pos, _, where, done = microbatch
            if pos < 2 * self.num_stages:
                kind, v = self._chain(pos)
                fits = kind == 1 or cap is None or held + self.problem.stages[v].activation_bytes <= cap
                here = self.slot_of_stage[v] == slot if kind == 0 else where[v] == i
                if here and fits and since < self._ready(microbatch, i) <= now:
                    yield m, kind, v
            if since < 0:
                for v in range(self.num_stages):
                    if where[v] == i and not done >> v & 1 and pos > 2 * self.num_stages - 1 - v:
                        yield m, 2, v

    def _held(self, state: _State, i: int) -> int:
        """Bytes a free worker holds."""
        held = 0
        for pos, _, where, done in state.microbatches:
            for v in range(self.num_stages):
                if where[v] == i:
                    backward = pos > 2 * self.num_stages - 1 - v
                    stage = self.problem.stages[v]
                    held += 0 if done >> v & 1 else stage.weight_grad_bytes if backward else stage.activation_bytes
        return held

    def _start(self, now: int, state: _State, i: int, m: int, kind: int, v: int) -> _State:
        pos, end, where, done = state.microbatches[m]
        takes = self.duration[i][v][kind]
        if kind == 2:
            done |= 1 << v
        else:
            pos += 1
            if kind == 0:
                where = (*where[:v], i, *where[v + 1 :])
            elif self.fused[v]:
                takes += self.duration[i][v][2]
                done |= 1 << v
            end = now + takes
        microbatches = (*state.microbatches[:m], (pos, end, where, done), *state.microbatches[m + 1 :])
        free = (*state.free[:i], now + takes, *state.free[i + 1 :])
        # What ends this instant may be what others, already told to wait, would take: ask them again.
        waiting = tuple(_NEVER if j == i or takes == 0 else at for j, at in enumerate(state.waiting))
        return _State(free, waiting, state.opened, microbatches)

    def _has_input(self, now: int, state: _State, slot: int) -> bool:
        return any(
            pos < self.num_stages
            and self.slot_of_stage[pos] == slot
            and any(self._ready((pos, end, where, done), i) <= now for i in self.of_slot[slot])
            for pos, end, where, done in state.microbatches
        )

    def _next_event(self, now: int, state: _State, can_open: bool) -> int | None:
        times = [now + 1] if can_open else []
        times += [at for at in state.free if at > now]
        for microbatch in state.microbatches:
            if microbatch[0] < 2 * self.num_stages:
                slot = self.slot_of_stage[self._chain(microbatch[0])[1]]
                times += [at for i in self.of_slot[slot] if (at := self._ready(microbatch, i)) > now]
        return min(times, default=None)

    def _can_meet_deadlines(self, now: int, state: _State) -> bool:
        """Whether remaining chains, and remaining work, may still fit the windows of slots that are open."""
        due = [at + room if at >= 0 else None for at, room in zip(state.opened, self.room, strict=True)]
        left = [0] * len(self.workers)
        unrouted = [0] * self.problem.num_slots
        for pos, end, where, done in state.microbatches:
            at = max(end, now) if pos < 2 * self.num_stages and pos > 0 else end
            for step in range(pos, 2 * self.num_stages):
                kind, v = self._chain(step)
                if step > pos and step != self.num_stages:
                    boundary = v - 1 if kind == 0 else v
                    crosses = self.slot_of_stage[boundary] != self.slot_of_stage[boundary + 1]
                    at += self.problem.stages[boundary].transfer_ns if crosses else 0
                takes = self.duration[where[v]][v] if where[v] >= 0 else self.least[v]
                at += takes[kind] + (takes[2] if kind == 1 and self.fused[v] else 0)
                limit = due[self.slot_of_stage[v]]
                if limit is not None and at + (takes[2] if kind == 1 and not self.fused[v] else 0) > limit:
                    return False
            for v in range(self.num_stages):
                slot = self.slot_of_stage[v]
                if where[v] < 0:
                    unrouted[slot] += sum(self.least[v])
                elif not done >> v & 1:
                    owed = self.duration[where[v]][v]
                    left[where[v]] += owed[2] + (owed[1] if pos <= 2 * self.num_stages - 1 - v else 0)
        for slot, workers in enumerate(self.of_slot):
            limit = due[slot]
            if limit is None:
                continue
            spare = [limit - max(state.free[i], now) - left[i] for i in workers]
            if any(room < 0 and left[i] > 0 for room, i in zip(spare, workers, strict=True)):
                return False
            if sum(max(room, 0) for room in spare) < unrouted[slot]:
                return False
        return True

    def _canonical(self, now: int, state: _State) -> _State:
        """Forget times that no longer matter and put microbatches in order."""
        horizon = min([now, *(at for at in state.waiting if at >= 0)])
        longest = max(stage.transfer_ns for stage in self.problem.stages)
        microbatches = sorted(
            (pos, -1 - longest if end + longest <= horizon else end, where, done)
            for pos, end, where, done in state.microbatches
        )
        free = tuple(max(at, now) for at in state.free)
        return _State(free, state.waiting, state.opened, tuple(microbatches))
