"""Annealing from a list schedule: rounds of moves, each from the best order so far and from its shifted slot starts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np

from planner.problem import Optimizer, Problem
from planner.schedule import IntColumn, Schedule
from planner.timing import time_schedule
from solver_models import work
from solver_models.annealing.engine import anneal
from solver_models.annealing.state import fixed_rows, kin_of
from solver_models.clock import WALL_CLOCK, Clock, Deadline
from solver_models.lanes import run_lanes
from solver_models.list_scheduling.network import Network, nodes_of, schedule_in_order

NAME = "annealing"

_ROUNDS = ((0.03, 25), (0.015, 25), (0.06, 50), (0.2, 100))
"""Hottest temperature of a round, as a share of the longest operation, and moves for each operation. The more rounds in
a row gained nothing, the further along: colder once, then hotter and longer."""
_COLD_SHARE = 0.002
_LEAST_MOVES = 30_000
_MOST_DOUBLINGS = 8
_ROUND_WORK = 500_000_000
"""The first round makes at most this many moves over the number of operations, some tenths of a second, each later one
twice as many. One that is cut so begins colder in proportion."""
_SLICE_WORK = 200_000_000
"""A slice of a round makes this many moves over the number of operations, a tenth of a second or two; then the clock is
looked at."""
_LEAST_SLICES = 8
"""Of one long cooling."""

_LANE_SEEDS = 15_485_863
"""Between the seeds of two lanes."""
_COOLING_HOT_SHARE = 0.03
_COOLING_MOVES = 25
"""Hottest temperature of a long cooling, which begins colder in proportion where it makes fewer moves for each operation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """An order of a network's nodes with its exact timing, and the name of the solver that found it."""

    network: Network
    schedule: Schedule
    period_ns: int
    solver: str


def timed_order(problem: Problem, network: Network, order: Schedule, solver: str, clock: Clock = WALL_CLOCK) -> Order:
    """Time an order exactly."""
    clock.charge(work.timing_s(order.num_operations))
    schedule, period = time_schedule(problem, order)
    return Order(network=network, schedule=schedule, period_ns=period, solver=solver)


@dataclass(slots=True, kw_only=True)
class _Walk:
    """Where a walk through orders stands.

    Parameters
    ----------
    places, first
        Nodes in each worker's order, and each worker's first place.
    release
        Earliest time at which the workers of each slot may begin, shape ``(P,)``.
    best, window_ns
        The best order met, and its largest window; 2**62 before the first move.
    """

    places: IntColumn
    first: IntColumn
    release: IntColumn
    best: IntColumn
    window_ns: int = 2**62

    @classmethod
    def begin(cls, problem: Problem, order: Order, release: IntColumn) -> Self:
        """A walk that begins with an order."""
        places = nodes_of(problem, order.schedule)
        return cls(places=places, first=order.schedule.offsets, release=release, best=places)


class Annealer:
    """Anneals orders of one network.

    Parameters
    ----------
    problem, network
        The instance and its network under one routing.
    target_ns
        Period to stop at.
    workers
        Walks side by side, at least 1: after each slice all go on from where the best of them stands.
    """

    def __init__(self, problem: Problem, network: Network, target_ns: int, workers: int = 1) -> None:
        self._problem, self._network, self._target_ns, self._workers = problem, network, target_ns, workers
        self._joint = problem.optimizer is Optimizer.GLOBAL
        sync = np.array([slot.sync_ns for slot in problem.slots], dtype=np.int64)
        self._sync = np.full_like(sync, sync.max()) if self._joint else sync
        self._fixed, self._kin = fixed_rows(network), kin_of(problem)
        self._scale = max(1.0, float(network.duration.max()))
        self._nodes = int((network.worker >= 0).sum())
        self._moves, self._spent_s = 0, 0.0

    def moves_left(self, deadline: Deadline) -> float:
        """Moves for each operation that there is time for, at the pace so far; 0 before the first."""
        return self._moves * deadline.left_s / (self._spent_s * self._nodes) if self._spent_s > 0 else 0.0

    def improve(self, order: Order, *, deadline: Deadline, seed: int, stagnation: int = 4) -> Order:
        """Anneal in rounds until the target, the deadline, or ``stagnation`` rounds in a row without a gain.

        Parameters
        ----------
        order
            Where to start.
        deadline
            Is not passed by more than a slice of a round.
        seed
            Of all random choices.
        """
        best, idle, number = order, 0, 0
        while best.period_ns > self._target_ns and idle < stagnation and not deadline.passed:
            candidate = self.round(best, deadline, seed, number, idle)
            number += 1
            if candidate.period_ns < best.period_ns:
                best, idle = candidate, 0
            else:
                idle += 1
        return best

    def round(self, order: Order, deadline: Deadline, seed: int, number: int, idle: int) -> Order:
        """Cool once from an order; return the best order met, which may be the first.

        Parameters
        ----------
        order, deadline, seed
            As in :meth:`improve`.
        number
            Rounds before this one.
        idle
            Rounds in a row that gained nothing, at least 0: the more, the hotter and longer this one.
        """
        hot, moves_a_node = _ROUNDS[min(idle, len(_ROUNDS) - 1)]
        moves = max(_LEAST_MOVES, moves_a_node * self._nodes)
        most = max(_LEAST_MOVES, (_ROUND_WORK << min(number, _MOST_DOUBLINGS)) // self._nodes)
        if moves > most:
            moves, hot = most, hot * most / moves
        walk = _Walk.begin(self._problem, order, self._releases(order.schedule))
        slices = max(1, moves * self._nodes // _SLICE_WORK)
        cooling = (_COLD_SHARE / hot) ** (1.0 / slices)
        for piece in range(slices):
            temperature = hot * cooling**piece
            self._go_on(
                walk, moves // slices, temperature, temperature * cooling, seed + 7919 * number + piece, deadline
            )
            if walk.window_ns <= self._target_ns or deadline.passed:
                break
        return self._best_of(walk, deadline)

    def cool(self, order: Order, deadline: Deadline, seed: int) -> Order:
        """Cool once from an order for as long as there is time; return the best order met, which may be the first.

        Where a large order has time for tens of moves for each operation, one long cooling comes further than rounds.
        """
        walk, span = _Walk.begin(self._problem, order, self._releases(order.schedule)), deadline.rest()
        # Before the first move the pace is not known.
        each = self.moves_left(deadline) if self._moves > 0 else _COOLING_MOVES
        hot = max(_COLD_SHARE, _COOLING_HOT_SHARE * min(1.0, each / _COOLING_MOVES))
        # Of a small order a slice may hold more moves than there is time for.
        moves = max(1, min(_SLICE_WORK // self._nodes, int(each * self._nodes / _LEAST_SLICES)))
        passed, step, piece = 0.0, 0.0, 0
        while walk.window_ns > self._target_ns and not deadline.passed:
            warm, cold = (hot * (_COLD_SHARE / hot) ** min(1.0, share) for share in (passed, passed + step))
            self._go_on(walk, moves, warm, cold, seed + 7919 * piece, deadline)
            piece += 1
            # A slice is as long as the one before was.
            passed, step = span.passed_share, span.passed_share - passed
        return self._best_of(walk, deadline)

    def _go_on(self, walk: _Walk, moves: int, hot: float, cold: float, seed: int, deadline: Deadline) -> None:
        """Make moves between two temperatures, which are shares of the longest operation, in every lane."""
        network, began = self._network, deadline.clock.now()

        def lane(number: int) -> Any:
            return anneal(
                walk.places,
                walk.first,
                self._fixed,
                self._kin,
                network.acquire,
                network.release,
                network.capacity,
                self._sync,
                walk.release,
                self._target_ns,
                self._joint,
                moves,
                hot * self._scale,
                cold * self._scale,
                seed + _LANE_SEEDS * number,
            )

        ends = run_lanes([partial(lane, number) for number in range(self._workers)])
        deadline.clock.charge(max(work.annealing_s(self._nodes, *counts) for *_, counts in ends))
        self._moves += moves
        self._spent_s += deadline.clock.now() - began
        walk.places = min(ends, key=lambda end: end[1])[0]
        _, _, met, window, _ = min(ends, key=lambda end: end[3])
        if window < walk.window_ns:
            walk.best, walk.window_ns = met, window

    def _best_of(self, walk: _Walk, deadline: Deadline) -> Order:
        found = schedule_in_order(self._problem, self._network, walk.best)
        return timed_order(self._problem, self._network, found, NAME, deadline.clock)

    def _releases(self, schedule: Schedule) -> IntColumn:
        """First start of each slot in a timed schedule; one release for all where the slots share a window."""
        slots = self._problem.num_slots
        release = np.zeros(slots, dtype=np.int64)
        if not self._joint:
            release[:] = np.iinfo(np.int64).max
            np.minimum.at(release, schedule.worker_of_row() % slots, schedule.start_ns)
        return release
