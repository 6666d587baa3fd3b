"""The contract that every solver keeps: one suite over all of :data:`solver_models.registry.SOLVERS`."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from functools import cache

import pytest

from planner.errors import OptionError, SolverMissingError, StageLostError
from planner.operation import Worker
from planner.problem import Optimizer, Problem, Slot, Stage
from planner.replay import replay
from planner.validation import require_valid
from solver_models import registry
from solver_models.registry import SOLVERS, is_installed, solve
from solver_models.result import SolveOptions, SolveResult, Status
from tests.problems import unit_problem

EXACT = ("cp_sat", "milp_cbc", "milp_highs", "milp_scip")
OPTIONS = SolveOptions(deadline_s=60.0, seed=7)


def tiny_problems() -> dict[str, Problem]:
    """One problem for each thing a problem may have; small enough for every backend to prove."""
    uneven_stages = (
        Stage(forward_ns=3, input_grad_ns=4, weight_grad_ns=2, transfer_ns=1, activation_bytes=2, weight_grad_bytes=1),
        Stage(forward_ns=2, input_grad_ns=3, weight_grad_ns=3, activation_bytes=2, weight_grad_bytes=2),
    )
    two_slots = (Slot(stages=(0,), sync_ns=1), Slot(stages=(1,), sync_ns=2))
    base = Problem(stages=uneven_stages, slots=two_slots, microbatches=(2, 2))
    fused = tuple(replace(stage, splittable=False) for stage in uneven_stages)
    four = (uneven_stages[0], uneven_stages[1], uneven_stages[0], uneven_stages[1])
    zero = (replace(uneven_stages[0], forward_ns=0), replace(uneven_stages[1], weight_grad_ns=0, transfer_ns=0))
    tight = tuple(replace(slot, capacity_bytes=3) for slot in two_slots)
    return {
        "fault_free": replace(base, microbatches=(3,)),
        "failed_worker": replace(base, dead=frozenset({Worker(1, 0)})),
        "degraded": replace(base, microbatches=(2, 1), speeds_ppm={Worker(0, 1): 500_000}),
        "unsplittable": replace(base, stages=fused, dead=frozenset({Worker(0, 1)})),
        "v_placement": Problem(stages=four, slots=(Slot(stages=(0, 3)), Slot(stages=(1, 2))), microbatches=(2,)),
        "loop": Problem(stages=four, slots=(Slot(stages=(0, 2)), Slot(stages=(1, 3))), microbatches=(2,)),
        "uneven_microbatches": replace(base, microbatches=(3, 1)),
        "zero_costs": replace(base, stages=zero, microbatches=(2, 1)),
        "tight_memory": replace(base, slots=tight, dead=frozenset({Worker(0, 0)}), microbatches=(2, 1)),
        "global": replace(base, optimizer=Optimizer.GLOBAL, dead=frozenset({Worker(1, 1)}), microbatches=(2, 1)),
        "one_operation_each": unit_problem(1, 1, 1),
        "fewer_microbatches_than_stages": unit_problem(1, 3, 1),
    }


PROBLEMS = tiny_problems()
SOLVER_PARAMS = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(
            entry.needs is not None and importlib.util.find_spec(entry.needs) is None,
            reason=f"{entry.needs} is not installed",
        ),
    )
    for name, entry in SOLVERS.items()
]


CORE_PROBLEMS = ("failed_worker", "zero_costs")
CORE_SOLVERS = ("list_scheduling", "cp_sat", "improve")
# Every pair is tried, but the quick suite leaves out what mostly waits for child processes.
PAIRS = [
    pytest.param(
        solver.values[0],
        problem,
        marks=[
            *solver.marks,
            *([] if solver.values[0] in CORE_SOLVERS or problem == "failed_worker" else [pytest.mark.slow]),
        ],
    )
    for solver in SOLVER_PARAMS
    for problem in PROBLEMS
]
AGREEMENTS = [
    pytest.param(problem, marks=[] if problem in CORE_PROBLEMS else [pytest.mark.slow]) for problem in PROBLEMS
]


def options_for(solver: str, deadline_s: float) -> SolveOptions:
    """A deadline of work where the solver counts it, so that no load of the machine cuts it short; else a minute."""
    if SOLVERS[solver].counts_work:
        return replace(OPTIONS, deadline_s=deadline_s, deterministic=True)
    return OPTIONS


@cache
def answer(solver: str, problem: str) -> SolveResult:
    """Answer of a solver, computed once for all tests."""
    return solve(solver, PROBLEMS[problem], options_for(solver, 3.0))


@pytest.mark.parametrize(("solver", "problem"), PAIRS)
def test_schedules_are_valid_and_reach_their_period(solver: str, problem: str) -> None:
    """Validation and replay, which share no code with solvers, agree with every answer; bounds do not exceed periods."""
    result = answer(solver, problem)
    assert result.status in {Status.OPTIMAL, Status.FEASIBLE}, result.detail
    assert result.schedule is not None
    assert result.period_ns is not None
    require_valid(PROBLEMS[problem], result.schedule, result.period_ns)
    assert replay(PROBLEMS[problem], result.schedule).period_ns == result.period_ns
    assert 0 <= result.bound_ns <= result.period_ns
    assert (result.status is Status.OPTIMAL) == (result.period_ns == result.bound_ns)
    assert result.wall_s >= 0


@pytest.mark.parametrize("problem", AGREEMENTS)
def test_whoever_proves_agrees(problem: str) -> None:
    """All proofs name one period, and nobody's schedule or bound contradicts it."""
    results = [answer(name, problem) for name in SOLVERS if is_installed(name)]
    proved = {result.period_ns for result in results if result.status is Status.OPTIMAL}
    assert len(proved) == 1
    (period,) = proved
    assert period is not None
    assert all(result.bound_ns <= period for result in results)
    assert all(result.period_ns is not None and result.period_ns >= period for result in results)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_cp_sat_proves_every_tiny_problem(problem: str) -> None:
    """The exact solver leaves nothing open here."""
    assert answer("cp_sat", problem).status is Status.OPTIMAL


@pytest.mark.parametrize("solver", SOLVER_PARAMS)
def test_the_same_seed_gives_the_same_answer(solver: str) -> None:
    """With one worker and time enough, or ten times as much work, the schedule is the same to the last operation."""
    first = answer(solver, "failed_worker")
    again = solve(solver, PROBLEMS["failed_worker"], options_for(solver, 30.0))
    assert first.status is Status.OPTIMAL
    assert again.schedule == first.schedule
    assert (again.period_ns, again.bound_ns, again.status) == (first.period_ns, first.bound_ns, first.status)


@pytest.mark.parametrize("solver", [p for p in SOLVER_PARAMS if p.values[0] in EXACT])
def test_infeasible_is_proved(solver: str) -> None:
    """A microbatch of one byte in a slot without memory: proved, not merely not found."""
    result = solve(solver, unit_problem(1, 2, 2, capacity=0), OPTIONS)
    assert (result.status, result.schedule, result.period_ns) == (Status.INFEASIBLE, None, None)


@pytest.mark.parametrize("solver", SOLVER_PARAMS)
def test_a_lost_stage_is_refused(solver: str) -> None:
    """Slot 0 has no live worker: no solver is asked to try."""
    with pytest.raises(StageLostError, match=r"slots \[0\]"):
        solve(solver, unit_problem(2, 2, 2, dead=[(0, 0), (1, 0)]), OPTIONS)


@pytest.mark.parametrize("solver", ["cp_sat", "improve"])
def test_a_hint_is_never_made_worse(solver: str) -> None:
    """From the list schedule of a hard instance and almost no time, the answer is at least that schedule."""
    # The bound of 34 us is reached in seconds, if at all.
    problem = unit_problem(4, 4, 8, dead=[(1, 2)], capacity=4)
    start = solve("list_scheduling", problem, options_for("list_scheduling", 1.0))
    result = solve(solver, problem, replace(OPTIONS, deadline_s=1.5), hint=start.schedule)
    assert result.status in {Status.OPTIMAL, Status.FEASIBLE}
    assert result.schedule is not None
    assert result.period_ns is not None
    assert start.period_ns is not None
    assert result.period_ns <= start.period_ns
    require_valid(problem, result.schedule, result.period_ns)


def test_no_time_is_no_plan_and_no_proof() -> None:
    """A child that cannot even start its backend by the deadline has no plan, and nothing is proved but the known bound."""
    # 2,304 operations, whose model alone takes longer to build; 96 microbatches of 3 us on three workers are 96 us.
    result = solve("cp_sat", unit_problem(4, 8, 24, dead=[(1, 2)]), replace(OPTIONS, deadline_s=0.01))
    assert (result.status, result.schedule, result.bound_ns) == (Status.NO_PLAN_BY_DEADLINE, None, 96_000)


def test_a_memory_limit_ends_in_a_crash_that_says_so() -> None:
    """OR-Tools does not load into 64 MiB of address space."""
    result = solve("cp_sat", unit_problem(1, 2, 2), replace(OPTIONS, memory_limit_bytes=2**26))
    assert (result.status, result.schedule) == (Status.CRASHED, None)


def test_unknown_and_missing_solvers_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that are not there and backends that are not installed give ``solver_missing`` with what to install."""
    with pytest.raises(SolverMissingError, match="no solver 'gurobi'; expected one of list_scheduling"):
        solve("gurobi", PROBLEMS["fault_free"], OPTIONS)
    absent = {**SOLVERS, "milp_scip": replace(SOLVERS["milp_scip"], needs="no_such_backend")}
    monkeypatch.setattr(registry, "SOLVERS", absent)
    with pytest.raises(SolverMissingError, match=r"pip install 'replan\[scip\]'"):
        solve("milp_scip", PROBLEMS["fault_free"], OPTIONS)


def test_refusals_reach_the_caller() -> None:
    """Too large for the integer program, and a hint for a solver that takes none."""
    with pytest.raises(OptionError, match="pairs of operations"):
        solve("milp_highs", unit_problem(1, 10, 60), OPTIONS)
    hint = answer("cp_sat", "fault_free").schedule
    with pytest.raises(OptionError, match="cannot start from a schedule"):
        solve("milp_highs", PROBLEMS["fault_free"], OPTIONS, hint=hint)
