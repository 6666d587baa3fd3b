"""The portfolio of list schedules: rules and their parameters tried in a fixed order, then forward-backward passes.

The rules by rounds need to know how long a worker may idle: the time left between its load and a target period. Tried
against the lower bound and a little around it, they meet the bound for most problems whose memory does not bind, and for
fault-free pipelines at 1F1B memory. Forward-backward passes (double justification, as for resource-constrained projects)
then schedule the time-reversed network by the latest ends and again forward by the reversed starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from planner.errors import InvalidScheduleError
from planner.problem import Optimizer, Problem
from planner.schedule import IntColumn, Schedule
from planner.timing import time_schedule
from solver_models import work
from solver_models.clock import WALL_CLOCK, Clock, Deadline
from solver_models.list_scheduling.blocks import Block, Frame, search_blocks
from solver_models.list_scheduling.engine import RULE_PRIORITY, RULE_ROUNDS, construct
from solver_models.list_scheduling.network import Network, build_network, order_by_turn, reverse, schedule_in_order
from solver_models.list_scheduling.squeeze import Squeezer

_NO_LIMIT = 2**40
_BUDGET_FACTORS = (1.0, 0.0, 0.95, 0.9, 1.05, 0.8, 0.5)
_LIMIT_FACTORS = (None, 1.0, 1.5, 2.0)
_PATIENCE_SHARES = (0.5, 0.0, 1.0)
_PASS_PATIENCE_SHARES = (0.6, 0.5, 0.3, 0.0)
_PASSES = 2
_EARLY_RULES = 3
_PASS_STARTS = 6
_KEPT = 12

_BLOCK_LAPS = 3
"""Blocks are tried on this many microbatches a slot at most: more repeat the same pattern."""
_LEAST_BLOCKS, _MOST_BLOCKS = 250, 1500
_BLOCK_OPERATIONS = 2_000_000
"""Blocks to try: so many operations in all, within these limits."""
_BLOCK_PATIENCE_SHARES = (1.0, 0.6, 0.3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One constructed schedule: the rule that made it, its network, start and turn of each node, and its largest window."""

    rule: str
    network: Network
    start: IntColumn
    turn: IntColumn
    window_ns: int

    def order(self, problem: Problem) -> Schedule:
        """The trial's order; its times are still to be found."""
        return schedule_in_order(problem, self.network, order_by_turn(self.network, self.turn))


class ListSearch:
    """Tries list schedules under one routing.

    Parameters
    ----------
    problem
        The instance.
    routing
        Shape ``(sum(M), V)``.
    target_ns
        Period that counts as good enough; the lower bound serves.
    clock
        Is told what schedules cost.
    """

    def __init__(self, problem: Problem, routing: IntColumn, target_ns: int, clock: Clock = WALL_CLOCK) -> None:
        self.problem = problem
        self.routing = routing
        self.target_ns = target_ns
        self.clock = clock
        self.network = build_network(problem, routing)
        clock.charge(work.network_s(len(self.network.worker)))
        self._joint = problem.optimizer is Optimizer.GLOBAL
        sync = np.array([slot.sync_ns for slot in problem.slots], dtype=np.int64)
        self._sync = np.full_like(sync, sync.max()) if self._joint else sync
        self._no_wait = np.zeros(self.network.num_workers, dtype=np.int64)
        self._no_limit = np.full(self.network.num_workers, _NO_LIMIT, dtype=np.int64)
        self._forward_ns = max(stage.forward_ns for stage in problem.stages)
        self._squeezer: Squeezer | None = None

    def by_rounds(self, budget_factor: float, limit_factor: float | None, patience_share: float) -> Trial:
        """Construct by rounds.

        Parameters
        ----------
        budget_factor
            Share of the target period up to which a worker may idle by choice; 0 for never.
        limit_factor
            Forwards in flight as a multiple of 1F1B's; ``None`` for what memory allows.
        patience_share
            Wait for an input gradient that arrives within this share of a forward.
        """
        slot = np.arange(self.network.num_workers) % self.network.num_slots
        spare = (self.target_ns * budget_factor - self.network.loads_ns() - self._sync[slot]).astype(np.int64)
        limit = self._no_limit
        if limit_factor is not None:
            depth = (self.network.num_slots - slot) * self.network.chunks
            limit = np.maximum(1, np.ceil(depth * limit_factor)).astype(np.int64)
        patience = np.full_like(slot, int(patience_share * self._forward_ns))
        budget = np.maximum(spare, 0)
        return self._trial(
            "rounds", *self._construct(self.network, RULE_ROUNDS, self._fifo_priority(), patience, budget, limit)
        )

    def by_starts(self, start: IntColumn, patience_share: float) -> Trial:
        """Construct with starts known from elsewhere as priorities; arguments as in :meth:`passes`."""
        patience = np.full(self.network.num_workers, int(patience_share * self._forward_ns), dtype=np.int64)
        return self._trial(
            "starts", *self._construct(self.network, RULE_PRIORITY, start, patience, self._no_wait, self._no_limit)
        )

    def squeezed(self, start: IntColumn, gap_share: float) -> Trial | None:
        """Construct in the order of starts known from elsewhere.

        Parameters
        ----------
        start
            Shape ``(N,)``: the starts that order each worker's F and I. They need keep no constraint.
        gap_share
            A gap holds a W if it is at least this share of its duration.

        Returns
        -------
        Trial or None
            ``None`` where that order comes to a standstill.
        """
        if self._squeezer is None:
            self._squeezer = Squeezer(self.network)
        self.clock.charge(work.squeezed_s(len(self.network.worker)))
        found = self._squeezer.squeeze(start, gap_share)
        return None if found is None else self._trial("squeezed", *found)

    def passes(self, start: IntColumn, patience_share: float) -> Iterator[Trial]:
        """Forward-backward passes; each yields the schedule after a backward and a forward pass.

        Parameters
        ----------
        start
            Shape ``(N,)``: starts whose ends the first backward pass takes as priorities. They need keep no constraint.
        patience_share
            Wait for something more urgent that arrives within this share of a forward.
        """
        backward = reverse(self.network)
        self.clock.charge(work.network_s(len(backward.worker)))
        patience = np.full(self.network.num_workers, int(patience_share * self._forward_ns), dtype=np.int64)
        for _ in range(_PASSES):
            latest_first = -(start + self.network.duration)
            reversed_start, _ = self._construct(
                backward, RULE_PRIORITY, latest_first, patience, self._no_wait, self._no_limit
            )
            if reversed_start[0] < 0:
                return  # memory came to a standstill in reversed time: nothing more to learn from here
            start, turn = self._construct(
                self.network,
                RULE_PRIORITY,
                -(reversed_start + self.network.duration),
                patience,
                self._no_wait,
                self._no_limit,
            )
            yield self._trial("passes", start, turn)

    def _fifo_priority(self) -> IntColumn:
        """Microbatches of all pipelines by the share of their pipeline's iteration that lies before them."""
        share = np.concatenate([(np.arange(m) * 2 + 1) / (2 * m) for m in self.problem.microbatches if m])
        priority: IntColumn = np.repeat((share * 2**40).astype(np.int64), self.network.num_stages * 3)
        return priority

    def _construct(
        self, network: Network, rule: int, priority: IntColumn, patience: IntColumn, budget: IntColumn, limit: IntColumn
    ) -> tuple[IntColumn, IntColumn]:
        self.clock.charge(work.construction_s(len(network.worker)))
        start, turn = construct(
            rule,
            network.chunks,
            network.worker,
            network.queue,
            network.duration,
            network.successor,
            network.lag,
            network.num_predecessors,
            network.acquire,
            network.release,
            network.reserve,
            network.capacity,
            priority,
            patience,
            budget,
            limit,
        )
        return start, turn

    def _trial(self, rule: str, start: IntColumn, turn: IntColumn) -> Trial:
        if start[0] < 0:
            raise InvalidScheduleError(
                "list scheduling came to a standstill in forward time: an admission rule is wrong"
            )
        window = int(largest_window(self.network.worker, self.network.duration, start, self._sync, self._joint))
        return Trial(rule=rule, network=self.network, start=start, turn=turn, window_ns=window)


def rule_parameters() -> Iterator[tuple[float, float | None, float]]:
    """Parameters of :meth:`ListSearch.by_rounds`, the most promising first."""
    yield from product(_BUDGET_FACTORS, _LIMIT_FACTORS, _PATIENCE_SHARES)


class ListRun:
    """The portfolio of list schedules under one routing; may be stopped and gone on with.

    Parameters
    ----------
    search
        What constructs the schedules.
    """

    def __init__(self, search: ListSearch) -> None:
        self.search = search
        self.best: list[Trial] = []
        """Trials kept so far, the best by window first, at most a dozen."""
        self.best_of_rule: dict[str, Trial] = {}
        """The best trial of each rule."""
        self.num_tried = 0
        self._more = self._trials()

    @property
    def met(self) -> bool:
        """Whether the best trial's window is within the target."""
        return bool(self.best) and self.best[0].window_ns <= self.search.target_ns

    def until(self, deadline: Deadline, *, at_least: int = 1) -> list[Trial]:
        """Try on until the target is met, the portfolio ends or the deadline has passed.

        Parameters
        ----------
        deadline
            Of the clock that the search is charged by.
        at_least
            Trials to make whatever the deadline, at least 1.

        Returns
        -------
        list of Trial
            The best so far, at least one.
        """
        while not self.met and (self.num_tried < at_least or not deadline.passed):
            try:
                trial = next(self._more)
            except StopIteration:
                break
            self.num_tried += 1
            if trial is None:
                continue
            known = self.best_of_rule.get(trial.rule)
            if known is None or trial.window_ns < known.window_ns:
                self.best_of_rule[trial.rule] = trial
            self.best.append(trial)
            self.best.sort(key=lambda kept: kept.window_ns)
            del self.best[_KEPT:]
        return self.best

    def _trials(self) -> Iterator[Trial | None]:
        # Passes come early too: a large problem has time for little else.
        rules = rule_parameters()
        for parameters in islice(rules, _EARLY_RULES):
            yield self.search.by_rounds(*parameters)
        if self.search.network.chunks > 1:
            yield from self._blocks()
        yield from self._passes(_EARLY_RULES, _PASS_PATIENCE_SHARES[:2])
        for parameters in rules:
            yield self.search.by_rounds(*parameters)
        yield from self._passes(_PASS_STARTS, _PASS_PATIENCE_SHARES)

    def _blocks(self) -> Iterator[Trial | None]:
        """Squeezed blocks, found for one sound pipeline of few microbatches; then the starts of the best as priorities."""
        problem, search = self.search.problem, self.search
        count = min(max(problem.microbatches), _BLOCK_LAPS * problem.num_slots)
        model = replace(problem, microbatches=(count,), dead=frozenset(), speeds_ppm={})
        frame = Frame(model)
        small = ListSearch(model, np.zeros((count, model.num_stages), dtype=np.int64), search.target_ns, search.clock)

        def window_of(block: Block) -> int | None:
            trial = small.squeezed(frame.starts(block, model.microbatches), float(block[-1]))
            return None if trial is None else trial.window_ns

        operations = 3 * model.num_stages * count
        trials = min(_MOST_BLOCKS, max(_LEAST_BLOCKS, _BLOCK_OPERATIONS // operations))
        best: list[Trial] = []
        for block in search_blocks(frame, window_of, trials, np.random.default_rng(0)):
            trial = None
            if block is not None:
                trial = search.squeezed(frame.starts(block, problem.microbatches), float(block[-1]))
            if trial is not None:
                best = sorted([*best, trial], key=lambda kept: kept.window_ns)[:_EARLY_RULES]
            yield trial
        for share, origin in product(_BLOCK_PATIENCE_SHARES, best):
            yield search.by_starts(origin.start, share)

    def _passes(self, most: int, shares: tuple[float, ...]) -> Iterator[Trial]:
        """What forward-backward passes yield from each of the best trials."""
        for share, origin in product(shares, self.best[:most]):
            yield from self.search.passes(origin.start, share)


def best_timed(problem: Problem, trials: list[Trial], clock: Clock = WALL_CLOCK, most: int = 3) -> tuple[Schedule, int]:
    """Time the most promising trials exactly and return the one of the smallest period."""
    timed = [time_schedule(problem, trial.order(problem)) for trial in trials[:most]]
    clock.charge(len(timed) * work.timing_s(timed[0][0].num_operations))
    return min(timed, key=lambda pair: pair[1])


@njit(cache=True)
def largest_window(
    worker: IntColumn, duration: IntColumn, start: IntColumn, sync: npt.NDArray[np.int64], joint: bool
) -> Any:
    """Largest ``C_s + sync_s - S_s`` over slots, or the makespan plus sync where the slots share one window."""
    slots = len(sync)
    begin = np.full(slots, 2**61, dtype=np.int64)
    end = np.full(slots, -1, dtype=np.int64)
    for node in range(len(worker)):
        if worker[node] >= 0:
            s = worker[node] % slots
            begin[s] = min(begin[s], start[node])
            end[s] = max(end[s], start[node] + duration[node])
    if joint:
        begin[:] = begin.min()
    worst = 0
    for s in range(slots):
        if end[s] >= 0:
            worst = max(worst, end[s] + sync[s] - begin[s])
    return worst
