"""The portfolio: climbs from list schedules over annealing to CP-SAT within a deadline and a target gap.

It never returns without a schedule: the first list schedule is built whatever the deadline, and what fails later is
reported in ``detail`` while the best schedule so far is returned. ``solver`` names what produced it.
"""

from __future__ import annotations

import time
from dataclasses import replace

from planner.bounds import best_bound
from planner.errors import SolverError
from planner.problem import Problem
from planner.timing import time_schedule
from solver_models import registry
from solver_models.annealing.solve import anneal_problem
from solver_models.list_scheduling.routing import balanced_routing
from solver_models.list_scheduling.search import ListSearch, search_lists
from solver_models.result import SolveOptions, SolveResult, Status
from solver_models.symmetry import intact_pipeline, repeat_pipeline, single_pipeline, spread_over_intact

MOST_EXACT_OPERATIONS = 1_200
"""Larger problems are not handed to CP-SAT: it finds nothing better within a deadline of seconds."""

_ANNEALING_SHARE = 0.6
"""Share of the deadline after which a small problem goes to CP-SAT."""

_DROPPING_SHARE = 0.3
"""Share of the deadline for the plan that stops broken pipelines."""

_MOST_DROPPING_LOSS = 1.01
"""That plan is not looked for where its own lower bound is further than this above the problem's."""

_LEAST_EXACT_S = 0.4
"""CP-SAT's child needs about as long to start and build its model."""


def solve(problem: Problem, options: SolveOptions) -> SolveResult:
    """Solve a problem as well as the deadline allows.

    Raises
    ------
    NoPlanError
        If a slot has no live worker or memory does not hold one microbatch.
    """
    started = time.monotonic()
    problem.require_plannable()
    bound = best_bound(problem).value_ns
    one = single_pipeline(problem)
    if one is None:
        dropped = _drop_broken(problem, options, bound, started)
        if dropped is not None and dropped.period_ns is not None and dropped.period_ns <= _target(bound, options):
            return dropped
        left = replace(options, deadline_s=max(0.05, options.deadline_s - (time.monotonic() - started)))
        result = _climb(problem, left, bound, time.monotonic(), incumbent=dropped)
        return replace(result, wall_s=time.monotonic() - started)
    result = _climb(one, options, bound, started)
    assert result.schedule is not None
    # What is proved about one pipeline alone is not proved where microbatches may also change pipelines.
    return replace(
        result,
        schedule=repeat_pipeline(result.schedule, problem.num_pipelines),
        bound_ns=bound,
        status=Status.OPTIMAL if result.period_ns == bound else Status.FEASIBLE,
    )


def _target(bound_ns: int, options: SolveOptions) -> int:
    return int(bound_ns * (1 + options.target_gap))


def _drop_broken(problem: Problem, options: SolveOptions, bound_ns: int, started: float) -> SolveResult | None:
    """Stop the pipelines that lost a worker and spread their microbatches; ``None`` where that cannot pay."""
    one = intact_pipeline(problem)
    if one is None or best_bound(one).value_ns > bound_ns * _MOST_DROPPING_LOSS:
        return None
    in_place = ListSearch(problem, balanced_routing(problem), _target(bound_ns, options))
    if search_lists(in_place, started + _DROPPING_SHARE / 2 * options.deadline_s)[0].window_ns <= in_place.target_ns:
        return None  # rerouting in place is as good, and leaves more workers at home
    order, name = anneal_problem(
        one, options, _target(bound_ns, options), started + _DROPPING_SHARE * options.deadline_s
    )
    schedule, period = time_schedule(problem, spread_over_intact(problem, order.schedule))
    return SolveResult(
        status=Status.OPTIMAL if period <= bound_ns else Status.FEASIBLE,
        solver=name,
        schedule=schedule,
        period_ns=period,
        bound_ns=bound_ns,
        wall_s=time.monotonic() - started,
    )


def _climb(
    problem: Problem, options: SolveOptions, bound_ns: int, started: float, incumbent: SolveResult | None = None
) -> SolveResult:
    target = _target(bound_ns, options)
    deadline = started + options.deadline_s
    operations = 3 * problem.num_stages * problem.num_microbatches
    exact = operations <= MOST_EXACT_OPERATIONS
    share = _ANNEALING_SHARE if exact else 1.0
    order, name = anneal_problem(problem, options, target, started + share * options.deadline_s)
    best = SolveResult(
        status=Status.OPTIMAL if order.period_ns <= bound_ns else Status.FEASIBLE,
        solver=name,
        schedule=order.schedule,
        period_ns=order.period_ns,
        bound_ns=bound_ns,
        wall_s=0.0,
    )
    if incumbent is not None and incumbent.period_ns is not None and incumbent.period_ns < order.period_ns:
        best = incumbent
    left = deadline - time.monotonic()
    if exact and best.period_ns is not None and best.period_ns > target and left > _LEAST_EXACT_S:
        best = _try_exact(problem, replace(options, deadline_s=left), best)
    return replace(best, wall_s=time.monotonic() - started)


def _try_exact(problem: Problem, options: SolveOptions, best: SolveResult) -> SolveResult:
    """CP-SAT from the best schedule so far; what goes wrong is told, and what it had found by then is kept."""
    try:
        found = registry.solve("cp_sat", problem, options, hint=best.schedule)
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
