"""Backends' statuses are mapped totally and distinctly, and a result claims no more than its period proves."""

from __future__ import annotations

import time

import pulp
import pytest
from ortools.sat.python import cp_model

from planner.problem import Problem, Slot, Stage
from planner.replay import replay
from planner.schedule import parse_schedule
from planner.validation import require_valid
from solver_models.cp_sat_statuses import STATUSES as CP_SAT_STATUSES
from solver_models.finish import finish
from solver_models.milp_statuses import STATUSES as PULP_STATUSES
from solver_models.result import Status
from solver_models.search import Found
from tests.problems import unit_problem


def test_every_cp_sat_status_is_mapped() -> None:
    """CP-SAT has five statuses; no two of ours are confused, and unknown is not infeasible."""
    names = ("OPTIMAL", "FEASIBLE", "INFEASIBLE", "UNKNOWN", "MODEL_INVALID")
    assert set(CP_SAT_STATUSES) == {getattr(cp_model, name) for name in names}
    assert len(set(CP_SAT_STATUSES.values())) == 5
    assert CP_SAT_STATUSES[cp_model.UNKNOWN] is Status.NO_PLAN_BY_DEADLINE
    assert CP_SAT_STATUSES[cp_model.INFEASIBLE] is Status.INFEASIBLE


def test_every_pulp_solution_status_is_mapped() -> None:
    """The table covers exactly PuLP's own list of solution statuses."""
    assert set(PULP_STATUSES) == set(pulp.LpSolution)
    assert len(set(PULP_STATUSES.values())) == len(PULP_STATUSES)
    assert PULP_STATUSES[pulp.LpSolutionIntegerFeasible] is Status.FEASIBLE
    assert PULP_STATUSES[pulp.LpSolutionNoSolutionFound] is Status.NO_PLAN_BY_DEADLINE


@pytest.mark.parametrize(
    ("claimed", "bound_ns", "expected"),
    [
        (Status.OPTIMAL, 3000, Status.OPTIMAL),
        (Status.FEASIBLE, 3000, Status.OPTIMAL),
        (Status.OPTIMAL, 2999, Status.FEASIBLE),
        (Status.CRASHED, 0, Status.CRASHED),
    ],
)
def test_the_recomputed_period_decides(claimed: Status, bound_ns: int, expected: Status) -> None:
    """F, I and W of 1000 ns take 3000: optimal exactly where the bound says so, whatever the model claimed."""
    schedule = parse_schedule("0/0: 0F0.0 0I0.0 0W0.0", 1, 1)
    found = Found(status=claimed, schedule=schedule, bound_ns=bound_ns, detail="")
    result = finish(unit_problem(1, 1, 1), "cp_sat", found, floor_ns=0, started=time.monotonic())
    assert (result.status, result.period_ns) == (expected, 3000)


@pytest.mark.parametrize(
    "status", [Status.INFEASIBLE, Status.NO_PLAN_BY_DEADLINE, Status.CRASHED, Status.INVALID_MODEL]
)
def test_without_a_schedule_the_status_stands(status: Status) -> None:
    """Infeasible, out of time, crashed and invalid stay what they are."""
    found = Found(status=status, schedule=None, bound_ns=5, detail="why")
    result = finish(unit_problem(1, 1, 1), "cp_sat", found, floor_ns=7, started=time.monotonic())
    assert (result.status, result.schedule, result.period_ns, result.bound_ns) == (status, None, None, 7)


def test_an_order_that_waits_for_itself_is_an_invalid_model() -> None:
    """A search that returns a cyclic order has a bug, and the hint is returned instead."""
    hint = parse_schedule("0/0: 0F0.0 0I0.0 0W0.0", 1, 1)
    cyclic = parse_schedule("0/0: 0I0.0 0F0.0 0W0.0", 1, 1)
    found = Found(status=Status.OPTIMAL, schedule=cyclic, bound_ns=0, detail="")
    result = finish(unit_problem(1, 1, 1), "cp_sat", found, floor_ns=0, started=time.monotonic(), hint=hint)
    assert (result.status, result.period_ns) == (Status.INVALID_MODEL, 3000)


def test_fifo_links_are_timed_though_models_leave_them_out() -> None:
    """A message without transfer time, sent right behind one that takes 1 ns, arrives with it: 27 ns, where the model says 26.

    From worker 0/1 to 0/0, ``1I0.0`` ends at 13 ns and arrives at 14; ``2F0.1`` takes no time and follows it.
    """
    slots = (Slot(stages=(0, 3), capacity_bytes=2), Slot(stages=(1, 2), capacity_bytes=4))
    costs = ((2, 1, 3, 1, 1, 1), (1, 3, 2, 0, 2, 1), (0, 2, 1, 0, 1, 0), (1, 2, 1, 1, 0, 0))
    stages = tuple(
        Stage(
            forward_ns=forward,
            input_grad_ns=input_grad,
            weight_grad_ns=weight_grad,
            transfer_ns=transfer,
            activation_bytes=activation,
            weight_grad_bytes=kept,
        )
        for forward, input_grad, weight_grad, transfer, activation, kept in costs
    )
    problem = Problem(stages=stages, slots=slots, microbatches=(2,))
    order = parse_schedule(
        "0/0: 0F0.0 0F0.1 3F0.0 3I0.0 3W0.0 3F0.1 3I0.1 3W0.1 0I0.0 0W0.0 0I0.1 0W0.1\n"
        "0/1: 1F0.0 2F0.0 2I0.0 1F0.1 1I0.0 2F0.1 1W0.0 2W0.0 2I0.1 1I0.1 2W0.1 1W0.1",
        1,
        2,
    )
    found = Found(status=Status.OPTIMAL, schedule=order, bound_ns=26, detail="")
    result = finish(problem, "cp_sat", found, floor_ns=0, started=time.monotonic())
    assert (result.status, result.period_ns) == (Status.FEASIBLE, 27)
    assert result.schedule is not None
    assert replay(problem, result.schedule).period_ns == 27
    require_valid(problem, result.schedule, 27)
