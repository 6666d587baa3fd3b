"""The integer program: known optima, limits, and each family of rows alone."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pulp
import pytest

from planner.errors import OptionError
from planner.operation import Kind
from planner.problem import Optimizer, Problem, Slot, Stage
from solver_models import milp
from solver_models import milp_families as families
from solver_models.milp_adapter import run_backend
from solver_models.milp_model import Program, Scale, choose_scale, new_program, num_pairs
from solver_models.milp_search import MAX_PAIRS, require_small
from solver_models.result import SolveOptions, Status
from solver_models.routing import free_routing
from tests.problems import unit_problem

BACKENDS = [
    "milp_cbc",
    "milp_highs",
    pytest.param(
        "milp_scip",
        marks=pytest.mark.skipif(
            importlib.util.find_spec("pyscipopt") is None, reason="pyscipopt, the extra scip, is not installed"
        ),
    ),
]


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Backends write into the current folder."""
    monkeypatch.chdir(tmp_path)


def least(program: Program, objective: object) -> float | None:
    """Least value of an expression, ``None`` where the rows cannot be met."""
    program.lp.setObjective(pulp.lpSum([objective]))
    answer = run_backend("milp_highs", program.lp, SolveOptions(), limit_s=240, folder=Path.cwd())
    return None if answer.status is Status.INFEASIBLE else round(pulp.value(program.lp.objective), 6)


def alone(problem: Problem, *adds: Callable[[Program], None]) -> Program:
    """Program with some families only."""
    program = new_program(problem, free_routing(problem))
    for add in adds:
        add(program)
    return program


@pytest.mark.parametrize("solver", BACKENDS)
def test_tight_memory_with_a_failure(solver: str) -> None:
    """4 microbatches on slot 0's only worker are 12 us; with room for 2, CP-SAT and exhaustive search agree on 13."""
    problem = unit_problem(2, 2, 2, dead=[(1, 0)], capacity=2)
    result = milp.solve(problem, SolveOptions(deadline_s=240), solver=solver)
    assert (result.status, result.period_ns, result.bound_ns) == (Status.OPTIMAL, 13_000, 13_000)


@pytest.mark.parametrize("solver", BACKENDS)
def test_infeasible_is_proved(solver: str) -> None:
    """No room at all."""
    result = milp.solve(unit_problem(1, 2, 2, capacity=0), SolveOptions(deadline_s=240), solver=solver)
    assert (result.status, result.schedule) == (Status.INFEASIBLE, None)


@pytest.mark.parametrize("solver", BACKENDS)
def test_a_time_limit_is_not_a_proof(solver: str) -> None:
    """Cut short at once, a backend has no answer or an unproved one, never "optimal" or "infeasible"."""
    # A thousand pairs of operations to order: nobody proves an optimum in that time.
    problem = unit_problem(2, 4, 4, dead=[(1, 1)], capacity=3, optimizer=Optimizer.GLOBAL)
    program = new_program(problem, free_routing(problem))
    for add in families.FAMILIES:
        add(program)
    answer = run_backend(solver, program.lp, SolveOptions(), limit_s=0.05, folder=Path.cwd())
    assert answer.status in {Status.NO_PLAN_BY_DEADLINE, Status.FEASIBLE}


def test_large_instances_are_refused() -> None:
    """10 slots of 60 microbatches: 60 * 59 / 2 pairs of places, 9 pairs of operations each, 159,300 in all."""
    problem = unit_problem(1, 10, 60)
    assert num_pairs(problem) == 159_300
    with pytest.raises(OptionError, match=f"159300 pairs .* at most {MAX_PAIRS}"):
        require_small(problem)


def test_the_number_of_pairs_is_the_number_of_ordering_binaries() -> None:
    """Counted in closed form, since large instances must be refused quickly."""
    fused = Stage(forward_ns=1, input_grad_ns=1, weight_grad_ns=1, splittable=False)
    split = Stage(forward_ns=1, input_grad_ns=1, weight_grad_ns=1)
    problem = Problem(stages=(fused, split, split), slots=(Slot(stages=(0, 2)), Slot(stages=(1,))), microbatches=(2, 1))
    assert num_pairs(problem) == len(new_program(problem, free_routing(problem)).before)


def test_other_names_are_refused() -> None:
    """``milp`` runs three backends and no other solver."""
    with pytest.raises(OptionError, match="does not solve integer programs"):
        milp.solve(unit_problem(1, 1, 1), SolveOptions(), solver="cp_sat")


def test_scale_of_zero_costs() -> None:
    """Two microbatches, a zero F over two staggered slots: lattice 2, two zero operations of a fifth of a tick."""
    zero = Stage(forward_ns=0, input_grad_ns=4, weight_grad_ns=4)
    full = Stage(forward_ns=4, input_grad_ns=4, weight_grad_ns=4)
    problem = Problem(stages=(zero, full), slots=(Slot(stages=(0,)), Slot(stages=(1,))), microbatches=(2,))
    scale = choose_scale(problem)
    assert scale == Scale(tick_ns=4, lattice=2, zero_operations=2)
    assert scale.zero_ticks == 0.2
    # 6.4 ticks less the 0.4 that zero operations may have taken are 6 ticks, 24 ns.
    assert scale.bound_ns(6.4) == 24


def test_forward_and_turn_rows() -> None:
    """(7), (8): F at 0, 1 and 2, and the last stage's I at 3."""
    program = alone(unit_problem(1, 3, 1), families.add_forward_precedence, families.add_turn)
    assert least(program, program.start[Kind.I, 0, 2]) == 3
    assert least(program, program.start[Kind.I, 0, 0]) == 0


def test_backward_rows() -> None:
    """(9): the first of three stages waits for the two I behind it."""
    program = alone(unit_problem(1, 3, 1), families.add_backward_precedence)
    assert least(program, program.start[Kind.I, 0, 0]) == 2


def test_weight_rows() -> None:
    """(10): W after its own I."""
    program = alone(unit_problem(1, 1, 1), families.add_weight_precedence)
    assert least(program, program.start[Kind.W, 0, 0]) == 1


def test_unsplittable_stages_pass_the_gradient_on_after_all_of_b() -> None:
    """(6), (9): B of 1 + 1 keeps the stage before waiting for 2."""
    fused = Stage(forward_ns=1000, input_grad_ns=1000, weight_grad_ns=1000, splittable=False)
    problem = Problem(stages=(fused, fused), slots=(Slot(stages=(0,)), Slot(stages=(1,))), microbatches=(1,))
    program = alone(problem, families.add_backward_precedence)
    assert least(program, program.start[Kind.B, 0, 0]) == 2


def test_routing_rows() -> None:
    """(4), (5): one live worker each; the dead one has no variable."""
    program = alone(unit_problem(3, 1, 1, dead=[(1, 0)]), families.add_routing)
    assert {k for _, _, k in program.route} == {0, 2}
    assert least(program, pulp.lpSum(program.route.values())) == 3


def test_transfers_count_between_workers_only() -> None:
    """One slot holds both stages of a transfer of 5: staying is free, apart it costs 5."""
    stage = Stage(forward_ns=1000, input_grad_ns=1000, weight_grad_ns=1000, transfer_ns=5000)
    problem = Problem(stages=(stage, stage), slots=(Slot(stages=(0, 1)),), microbatches=(1, 0))
    program = alone(problem, families.add_routing, families.add_forward_precedence)
    assert least(program, program.start[Kind.F, 0, 1]) == 1
    program.lp += program.route[0, 0, 0] + program.route[0, 1, 0] == 1
    assert least(program, program.start[Kind.F, 0, 1]) == 6


def test_one_at_a_time_rows() -> None:
    """(11): two peers run two microbatches at once, one worker does not."""
    for problem, second in ((unit_problem(2, 1, 1), 0), (unit_problem(2, 1, 1, dead=[(1, 0)]), 1)):
        program = alone(problem, families.add_routing, families.add_sharing, families.add_one_at_a_time)
        latest = program.lp.add_variable("latest")
        for m in range(2):
            program.lp += latest >= program.start[Kind.F, m, 0]
        assert least(program, latest) == second


@pytest.mark.parametrize(("capacity", "start"), [(1, 3), (2, 0)])
def test_memory_rows(capacity: int, start: int) -> None:
    """(13): with room for one, a second F waits for F, I and W of the first."""
    problem = unit_problem(1, 1, 2, capacity=capacity)
    program = alone(
        problem, families.add_turn, families.add_weight_precedence, families.add_one_at_a_time, families.add_memory
    )
    program.lp += program.start[Kind.F, 0, 0] <= program.start[Kind.F, 1, 0] - 1
    assert least(program, program.start[Kind.F, 1, 0]) == max(start, 1)


@pytest.mark.parametrize(("optimizer", "period"), [(Optimizer.STAGGERED, 6), (Optimizer.GLOBAL, 8)])
def test_window_rows(optimizer: Optimizer, period: int) -> None:
    """(14)-(16): slot 1 runs from 2 to 8; its own window is 6 long, the whole iteration 8."""
    program = alone(unit_problem(1, 2, 2, optimizer=optimizer), families.add_windows)
    program.lp += program.start[Kind.F, 0, 1] == 2
    program.lp += program.start[Kind.W, 0, 1] == 7
    assert least(program, program.period) == period
