"""Annealing from a list schedule: rounds of moves, each from the best order so far and from its shifted slot starts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.problem import Optimizer, Problem
from planner.schedule import IntColumn, Schedule
from planner.timing import time_schedule
from solver_models import work
from solver_models.annealing.engine import anneal
from solver_models.annealing.state import fixed_rows, kin_of
from solver_models.clock import WALL_CLOCK, Clock, Deadline
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


class Annealer:
    """Anneals orders of one network.

    Parameters
    ----------
    problem, network
        The instance and its network under one routing.
    target_ns
        Period to stop at.
    """

    def __init__(self, problem: Problem, network: Network, target_ns: int) -> None:
        self._problem, self._network, self._target_ns = problem, network, target_ns
        self._joint = problem.optimizer is Optimizer.GLOBAL
        sync = np.array([slot.sync_ns for slot in problem.slots], dtype=np.int64)
        self._sync = np.full_like(sync, sync.max()) if self._joint else sync
        self._fixed, self._kin = fixed_rows(network), kin_of(problem)
        self._scale = max(1.0, float(network.duration.max()))
        self._nodes = int((network.worker >= 0).sum())

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
        network = self._network
        places, first = nodes_of(self._problem, order.schedule), order.schedule.offsets
        release = self._releases(order.schedule)
        slices = max(1, moves * self._nodes // _SLICE_WORK)
        cooling = (_COLD_SHARE / hot) ** (1.0 / slices)
        best_places, best_window = places, 2**62
        for piece in range(slices):
            temperature = hot * cooling**piece * self._scale
            places, met, window, *counts = anneal(
                places,
                first,
                self._fixed,
                self._kin,
                network.acquire,
                network.release,
                network.capacity,
                self._sync,
                release,
                self._target_ns,
                self._joint,
                moves // slices,
                temperature,
                temperature * cooling,
                seed + 7919 * number + piece,
            )
            deadline.clock.charge(work.annealing_s(self._nodes, *counts))
            if window < best_window:
                best_places, best_window = met, window
            if best_window <= self._target_ns or deadline.passed:
                break
        found = schedule_in_order(self._problem, network, best_places)
        return timed_order(self._problem, network, found, NAME, deadline.clock)

    def _releases(self, schedule: Schedule) -> IntColumn:
        """First start of each slot in a timed schedule; one release for all where the slots share a window."""
        slots = self._problem.num_slots
        release = np.zeros(slots, dtype=np.int64)
        if not self._joint:
            release[:] = np.iinfo(np.int64).max
            np.minimum.at(release, schedule.worker_of_row() % slots, schedule.start_ns)
        return release
