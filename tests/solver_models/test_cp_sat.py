"""CP-SAT: known optima, proofs, scales and each constraint family."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st
from ortools.sat.python import cp_model

from planner.operation import Kind, Worker
from planner.problem import Optimizer, Problem, Slot, Stage
from solver_models import cp_sat
from solver_models import cp_sat_model as build
from solver_models.clock import Deadline
from solver_models.cp_sat_search import search, window_period_ns
from solver_models.result import SolveOptions, Status
from solver_models.routing import free_routing, groups, home_routing, symmetric_peers
from solver_models.search import SearchInput, ignore_report
from solver_models.ticks import Ticks, choose_ticks
from tests.problems import unit_problem


def options() -> SolveOptions:
    """Two threads and a deadline that is not meant to be met, however slow the machine."""
    return SolveOptions(deadline_s=240.0, workers=2)


def test_worked_example_staggered_is_proved_27() -> None:
    """18 microbatches on 2 live workers are 9 each: 9 * 3 us of work, and no schedule beats its work."""
    result = cp_sat.solve(unit_problem(3, 4, 6, dead=[(1, 2)]), options())
    assert (result.status, result.period_ns) == (Status.OPTIMAL, 27_000)


def test_worked_example_global_is_proved_29() -> None:
    """Slot 2's 27 us of work begin 2 us after the first forward; ReCycle's published answer for this example is 29."""
    result = cp_sat.solve(unit_problem(3, 4, 6, dead=[(1, 2)], optimizer=Optimizer.GLOBAL), options())
    assert (result.status, result.period_ns) == (Status.OPTIMAL, 29_000)


def test_the_bound_at_tight_memory_is_reached() -> None:
    """First slot failed, memory for 4: the tail bound gives 30 us, and asking for it finds it."""
    result = cp_sat.solve(unit_problem(3, 4, 6, dead=[(1, 0)], capacity=4), options())
    assert (result.status, result.period_ns) == (Status.OPTIMAL, 30_000)


def test_memory_too_small_is_proved_infeasible() -> None:
    """A microbatch of one byte does not fit into none."""
    result = cp_sat.solve(unit_problem(1, 2, 2, capacity=0), options())
    assert (result.status, result.schedule) == (Status.INFEASIBLE, None)


def test_without_a_floor_the_model_proves_its_own_bound() -> None:
    """Knowing no bound, CP-SAT proves that one worker's two microbatches take 2 * 3 us."""
    found = search(
        SearchInput(
            solver="cp_sat",
            problem=unit_problem(1, 1, 2),
            options=options(),
            floor_ns=0,
            deadline=Deadline.after(240.0),
        ),
        ignore_report,
    )
    assert (found.status, found.bound_ns) == (Status.OPTIMAL, 6_000)


def test_a_hint_that_meets_the_bound_is_returned_untouched() -> None:
    """Nothing is searched where there is nothing to gain."""
    problem = unit_problem(1, 2, 3)
    first = cp_sat.solve(problem, options())
    second = cp_sat.solve(problem, options(), hint=first.schedule)
    assert (second.status, second.detail) == (Status.OPTIMAL, "")
    assert second.schedule == first.schedule


def test_windows_of_a_timed_schedule() -> None:
    """A solved schedule's longest window is its period, since its times are shifted."""
    problem = unit_problem(1, 2, 3)
    result = cp_sat.solve(problem, options())
    assert result.schedule is not None
    assert window_period_ns(problem, result.schedule) == result.period_ns


# Ticks


def test_a_tick_is_the_greatest_common_divisor() -> None:
    """Costs of 1000 ns over three staggered slots: one tick each, in lcm(1, 2, 3) = 6 parts where exact."""
    problem = unit_problem(1, 3, 2)
    assert choose_ticks(problem, 6_000, exact=False) == Ticks(
        tick_ns=1000, divisor=1, subticks=1, coarse=False, fractional=True
    )
    assert choose_ticks(problem, 6_000, exact=True) == Ticks(
        tick_ns=1000, divisor=6, subticks=1, coarse=False, fractional=False
    )


def test_long_periods_coarsen_the_tick() -> None:
    """10**9 + 1 ns a stage would be more than 10**8 ticks: they grow, durations shrink, and the error is known."""
    stage = Stage(forward_ns=10**9 + 1, input_grad_ns=10**9, weight_grad_ns=10**9)
    problem = Problem(stages=(stage,), slots=(Slot(stages=(0,)),), microbatches=(1,))
    ticks = choose_ticks(problem, 3 * 10**9 + 1, exact=True)
    assert (ticks.tick_ns, ticks.coarse, ticks.error_ns(3)) == (30, True, 180)
    assert ticks.units(10**9 + 1) == 33_333_333


def test_zero_costs_take_a_sub_tick() -> None:
    """Two microbatches with a zero F: 2 zero operations, 3 sub-ticks a tick; W of zero is not modelled and does not count."""
    stage = Stage(forward_ns=0, input_grad_ns=5, weight_grad_ns=0)
    problem = Problem(stages=(stage,), slots=(Slot(stages=(0,)),), microbatches=(2,))
    ticks = choose_ticks(problem, 10, exact=True)
    assert (ticks.tick_ns, ticks.subticks) == (5, 3)
    assert (ticks.operation_units(0), ticks.operation_units(5)) == (1, 3)


@given(
    period=st.integers(1, 10**6),
    tick=st.integers(1, 50),
    divisor=st.integers(1, 60),
    subticks=st.integers(1, 40),
)
def test_a_bound_from_a_periods_units_never_exceeds_it(period: int, tick: int, divisor: int, subticks: int) -> None:
    """The most units the best order may have prove no more than its period, and prove it exactly on an exact scale."""
    exact = Ticks(tick_ns=tick, divisor=divisor, subticks=subticks, coarse=False, fractional=False)
    on_scale = -(-period * divisor // tick) * tick // divisor
    assert exact.bound_ns(exact.period_units(on_scale)) in range(on_scale, on_scale + 2)
    between = Ticks(tick_ns=tick, divisor=divisor, subticks=subticks, coarse=True, fractional=True)
    assert between.bound_ns(between.period_units(period)) <= period


# Routing


def test_home_routing_frees_only_the_dead_and_slow() -> None:
    """Pipeline 0's worker of slot 1 is dead: its microbatches may go to either peer, all others stay."""
    problem = unit_problem(3, 2, 1, dead=[(0, 1)])
    assert home_routing(problem) == (((0,), (1, 2)), ((1,), (1,)), ((2,), (2,)))
    assert free_routing(problem) == (((0, 1, 2), (1, 2)),) * 3


def test_interchangeable_microbatches_and_peers() -> None:
    """Under free routing all microbatches are alike, and all peers of one speed; at home nobody is."""
    problem = unit_problem(2, 2, 2, dead=[(0, 1)])
    assert groups(free_routing(problem)) == [[0, 1, 2, 3]]
    assert symmetric_peers(problem, free_routing(problem)) == [(0, [0, 1])]
    assert groups(home_routing(problem)) == [[0, 1], [2, 3]]
    assert symmetric_peers(problem, home_routing(problem)) == []


# Families, each alone

TICKS = Ticks(tick_ns=1000, divisor=1, subticks=1, coarse=False, fractional=True)


def least(model: build.Model, objective: object) -> int | None:
    """Least value of an expression, ``None`` where the model is infeasible."""
    model.cp.minimize(objective)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    return None if solver.solve(model.cp) == cp_model.INFEASIBLE else round(solver.objective_value)


def alone(problem: Problem, family: Callable[[build.Model], None], upper: int = 50) -> build.Model:
    """Model with one family of constraints."""
    model = build.new_model(problem, TICKS, free_routing(problem), lower=0, upper=upper)
    family(model)
    return model


def test_precedence_alone() -> None:
    """Through two stages: F, F, I, then I of the first stage starts at 3 and its W at 4."""
    model = alone(unit_problem(1, 2, 1), build.add_precedence)
    assert least(model, model.start[Kind.I, 0, 0]) == 3
    assert least(model, model.start[Kind.W, 0, 0]) == 4


def test_transfers_count_between_workers_only() -> None:
    """One slot holds both stages of a transfer of 5: staying is free, and forced apart by routing it costs 5."""
    stage = Stage(forward_ns=1000, input_grad_ns=1000, weight_grad_ns=1000, transfer_ns=5000)
    problem = Problem(stages=(stage, stage), slots=(Slot(stages=(0, 1)),), microbatches=(1, 0))
    model = alone(problem, build.add_precedence)
    assert least(model, model.start[Kind.F, 0, 1]) == 1
    model = alone(problem, build.add_precedence)
    model.cp.add(model.route[0, 0, 0] + model.route[0, 1, 0] == 1)
    assert least(model, model.start[Kind.F, 0, 1]) == 6


def test_no_overlap_alone() -> None:
    """Two microbatches' six operations of one worker cannot all start before 5."""
    model = alone(unit_problem(1, 1, 2), build.add_no_overlap)
    latest = model.cp.new_int_var(0, 100, "")
    model.cp.add_max_equality(latest, list(model.start.values()))
    assert least(model, latest) == 5


def test_memory_alone() -> None:
    """Room for one: the second F starts when the first microbatch's W has ended, at 2 if I and W need not wait."""
    problem = unit_problem(1, 1, 2, capacity=1)
    model = alone(problem, build.add_memory)
    model.cp.add(model.start[Kind.F, 0, 0] <= model.start[Kind.F, 1, 0])
    build.add_precedence(model)
    assert least(model, model.start[Kind.F, 1, 0]) == 3
    problem = unit_problem(1, 1, 2, capacity=2)
    model = alone(problem, build.add_memory)
    build.add_precedence(model)
    assert least(model, model.start[Kind.F, 1, 0]) == 0


def test_windows_alone() -> None:
    """A window holds each operation: with F at the slot's start and W's start forced to 7, the period is at least 8 - S."""
    model = alone(unit_problem(1, 2, 1), build.add_windows)
    model.cp.add(model.start[Kind.F, 0, 1] == 2)
    model.cp.add(model.start[Kind.W, 0, 1] == 7)
    assert least(model, model.period) == 6
    model = alone(unit_problem(1, 2, 1, optimizer=Optimizer.GLOBAL), build.add_windows)
    model.cp.add(model.start[Kind.F, 0, 1] == 2)
    model.cp.add(model.start[Kind.W, 0, 1] == 7)
    assert least(model, model.period) == 8


def test_loads_alone() -> None:
    """Three microbatches of 3 over two peers: someone has two of them."""
    model = alone(unit_problem(2, 1, 1), build.add_loads)
    assert least(model, model.period) == 3
    problem = Problem(stages=unit_problem(1, 1, 1).stages, slots=(Slot(stages=(0,)),), microbatches=(3, 0))
    model = alone(problem, build.add_loads)
    assert least(model, model.period) == 6


def test_routing_leaves_out_the_dead() -> None:
    """(5): there is no literal for a dead worker."""
    model = alone(unit_problem(3, 1, 1, dead=[(1, 0)]), build.add_no_overlap)
    assert {k for _, _, k in model.route} == {0, 2}
    assert Worker(1, 0) not in model.intervals
