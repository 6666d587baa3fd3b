"""Large-neighbourhood search: CP-SAT on a part of a schedule at a time, the rest keeping its order.

Every round asks one neighbourhood for a period below the best. The next is larger where CP-SAT has refuted it and smaller where
it ran out of time. The search ends at proof (the known bound is met, or a neighbourhood that frees everything is refuted), at
the deadline, or when nothing has improved for :data:`STAGNATION_ROUNDS` rounds.
"""

from __future__ import annotations

import random

from planner.errors import OptionError
from solver_models.cp_sat_search import Progress, lower_units, solve_model, window_period_ns
from solver_models.improve_neighbourhoods import choose_neighbourhood, neighbourhood_model
from solver_models.result import Status
from solver_models.search import Found, Report, SearchInput
from solver_models.ticks import choose_ticks

MAX_OPERATIONS = 30_000
"""Largest schedule taken: every round models all of its times."""

MAX_COUNTED_OPERATIONS = 2_000
"""Largest schedule taken where work is counted: what CP-SAT propagates of larger models before it searches is not counted."""

STAGNATION_ROUNDS = 60
"""Rounds without improvement after which the search ends."""

_FIRST_SIZE, _LEAST_SIZE, _MOST_SIZE = 90, 30, 900
_ROUND_S = 2.0


def search(given: SearchInput, report: Report) -> Found:
    """Improve ``given.hint`` until proof, deadline or stagnation.

    Raises
    ------
    OptionError
        If there is no schedule to start from, or it is larger than :data:`MAX_OPERATIONS`, or than :data:`MAX_COUNTED_OPERATIONS`
        where work is counted.
    """
    if given.hint is None:
        raise OptionError("improve has no schedule to start from", hint="give a hint, for example the list schedule")
    most = MAX_COUNTED_OPERATIONS if given.options.deterministic else MAX_OPERATIONS
    if given.hint.num_operations > most:
        when = " where work is counted" if given.options.deterministic else ""
        raise OptionError(
            f"the schedule has {given.hint.num_operations} operations; improve takes at most {most}{when}"
        )
    progress = Progress(
        given=given,
        report=report,
        bound_ns=given.floor_ns,
        schedule=given.hint,
        period_ns=window_period_ns(given.problem, given.hint),
    )
    rng = random.Random(given.options.seed)
    size, idle, rounds = float(_FIRST_SIZE), 0, 0
    while idle < STAGNATION_ROUNDS and not progress.good_enough and given.left_s() > 0:
        rounds += 1
        before = progress.period_ns
        status = _round(progress, int(size), rng)
        idle = 0 if progress.period_ns != before else idle + 1
        if status is Status.NO_PLAN_BY_DEADLINE:
            size = max(_LEAST_SIZE, size * 0.85)
        elif status is Status.INFEASIBLE:
            size = min(_MOST_SIZE, size * 1.15)
    ending = "proved" if progress.good_enough else "stagnated" if idle >= STAGNATION_ROUNDS else "deadline"
    return Found(
        status=Status.OPTIMAL if progress.good_enough else Status.FEASIBLE,
        schedule=progress.schedule,
        bound_ns=progress.bound_ns,
        detail=f"{rounds} neighbourhoods, {ending}",
    )


def _round(progress: Progress, size: int, rng: random.Random) -> Status:
    """Ask one neighbourhood for something better."""
    given, problem = progress.given, progress.given.problem
    assert progress.schedule is not None
    assert progress.period_ns is not None
    near = choose_neighbourhood(problem, progress.schedule, size, rng)
    everything = near.is_everything(problem)
    ticks = choose_ticks(problem, given.floor_ns, exact=everything)
    upper = ticks.period_units(progress.period_ns - 1)
    if not everything:
        # Rounding up would ask for the period that is there already.
        upper = min(upper, ticks.period_units(max(0, progress.period_ns - ticks.tick_ns)))
    lower = min(lower_units(ticks, progress.bound_ns), upper)
    model = neighbourhood_model(problem, ticks, progress.schedule, near, lower=lower, upper=upper)
    if lower < upper:
        model.cp.minimize(model.period)
    limit = given.left_s() if everything else min(_ROUND_S, given.left_s())
    status, _ = solve_model(model, progress, limit, whole=everything)
    if everything and status is Status.INFEASIBLE:
        progress.bound_ns = max(progress.bound_ns, ticks.bound_ns(upper + 1))
    return status
