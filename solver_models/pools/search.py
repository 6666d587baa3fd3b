"""The pooled list schedules of a problem: parameters in a fixed order, then shuffled ranks, then forward-backward passes.

Routing before scheduling leaves each microbatch with the worker it was dealt, however busy that is when it comes. Where workers
are missing and microbatches are few, most of the period is waiting, and it pays to let whoever is free take what is there, in
sound slots too: the microbatches of a broken pipeline then flow through all others, and nobody's gradients come late.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import numpy.typing as npt

from planner.operation import Kind, Worker
from planner.problem import Optimizer, Problem
from planner.schedule import IntColumn
from solver_models import work
from solver_models.annealing.search import Order, timed_order
from solver_models.clock import WALL_CLOCK, Clock, Deadline
from solver_models.list_scheduling.network import UNLIMITED_BYTES, order_by_turn, schedule_in_order
from solver_models.list_scheduling.routing import most_loads
from solver_models.list_scheduling.search import ListSearch, Trial, largest_window
from solver_models.pools.engine import ANYONE, HOME, PIPELINE, construct_pooled
from solver_models.pools.names import near_home

NAME = "pools"

MOST_POOLED_OPERATIONS = 40_000
"""A construction takes time in proportion to operations times microbatches; a larger problem is not tried."""

_LOAD_SHARES = (0.8, 0.0, 0.9)
_PREFERENCES = (PIPELINE, ANYONE, HOME)
_PATIENCE_SHARES = (0.0, 0.3)
_MARGIN_SHARES = (0.0, 0.5)
_TARGET_FACTORS = (1.0, 0.9)
_PASS_PATIENCE_SHARES = (0.6, 0.3, 0.0)
_SHUFFLES = 40
_SHUFFLED_SHARE = 0.15
"""Ranks are shuffled by up to this share of an iteration."""
_KEPT = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRule:
    """One way to construct.

    Parameters
    ----------
    load_share
        A worker may get more than an even share of its slot's microbatches while these take less than this share of the target.
    preference
        Which worker an F prefers; a constant of the engine.
    patience_share, margin_share
        How long to wait for an I, as a share of F, and by how much a W may delay an F, as a share of W.
    target_factor
        Windows to keep to, as a multiple of the target.
    """

    load_share: float
    preference: int
    patience_share: float
    margin_share: float
    target_factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolTrial:
    """One schedule: its rule, who runs what, shape ``(sum(M), V)``, start and turn of each network node, the largest window."""

    rule: PoolRule
    routing: IntColumn
    start: IntColumn
    turn: IntColumn
    window_ns: int


def can_pool(problem: Problem) -> bool:
    """Whether the construction knows such problems: one stage a slot, not too many operations."""
    return problem.num_operations <= MOST_POOLED_OPERATIONS and all(len(slot.stages) == 1 for slot in problem.slots)


class PoolSearch:
    """Constructs pooled schedules of one problem.

    Parameters
    ----------
    problem
        One that :func:`can_pool` allows, every slot with a live worker.
    target_ns
        Period that counts as good enough; the lower bound serves.
    clock
        Is told what schedules cost.
    """

    def __init__(self, problem: Problem, target_ns: int, clock: Clock = WALL_CLOCK) -> None:
        self.problem, self.target_ns, self.clock = problem, target_ns, clock
        # Stage v need not lie in slot v; the engine counts slots in the order of their stages.
        self._slot_of = np.array(problem.slot_of_stage, dtype=np.int64)
        slots = [problem.slots[s] for s in problem.slot_of_stage]
        self._home = np.repeat(np.arange(problem.num_pipelines, dtype=np.int64), problem.microbatches)
        self._place = np.concatenate([(np.arange(m) * 2 + 1) / (2 * m) for m in problem.microbatches if m])
        self._joint = problem.optimizer is Optimizer.GLOBAL
        sync = np.array([slot.sync_ns for slot in slots], dtype=np.int64)
        self._sync = np.full_like(sync, sync.max()) if self._joint else sync
        self._split = np.array([stage.splittable for stage in problem.stages])
        self._cost = np.array(
            [[s.forward_ns, s.input_grad_ns, s.weight_grad_ns] for s in problem.stages], dtype=np.int64
        )
        self._duration = _durations(problem)
        self._transfer, self._held, kept = (
            np.array([getattr(stage, name) for stage in problem.stages], dtype=np.int64)
            for name in ("transfer_ns", "activation_bytes", "weight_grad_bytes")
        )
        self._kept = np.where(self._split, kept, 0)
        self._capacity = np.array(
            [UNLIMITED_BYTES if slot.capacity_bytes is None else slot.capacity_bytes for slot in slots], dtype=np.int64
        )
        self._even = np.stack([most_loads(problem, s) for s in problem.slot_of_stage], axis=1)

    def rank(self, noise: npt.NDArray[np.float64] | float = 0.0) -> IntColumn:
        """Place of each microbatch: by the share of its pipeline's iteration before it, plus noise."""
        rank: IntColumn = np.empty(len(self._home), dtype=np.int64)
        rank[np.lexsort((self._home, self._place + noise))] = np.arange(len(self._home))
        return rank

    def construct(self, rule: PoolRule, rank: IntColumn) -> PoolTrial | None:
        """Construct one schedule; ``None`` where loads or memory come to a standstill."""
        room = (self.target_ns * rule.target_factor - self._sync).astype(np.int64)
        each = np.maximum(1, self._duration.sum(axis=2))
        most = np.maximum(self._even, (room * rule.load_share / each).astype(np.int64))
        most = np.where(self._even > 0, np.minimum(most, len(rank)), 0)
        # Where nobody may have more than an even share, only so many may reach it.
        few = (most > 0).sum(axis=0) - np.where((most == self._even).all(axis=0), self._even.sum(axis=0) - len(rank), 0)
        start, turn, routing, looks = construct_pooled(
            rank,
            self._home,
            self._duration,
            self._split,
            self._transfer,
            self._held,
            self._kept,
            self._capacity,
            room,
            self._joint,
            self._even,
            most,
            few,
            (rule.patience_share * self._cost[:, Kind.F]).astype(np.int64),
            (rule.margin_share * self._cost[:, Kind.W]).astype(np.int64),
            rule.preference,
        )
        self.clock.charge(work.pooled_s(self.problem.num_operations, looks))
        if start[0, 0, 0] < 0:
            return None
        return PoolTrial(
            rule=rule,
            routing=routing,
            start=start.reshape(-1),
            turn=turn.reshape(-1),
            window_ns=self._window(start, routing),
        )

    def renamed(self, trial: PoolTrial) -> PoolTrial:
        """The same schedule with names of workers and microbatches by which more are at home."""
        self.clock.charge(work.naming_s(self.problem.num_operations, self.problem.num_pipelines))
        by_microbatch = trial.start.reshape(len(trial.routing), -1)
        named, routing = near_home(self.problem, trial.routing, by_microbatch[:, Kind.F])
        return replace(
            trial,
            routing=routing,
            start=by_microbatch[named].reshape(-1),
            turn=trial.turn.reshape(len(trial.routing), -1)[named].reshape(-1),
        )

    def _window(self, start: IntColumn, routing: IntColumn) -> int:
        stage = np.arange(len(self._slot_of))
        worker = np.repeat((routing * len(stage) + stage)[:, :, None], 3, axis=2)
        worker[:, ~self._split, Kind.W] = -1
        duration = self._duration[routing, stage]
        return int(largest_window(worker.reshape(-1), duration.reshape(-1), start.reshape(-1), self._sync, self._joint))


class PoolRun:
    """Pooled schedules of a problem: every rule, then shuffled ranks, then passes over the best.

    Parameters
    ----------
    search
        What constructs the schedules.
    seed
        Of the shuffled ranks.
    """

    def __init__(self, search: PoolSearch, seed: int) -> None:
        self.search = search
        self._rng = np.random.default_rng(seed)
        self.best: list[PoolTrial] = []
        """Trials kept so far, the best by window first."""

    def until(self, deadline: Deadline) -> Order | None:
        """Try until the target is met, nothing is left to try or the deadline has passed; the best order."""
        target = self.search.target_ns
        for rule, rank in self._attempts():
            if deadline.passed or (self.best and self.best[0].window_ns <= target):
                break
            trial = self.search.construct(rule, rank)
            if trial is not None:
                self.best.append(trial)
                self.best.sort(key=lambda kept: kept.window_ns)
                del self.best[_KEPT:]
        found: list[Order] = []
        for trial in self.best:
            if found and (deadline.passed or min(order.period_ns for order in found) <= target):
                break
            found.extend(self._orders(trial, deadline))
        return min(found, key=lambda order: order.period_ns, default=None)

    def _attempts(self) -> Iterator[tuple[PoolRule, IntColumn]]:
        rank = self.search.rank()
        for load, preference, patience, margin, factor in product(
            _LOAD_SHARES, _PREFERENCES, _PATIENCE_SHARES, _MARGIN_SHARES, _TARGET_FACTORS
        ):
            rule = PoolRule(
                load_share=load,
                preference=preference,
                patience_share=patience,
                margin_share=margin,
                target_factor=factor,
            )
            yield rule, rank
        for _ in range(_SHUFFLES if self.best else 0):
            yield self.best[0].rule, self.search.rank(_SHUFFLED_SHARE * self._rng.random(len(rank)))

    def _orders(self, trial: PoolTrial, deadline: Deadline) -> Iterator[Order]:
        """The trial's own order, and the best of forward-backward passes from it."""
        problem, clock = self.search.problem, self.search.clock
        trial = self.search.renamed(trial)
        lists = ListSearch(problem, trial.routing, self.search.target_ns, clock)
        order = schedule_in_order(problem, lists.network, order_by_turn(lists.network, trial.turn))
        yield timed_order(problem, lists.network, order, NAME, clock)
        passes: list[Trial] = []
        for share in _PASS_PATIENCE_SHARES:
            if not deadline.passed:
                passes.extend(lists.passes(trial.start, share))
        if passes:
            best = min(passes, key=lambda kept: kept.window_ns)
            yield timed_order(problem, best.network, best.order(problem), NAME, clock)


def _durations(problem: Problem) -> IntColumn:
    """F, I and W of each worker, shape ``(D, V, 3)``; the whole backward as I where it cannot split, -1 for dead workers."""
    slots = problem.slot_of_stage
    duration = np.full((problem.num_pipelines, len(slots), 3), -1, dtype=np.int64)
    for v, s in enumerate(slots):
        for k in problem.live_pipelines(s):
            if problem.stages[v].splittable:
                kinds = [problem.duration_ns(kind, v, Worker(k, s)) for kind in (Kind.F, Kind.I, Kind.W)]
            else:
                kinds = [problem.duration_ns(kind, v, Worker(k, s)) for kind in (Kind.F, Kind.B)] + [0]
            duration[k, v] = kinds
    return duration
