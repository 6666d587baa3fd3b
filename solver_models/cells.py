"""Cells: pipelines that share rerouted microbatches, each a problem of its own.

A broken pipeline and those that help it form a cell, and whoever shares a helper is in the same one. Microbatches never leave
their cell. Its first orders come from forward-backward passes, and from forward passes alone, whose priorities are times that
somebody else knows for its pipelines; the best is annealed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from planner.operation import Worker
from planner.problem import Problem
from planner.schedule import IntColumn, Schedule
from solver_models.annealing.search import Annealer, Order, timed_order
from solver_models.clock import WALL_CLOCK, Clock, Deadline
from solver_models.list_scheduling.search import ListSearch, Trial
from solver_models.result import SolveOptions

_PATIENCE_SHARES = (0.5, 0.8, 0.3, 0.6, 1.0, 0.7, 0.9)
_SQUEEZED_PATIENCE_SHARES = (0.8, 0.3)
_GAP_SHARES = (0.9, 0.5)
_KEPT_STARTS = 2
"""Starts whose schedules came out best, from which all patience shares are tried."""

MOST_IDLE_ROUNDS = 12
"""Rounds of annealing without a gain after which a cell is left as it is, where nothing else is said."""

_ROUNDS_BEFORE_COOLING = 2
_LEAST_COOLING_MOVES, _MOST_COOLING_MOVES = 10.0, 1000.0
"""Moves for each operation there has to be time for, at least and at most, for one long cooling in place of rounds: fewer gain
little, and where there is time for more, beginning anew helps."""


def find_cells(problem: Problem, routing: IntColumn) -> list[IntColumn]:
    """Pipelines that something failed in or is rerouted from or to, by who shares microbatches with whom.

    Whoever has no microbatches and takes in none is in no cell, whatever failed there.

    Returns
    -------
    list of arrays of int64
        Pipelines of each cell, ascending; cells by their first pipeline.
    """
    home = np.repeat(np.arange(problem.num_pipelines, dtype=np.int64), problem.microbatches)
    away = routing != home[:, None]
    pairs = np.stack([np.broadcast_to(home[:, None], routing.shape)[away], routing[away]], axis=1)
    cell_of = np.arange(problem.num_pipelines, dtype=np.int64)
    for a, b in np.unique(pairs, axis=0).tolist():
        low, high = sorted((int(cell_of[a]), int(cell_of[b])))
        cell_of[cell_of == high] = low
    hurt = {worker.pipeline for worker in (*problem.dead, *problem.speeds_ppm)}
    touched = np.union1d(pairs, [k for k in sorted(hurt) if problem.microbatches[k]]).astype(np.int64)
    return [touched[cell_of[touched] == cell] for cell in np.unique(cell_of[touched])]


@dataclass(slots=True, kw_only=True)
class _Origin:
    """Starts that schedules are made from.

    Parameters
    ----------
    starts
        Shape ``(N,)``.
    patience_shares
        Which are tried first.
    window_ns
        The smallest that came of it so far.
    """

    starts: IntColumn
    patience_shares: tuple[float, ...]
    window_ns: int = 2**62

    def saw(self, trial: Trial) -> Trial:
        """Note how well a trial came out."""
        self.window_ns = min(self.window_ns, trial.window_ns)
        return trial


class Cell:
    """The problem of one cell's pipelines alone, renumbered from 0, and the best order so far.

    Parameters
    ----------
    problem, routing
        The whole instance, and who runs what in it.
    pipelines
        Of the cell, ascending.
    target_ns
        Period that counts as good enough.
    clock
        Is told what schedules cost.
    """

    def __init__(
        self, problem: Problem, routing: IntColumn, pipelines: IntColumn, target_ns: int, clock: Clock = WALL_CLOCK
    ) -> None:
        self.pipelines, self.target_ns = pipelines, target_ns
        number = np.full(problem.num_pipelines, -1, dtype=np.int64)
        number[pipelines] = np.arange(len(pipelines))
        home = np.repeat(np.arange(problem.num_pipelines, dtype=np.int64), problem.microbatches)
        self.problem = replace(
            problem,
            microbatches=tuple(problem.microbatches[k] for k in pipelines.tolist()),
            dead=frozenset(Worker(int(number[w.pipeline]), w.slot) for w in problem.dead if number[w.pipeline] >= 0),
            speeds_ppm={
                Worker(int(number[w.pipeline]), w.slot): ppm
                for w, ppm in problem.speeds_ppm.items()
                if number[w.pipeline] >= 0
            },
        )
        self.routing: IntColumn = number[routing[number[home] >= 0]]
        self._search = ListSearch(self.problem, self.routing, target_ns, clock)
        self._best_origins: list[_Origin] = []
        self._waiting: deque[Iterator[Trial]] = deque()
        self._best: Trial | None = None
        self._annealer: Annealer | None = None
        self._annealed: Order | None = None
        self._rounds, self._idle_rounds = 0, 0

    @property
    def window_ns(self) -> int:
        """Largest window of the best order; 0 where there is none yet."""
        if self._annealed is not None:
            return self._annealed.period_ns
        return 0 if self._best is None else self._best.window_ns

    def take_starts(self, starts: IntColumn, patience_shares: tuple[float, ...]) -> None:
        """Let the next passes come from starts of all network nodes of the cell, which need keep no constraint."""
        self._waiting.append(self._first_trials(_Origin(starts=starts, patience_shares=patience_shares)))

    def take_best_again(self) -> None:
        """Let the last passes come from the best starts, when all have been tried, with the patience they have not had."""
        self._waiting.append(self._last_trials())

    def offer(self, trial: Trial) -> None:
        """Take a schedule of the whole cell where it is better than the best so far."""
        if self._best is None or trial.window_ns < self._best.window_ns:
            self._best = trial

    def advance(self) -> bool:
        """Try the next pass; say whether there was one."""
        while self._waiting:
            trial = next(self._waiting[0], None)
            if trial is not None:
                self.offer(trial)
                return True
            self._waiting.popleft()
        return False

    def anneal(
        self, deadline: Deadline, options: SolveOptions, *, alone: bool = False, idle_rounds: int = MOST_IDLE_ROUNDS
    ) -> bool:
        """Anneal the best order for a round, or all the time where the cell is ``alone``; say whether more may help.

        It may not once ``idle_rounds`` rounds in a row gained nothing.
        """
        if self._annealer is None:
            assert self._best is not None
            self._annealer = Annealer(self.problem, self._search.network, self._search.target_ns, options.workers)
            order = self._best.order(self.problem)
            self._annealed = timed_order(self.problem, self._search.network, order, "", deadline.clock)
        assert self._annealed is not None
        if (
            alone
            and self._rounds == _ROUNDS_BEFORE_COOLING
            and _LEAST_COOLING_MOVES <= self._annealer.moves_left(deadline) <= _MOST_COOLING_MOVES
        ):
            found = self._annealer.cool(self._annealed, deadline, options.seed)
        else:
            found = self._annealer.round(self._annealed, deadline, options.seed, self._rounds, self._idle_rounds)
        self._rounds += 1
        if found.period_ns < self._annealed.period_ns:
            self._annealed, self._idle_rounds = found, 0
        else:
            self._idle_rounds += 1
        return self._idle_rounds < idle_rounds

    def order(self) -> Schedule:
        """The best order, in the cell's own numbers of pipelines; something must have been tried."""
        if self._annealed is not None:
            return self._annealed.schedule
        assert self._best is not None
        return self._best.order(self.problem)

    def _first_trials(self, origin: _Origin) -> Iterator[Trial]:
        if self._search.network.chunks > 1:
            for share in _GAP_SHARES:
                squeezed = self._search.squeezed(origin.starts, share)
                if squeezed is not None:
                    yield origin.saw(squeezed)
                    for patience in _SQUEEZED_PATIENCE_SHARES:
                        yield origin.saw(self._search.by_starts(squeezed.start, patience))
        for patience in origin.patience_shares:
            yield from self._passes(origin, patience)
        self._best_origins = sorted([*self._best_origins, origin], key=lambda one: one.window_ns)[:_KEPT_STARTS]

    def _last_trials(self) -> Iterator[Trial]:
        for patience in _PATIENCE_SHARES:
            for origin in self._best_origins:
                if patience not in origin.patience_shares:
                    yield from self._passes(origin, patience)

    def _passes(self, origin: _Origin, patience_share: float) -> Iterator[Trial]:
        for trial in self._search.passes(origin.starts, patience_share):
            yield origin.saw(trial)
        yield origin.saw(self._search.by_starts(origin.starts, patience_share))
