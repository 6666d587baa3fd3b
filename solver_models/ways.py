"""Ways to go on with the workers that are left: in place, or after migrations; and the best of several, by their plans.

Migrations are found by lower bounds, which say where a failure hurts least but not what a search will find. With few failures
the two agree. With many, bounds pile them up in slots that seem to bear them, where level counts leave most pipelines whole
and do no harm to those. So both ways are planned, and staying in place where that may be better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from planner.bounds import best_bound
from planner.errors import SolverError
from planner.failure_key import canonical_problem
from planner.job import Job
from planner.ladder import migration_advice
from planner.migration import Migration, apply_migrations, bound_estimate, worthwhile
from planner.optimizer_state import why_nobody_moves
from planner.problem import Problem
from solver_models import portfolio
from solver_models.clock import Clock
from solver_models.result import SolveOptions, SolveResult

LEAST_SHARE = 0.05
"""Share of a deadline that each search is given, however little is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SolvedWay:
    """Migrations, the real problem once they are done, and the schedule of its canonical problem."""

    moves: tuple[Migration, ...]
    problem: Problem
    result: SolveResult


def solve_canonical(problem: Problem, options: SolveOptions, clock: Clock | None = None) -> SolveResult:
    """Best schedule of a problem's canonical problem; by a new clock where none is given.

    Raises
    ------
    SolverError
        If the portfolio ends without a schedule: a bug of ours.
    """
    result = portfolio.solve(canonical_problem(problem), options, clock)
    if result.schedule is None or result.period_ns is None:
        raise SolverError(f"solver {result.solver} ended with {result.status} and no schedule: {result.detail}")
    return result


def solve_best(
    problem: Problem, ways: Sequence[tuple[Migration, ...]], options: SolveOptions, clock: Clock | None = None
) -> SolvedWay:
    """Plan each way that may be the best so far, and return the one with the shortest period; of equals the fewest moves.

    Parameters
    ----------
    problem
        The real problem, nobody moved yet.
    ways
        Migrations of each way, at least one; the most promising first. None of them is to stay in place.
    options
        Limits of all searches together.
    clock
        Whose time the deadline is of; a new one by default.
    """
    deadline = options.deadline(clock)
    best: SolvedWay | None = None
    for index, moves in enumerate(ways):
        moved = apply_migrations(problem, moves)
        if best is not None and best_bound(moved).value_ns > _period_ns(best.result):
            continue
        deadline_s = max(deadline.left_s / (len(ways) - index), LEAST_SHARE * options.deadline_s)
        result = solve_canonical(moved, replace(options, deadline_s=deadline_s), deadline.clock)
        found = SolvedWay(moves=moves, problem=moved, result=result)
        if best is None or (_period_ns(result), len(moves)) < (_period_ns(best.result), len(best.moves)):
            best = found
    assert best is not None, "there is at least one way"
    return best


def ways_to_move(job: Job, problem: Problem) -> tuple[tuple[Migration, ...], ...]:
    """Migrations that may shorten the period, the most promising first; last comes staying in place.

    The smallest lower bound comes first, then level counts, which leave as many pipelines whole as can be.
    """
    estimate = bound_estimate(problem)
    return tuple(
        dict.fromkeys(
            (*(migration_advice(job, problem, estimate, level=level).migrations for level in (False, True)), ())
        )
    )


def moves_that_pay(job: Job, problem: Problem) -> tuple[Migration, ...]:
    """Migrations whose time pays back before the next expected failure or repair, by lower bounds."""
    if not problem.dead:
        return ()
    advice = migration_advice(job, problem, bound_estimate(problem))
    pays = advice.seconds is not None and worthwhile(
        advice,
        next_failure_s=job.recovery.mean_time_between_failures_s,
        next_repair_s=job.recovery.repair_s or None,
    )
    return advice.migrations if pays else ()


def why_not_moved(job: Job, moves: tuple[Migration, ...]) -> tuple[str, ...]:
    """What a reader of a plan that was to migrate has to know about it."""
    if (reason := why_nobody_moves(job)) is not None:
        return (f"nobody is moved: {reason}",)
    if moves and any(job.state_bytes(slot) is None for slot in range(job.num_slots)):
        return ("the bytes that migrations copy are not known: parameter_bytes or optimizer_state_bytes is missing",)
    return ()


def _period_ns(result: SolveResult) -> int:
    assert result.period_ns is not None, "solve_canonical returns schedules only"
    return result.period_ns
