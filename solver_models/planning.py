"""From a job and what failed to a plan: normalise, solve, put onto the real workers, check, compare.

Nothing leaves here unchecked: every schedule has passed :mod:`planner.validation` on the real problem, a replay that
confirms its period to the tick, and the deadlock proof of its lowered programs.
"""

from __future__ import annotations

import time
from dataclasses import replace

from planner.baseline import baseline_period_ns
from planner.bounds import Bound, lower_bounds
from planner.claims import SEARCH
from planner.errors import InvalidScheduleError
from planner.failures import FailureSet
from planner.job import Job
from planner.normalization import relabel, relabelling
from planner.optimizer_state import replica_notes, require_optimizer_state
from planner.plan import Plan
from planner.plan_check import check_schedule
from planner.problem import Problem
from solver_models.clock import Clock
from solver_models.compilation import watched_compilation
from solver_models.plan_assembly import Reference, Solved, assemble_plan
from solver_models.result import SolveOptions, SolveResult
from solver_models.ways import LEAST_SHARE, moves_that_pay, solve_best, solve_canonical, ways_to_move, why_not_moved

__all__ = ["Reference", "make_plan", "make_reference"]

REFERENCE_SHARE = 0.25
"""Share of the deadline that the fault-free plan, which a plan is compared with, may take."""

OVERRUN_S = 1.0
"""Seconds past its deadline after which a whole search, the comparison included, is said to have overrun it."""


def make_plan(
    job: Job,
    failures: FailureSet,
    options: SolveOptions,
    *,
    migrate: bool | None = None,
    shards_restored: bool = False,
    reference: Reference | None = None,
) -> Plan:
    """Plan a job around what failed.

    Parameters
    ----------
    job
        The job.
    failures
        What is down and what is slow.
    options
        Limits of the whole call; the deadline covers the comparison with the fault-free plan too. A deterministic call gives the
        same ``plan_id`` every time.
    migrate
        True: plan after migrations where a plan in place is not as good, see :mod:`solver_models.ways`. False: do not
        look at migrations. ``None``: plan in place, and advise migrations where their time pays back.
    shards_restored
        Whether optimizer shards that the failures took have been restored already.
    reference
        The job's, where the caller has it from before.

    Raises
    ------
    StageLostError, MemoryTooSmallError
        If no plan can exist.
    OptimizerShardLostError
        If a failure took the only copy of optimizer state.
    InvalidScheduleError, DeadlockError
        If a solver's schedule fails the checks: a bug of ours, and nothing is returned.
    """
    began, deadline = time.perf_counter(), options.deadline()
    real = job.problem(failures.dead, failures.speeds_ppm)
    real.require_plannable()
    if not shards_restored:
        require_optimizer_state(job, failures.dead)
    ways = ways_to_move(job, real) if migrate and real.dead else ((),)
    reference_failure = ""
    with watched_compilation() as compilation:
        if reference is None and (real.dead or real.speeds_ppm):
            sooner = replace(options, deadline_s=REFERENCE_SHARE * options.deadline_s)
            reference = make_reference(job, sooner, deadline.clock)
            reference_failure = reference.failure
        left = replace(options, deadline_s=max(deadline.left_s, LEAST_SHARE * options.deadline_s))
        way = solve_best(real, ways, left, deadline.clock)
    found = way.result
    if reference is None:
        assert found.period_ns is not None
        reference = Reference(fault_free_ns=found.period_ns, baseline_1f1b_ns=baseline_period_ns(real))
    # Work that was counted is neither taken away by compiling nor late.
    late_s = 0.0 if options.deterministic else time.perf_counter() - began - options.deadline_s
    compiled = bool(compilation) and not options.deterministic
    hindrances = _hindrances(found, reference_failure, compiled=compiled, overrun_s=late_s)
    emptied = {move.source for move in way.moves}
    notes = (
        *(why_not_moved(job, way.moves) if migrate and real.dead else ()),
        *replica_notes(job, failures.dead | emptied),
    )
    solved = _put_on_workers(job, way.problem, found)
    return assemble_plan(
        job,
        failures,
        options,
        solved,
        reference=reference,
        migrations=way.moves,
        advised_migrations=moves_that_pay(job, real) if migrate is None else (),
        notes=(*notes, *hindrances),
        hindered=bool(hindrances),
        began=began,
    )


def make_reference(job: Job, options: SolveOptions, clock: Clock | None = None) -> Reference:
    """Plan the job with every worker live and at full speed, and time 1F1B; by a new clock where none is given."""
    problem = job.problem()
    problem.require_plannable()
    baseline_ns = baseline_period_ns(problem)
    found = solve_canonical(problem, options, clock)
    assert found.period_ns is not None
    return Reference(
        fault_free_ns=min(found.period_ns, baseline_ns), baseline_1f1b_ns=baseline_ns, failure=found.failure
    )


def _hindrances(found: SolveResult, reference_failure: str, *, compiled: bool, overrun_s: float) -> list[str]:
    """What kept the search from doing all that it was given the time for, one sentence each."""
    told = []
    if reference_failure:
        told.append(f"the fault-free plan may be better than was found: {reference_failure}")
    if found.failure:
        told.append(found.failure)
    if compiled:
        told.append("code was compiled during the search, as in the first run after an installation: it had less time")
    elif not told and overrun_s > OVERRUN_S:
        told.append(f"the search overran its deadline; {found.solver} had the best schedule by then")
    return told


def _put_on_workers(job: Job, problem: Problem, result: SolveResult) -> Solved:
    """Put the canonical problem's schedule onto the real workers and check it there."""
    assert result.schedule is not None
    assert result.period_ns is not None
    racks = job.worker_racks().reshape(job.num_pipelines, job.num_slots)
    seats = relabelling(problem, racks, schedule=result.schedule)
    schedule = relabel(result.schedule, seats)
    replayed = check_schedule(problem, schedule, result.period_ns)
    bounds = tuple(lower_bounds(problem))
    return Solved(
        problem=problem,
        schedule=schedule,
        period_ns=result.period_ns,
        replayed=replayed,
        seats=seats,
        bounds=bounds,
        bound=_best_bound(bounds, result, result.period_ns),
        solver=result.solver,
    )


def _best_bound(bounds: tuple[Bound, ...], result: SolveResult, period_ns: int) -> Bound:
    best = max(bounds, key=lambda bound: bound.value_ns)
    if result.bound_ns > best.value_ns:
        best = Bound(name=SEARCH, value_ns=result.bound_ns, slot=None, detail="proved by a solver's search")
    if best.value_ns > period_ns:
        raise InvalidScheduleError(
            f"the bound {best.name} says that no period is below {best.value_ns} ns, but a plan has {period_ns} ns"
        )
    return best
