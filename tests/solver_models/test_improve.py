"""Neighbourhood search: never worse, better where it can be, and neighbourhoods that hold the current schedule."""

from __future__ import annotations

import random

import pytest
from ortools.sat.python import cp_model

from planner.errors import OptionError
from planner.problem import Problem
from planner.replay import replay
from planner.schedule import Schedule
from planner.timing import time_schedule
from planner.validation import require_valid
from solver_models import improve
from solver_models.clock import Deadline
from solver_models.cp_sat_search import window_period_ns
from solver_models.improve_neighbourhoods import (
    choose_neighbourhood,
    neighbourhood_model,
    slots_neighbourhood,
)
from solver_models.improve_search import search
from solver_models.list_scheduling import solve as list_schedule
from solver_models.result import SolveOptions, Status
from solver_models.search import SearchInput, ignore_report
from solver_models.ticks import choose_ticks
from tests.problems import unit_problem


def sequential(problem: Problem) -> Schedule:
    """One microbatch after the other, each at home: valid and as bad as it gets."""
    from planner.operation import Kind, Operation, Worker
    from planner.schedule import TimedOperation, schedule_from_orders

    orders = {
        Worker(k, s): [
            TimedOperation(Operation(kind, s, k, j), 0, 0)
            for j in range(problem.microbatches[k])
            for kind in (Kind.F, Kind.I, Kind.W)
        ]
        for k in range(problem.num_pipelines)
        for s in range(problem.num_slots)
    }
    timed, _ = time_schedule(problem, schedule_from_orders(problem.num_pipelines, problem.num_slots, orders))
    return timed


def test_a_bad_schedule_becomes_optimal() -> None:
    """Two pipelines of 3 slots, 6 microbatches: 18 us of work, from a schedule that waits for every microbatch."""
    problem = unit_problem(2, 3, 6, capacity=6)
    start = sequential(problem)
    result = improve.solve(problem, SolveOptions(deadline_s=240, workers=2), hint=start)
    assert (result.status, result.period_ns) == (Status.OPTIMAL, 18_000)
    assert result.schedule is not None
    require_valid(problem, result.schedule, 18_000)
    assert replay(problem, result.schedule).period_ns == 18_000


def test_it_starts_from_the_list_schedule() -> None:
    """Without a hint there still is one."""
    result = improve.solve(unit_problem(1, 2, 3), SolveOptions(deadline_s=240))
    assert (result.status, result.period_ns) == (Status.OPTIMAL, 9_000)


def test_the_search_itself_needs_a_hint() -> None:
    """In a child there is no list schedule."""
    given = SearchInput(
        solver="improve",
        problem=unit_problem(1, 1, 1),
        options=SolveOptions(),
        floor_ns=0,
        deadline=Deadline.after(0.0),
    )
    with pytest.raises(OptionError, match="no schedule to start from"):
        search(given, ignore_report)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("capacity", [None, 4])
def test_every_neighbourhood_holds_the_schedule_itself(seed: int, capacity: int | None) -> None:
    """At the current period the current schedule is a solution, so a neighbourhood that refutes it is wrong."""
    problem = unit_problem(3, 4, 4, dead=[(1, 2)], capacity=capacity)
    result = list_schedule(problem, SolveOptions(deadline_s=1, deterministic=True))
    schedule = result.schedule
    assert schedule is not None
    near = choose_neighbourhood(problem, schedule, 40, random.Random(seed))
    ticks = choose_ticks(problem, 0, exact=False)
    upper = ticks.period_units(window_period_ns(problem, schedule))
    model = neighbourhood_model(problem, ticks, schedule, near, lower=upper, upper=upper)
    for row in range(schedule.num_operations):
        op = schedule.operation(row)
        m = model.microbatches.index((op.pipeline, op.microbatch))
        model.cp.add(model.start[op.kind, m, op.stage] == ticks.time_units(int(schedule.start_ns[row])))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    assert solver.solve(model.cp) == cp_model.OPTIMAL


def test_freeing_all_slots_is_everything() -> None:
    """Only then does a refutation prove the schedule optimal."""
    problem = unit_problem(2, 3, 2)
    schedule = sequential(problem)
    everything = slots_neighbourhood(problem, schedule, range(3))
    assert everything.is_everything(problem)
    assert everything.num_freed == 36
    assert not slots_neighbourhood(problem, schedule, range(1, 3)).is_everything(problem)
