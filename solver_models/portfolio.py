"""The portfolio: climbs from list schedules over pools, repair and annealing to CP-SAT within a deadline and a target gap.

It never returns without a schedule: the first list schedule is built whatever the deadline, and what fails later is
reported in ``detail`` while the best schedule so far is returned. ``solver`` names what produced it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from planner.bounds import best_bound
from planner.errors import SolverError
from planner.problem import Problem
from planner.timing import time_schedule
from solver_models import registry, work
from solver_models.annealing.search import Annealer, Order
from solver_models.annealing.solve import MOST_ANNEALED_OPERATIONS, anneal_problem
from solver_models.cells import MOST_IDLE_ROUNDS
from solver_models.clock import Clock, Deadline
from solver_models.list_scheduling.routing import balanced_routing
from solver_models.list_scheduling.search import ListRun, ListSearch
from solver_models.pools.search import PoolRun, PoolSearch, can_pool
from solver_models.repair import repair
from solver_models.result import SolveOptions, SolveResult, Status
from solver_models.symmetry import chain_problem, repeat_pipeline, single_pipeline, sound_chains, spread_over_chains

MOST_EXACT_OPERATIONS = 1_200
"""Larger problems are not handed to CP-SAT: it finds nothing better within a deadline of seconds."""

MOST_ANNEALED_POOLS = 5_000
"""In larger problems annealing a pooled schedule takes longer to pay than repair."""

_ANNEALING_SHARE = 0.6
"""Share of the deadline after which a small problem goes to CP-SAT."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shares:
    """Shares of a climb's time after which each stage hands on to the next.

    These are list schedules, pools, annealing of the pooled schedule, stopping broken pipelines, and repair.
    """

    lists: float
    pools: float
    annealed_pools: float
    dropping: float
    repair: float


_SMALL = _Shares(lists=0.15, pools=0.25, annealed_pools=0.35, dropping=0.45, repair=0.75)
_FEW = _Shares(lists=0.15, pools=0.25, annealed_pools=0.33, dropping=0.38, repair=0.85)
_MIDDLE = _Shares(lists=0.06, pools=0.1, annealed_pools=0.1, dropping=0.14, repair=0.96)
_LARGE = _Shares(lists=0.0, pools=0.16, annealed_pools=0.16, dropping=0.4, repair=0.9)
"""A large problem has time for little else than repair: of list schedules it gets the one that is always there."""

_POOLED_MICROBATCHES = 1.5
"""Of larger problems those with more microbatches in a pipeline than this multiple of its slots are not pooled: there a worker
seldom waits for want of a microbatch."""

_MOST_DROPPING_LOSS = 1.01
"""That plan is not looked for where its own lower bound is further than this above the problem's."""

_LEAST_MENDING_S = 10.0
"""Where repair finds nothing more and leaves as much, it begins anew: it ends in few places, far apart."""

_FEW_IDLE_ROUNDS = 6
"""Of annealing in a repair that may begin anew."""

_MENDING_SEEDS = 32_452_843
"""Between the seeds of two repairs."""

_LEAST_EXACT_S = 0.4
"""CP-SAT's child needs about as long to start and build its model."""


def solve(problem: Problem, options: SolveOptions, clock: Clock | None = None) -> SolveResult:
    """Solve a problem as well as the deadline allows.

    Parameters
    ----------
    problem, options
        The instance and its limits.
    clock
        Whose time the deadline is of; a new one by default.

    Raises
    ------
    NoPlanError
        If a slot has no live worker or memory does not hold one microbatch.
    """
    started = time.monotonic()
    deadline = options.deadline(clock)
    problem.require_plannable()
    bound = best_bound(problem).value_ns
    deadline.clock.charge(work.bounds_s(problem.num_operations))
    one = single_pipeline(problem)
    result = _climb(problem if one is None else one, options, bound, deadline)
    if one is None:
        return replace(result, wall_s=time.monotonic() - started)
    assert result.schedule is not None
    # What is proved about one pipeline alone is not proved where microbatches may also change pipelines.
    return replace(
        result,
        schedule=repeat_pipeline(result.schedule, problem.num_pipelines),
        bound_ns=bound,
        status=Status.OPTIMAL if result.period_ns == bound else Status.FEASIBLE,
        wall_s=time.monotonic() - started,
    )


def _target(bound_ns: int, options: SolveOptions) -> int:
    return int(bound_ns * (1 + options.target_gap))


def _drop_broken(problem: Problem, options: SolveOptions, bound_ns: int, deadline: Deadline) -> SolveResult | None:
    """Run all microbatches on chains of sound workers, from end to end; ``None`` where that cannot pay."""
    chains = sound_chains(problem)
    if chains is None:
        return None
    one = chain_problem(problem, chains)
    deadline.clock.charge(work.bounds_s(one.num_operations))
    if best_bound(one).value_ns > bound_ns * _MOST_DROPPING_LOSS:
        return None
    order = anneal_problem(one, options, _target(bound_ns, options), deadline)
    schedule, period = time_schedule(problem, spread_over_chains(problem, chains, order.schedule))
    deadline.clock.charge(work.timing_s(schedule.num_operations))
    return SolveResult.found(order.solver, schedule, period, bound_ns)


def _pool(problem: Problem, options: SolveOptions, target_ns: int, deadline: Deadline) -> Order | None:
    """Let whoever is free take what waits there; ``None`` where pools do not know such problems or there is no time."""
    many = max(problem.microbatches) > _POOLED_MICROBATCHES * problem.num_slots
    if not can_pool(problem) or (many and problem.num_operations > MOST_ANNEALED_POOLS):
        return None
    return PoolRun(PoolSearch(problem, target_ns, deadline.clock), options.seed).until(deadline)


def _mend(lists: ListRun, options: SolveOptions, deadline: Deadline) -> Order | None:
    """Repair, and as long as that leaves much time again with another seed."""
    best, seed = None, options.seed
    while True:
        long = deadline.left_s > _LEAST_MENDING_S
        found = repair(
            lists, replace(options, seed=seed), deadline.rest(), _FEW_IDLE_ROUNDS if long else MOST_IDLE_ROUNDS
        )
        if found is None:
            return None
        best = found if best is None or found.period_ns < best.period_ns else best
        seed += _MENDING_SEEDS
        if best.period_ns <= lists.search.target_ns or deadline.left_s <= _LEAST_MENDING_S:
            return best


def _climb(problem: Problem, options: SolveOptions, bound_ns: int, deadline: Deadline) -> SolveResult:
    """Lists, pools, dropping, repair, annealing and CP-SAT in turn, as long as the target is not met."""
    target = _target(bound_ns, options)
    operations = problem.num_operations
    exact, large = operations <= MOST_EXACT_OPERATIONS, operations > MOST_ANNEALED_OPERATIONS
    climb = deadline.share(_ANNEALING_SHARE if exact else 1.0)
    lists = ListRun(ListSearch(problem, balanced_routing(problem), target, deadline.clock))
    few = operations <= MOST_ANNEALED_POOLS
    shares = _LARGE if large else _SMALL if exact else _FEW if few else _MIDDLE
    lists.until(climb.share(shares.lists))
    dropped = mended = pooled = None
    if not lists.met and (problem.dead or problem.speeds_ppm):
        pooled = _pool(problem, options, target, climb.share(shares.pools))
        # What is behind the best list schedule too is not worth more of the time than shuffling had.
        if pooled is not None and (few or pooled.period_ns <= lists.best[0].window_ns):
            annealer = Annealer(problem, pooled.network, target, options.workers)
            pooled = annealer.improve(pooled, deadline=climb.share(shares.annealed_pools), seed=options.seed)
        if pooled is not None and pooled.period_ns <= target:
            return SolveResult.found(pooled.solver, pooled.schedule, pooled.period_ns, bound_ns)
        # Rerouting in place comes first where it is as good: it leaves more workers at home.
        dropped = _drop_broken(problem, options, bound_ns, climb.share(shares.dropping))
        if dropped is not None and dropped.period_ns is not None and dropped.period_ns <= target:
            return dropped
        mended = _mend(lists, options, climb.share(shares.repair))
    if large and mended is not None and mended.period_ns <= lists.best[0].window_ns:
        order = mended
    else:
        found = min((o for o in (pooled, mended) if o is not None), key=lambda o: o.period_ns, default=None)
        order = anneal_problem(problem, options, target, climb, lists=lists, found=found)
    best = SolveResult.found(order.solver, order.schedule, order.period_ns, bound_ns)
    if dropped is not None and dropped.period_ns is not None and dropped.period_ns < order.period_ns:
        best = dropped
    left_s = deadline.left_s
    if exact and best.period_ns is not None and best.period_ns > target and left_s > _LEAST_EXACT_S:
        best = _try_exact(problem, replace(options, deadline_s=left_s), best, deadline.clock)
    return best


def _try_exact(problem: Problem, options: SolveOptions, best: SolveResult, clock: Clock) -> SolveResult:
    """CP-SAT from the best schedule so far; what goes wrong is told, and what it had found by then is kept."""
    if options.deterministic:
        options = replace(options, workers=1)
    try:
        found = registry.solve("cp_sat", problem, options, hint=best.schedule, clock=clock)
    except SolverError as error:
        return replace(best, failure=f"cp_sat could not be used: {error.message}")
    if found.status is Status.INVALID_MODEL:
        # Neither the order nor the bound of a wrong model can be trusted.
        return replace(best, failure=f"cp_sat ended with {found.status}: {found.detail}")
    bound = max(best.bound_ns, found.bound_ns)
    if found.schedule is not None and found.period_ns is not None and best.period_ns is not None:
        improved = found.period_ns < best.period_ns
        if improved:
            best = replace(best, schedule=found.schedule, period_ns=found.period_ns, solver="cp_sat")
    status = Status.OPTIMAL if best.period_ns == bound else Status.FEASIBLE
    return replace(best, bound_ns=bound, status=status, failure=found.failure)
