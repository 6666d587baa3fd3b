"""The integer program, built and run by one of PuLP's backends."""

from __future__ import annotations

from pathlib import Path

from planner.errors import OptionError
from planner.operation import Kind, Operation, Worker
from planner.problem import Problem
from planner.schedule import Schedule, TimedOperation, schedule_from_orders
from solver_models.milp_adapter import run_backend
from solver_models.milp_families import FAMILIES
from solver_models.milp_model import Key, Program, new_program, num_pairs
from solver_models.result import Status
from solver_models.routing import free_routing
from solver_models.search import Found, Report, SearchInput

MAX_PAIRS = 20_000
"""Most pairs of operations that may meet on a worker; the program has one ordering binary and two big-M rows for each."""


def require_small(problem: Problem) -> None:
    """Check that a problem is not too large for an integer program.

    Raises
    ------
    OptionError
        If it has more than :data:`MAX_PAIRS` pairs of operations to order.
    """
    pairs = num_pairs(problem)
    if pairs > MAX_PAIRS:
        raise OptionError(
            f"the integer program would order {pairs} pairs of operations; expected at most {MAX_PAIRS}",
            hint="it is for small instances; use cp_sat, improve or portfolio",
        )


def search(given: SearchInput, report: Report) -> Found:
    """Build the program of a problem and solve it; PuLP tells of no solution before the last.

    Raises
    ------
    OptionError
        If the problem is too large.
    """
    del report
    require_small(given.problem)
    program = new_program(given.problem, free_routing(given.problem), floor_ns=given.floor_ns)
    for add in FAMILIES:
        add(program)
    answer = run_backend(given.solver, program.lp, given.options, limit_s=given.left_s(), folder=Path.cwd())
    has_schedule = answer.status in (Status.OPTIMAL, Status.FEASIBLE)
    return Found(
        status=answer.status,
        schedule=extract(program) if has_schedule else None,
        bound_ns=0 if answer.bound is None else program.scale.bound_ns(answer.bound),
        detail=f"{given.solver}: {answer.status.value}, {len(program.before)} ordering binaries",
    )


def extract(program: Program) -> Schedule:
    """Order of a solution, read off its ordering binaries: times of a big-M program are only so exact."""
    problem = program.problem
    keys: dict[Worker, list[Key]] = {}
    for m, choices in enumerate(program.routing):
        for v, s in enumerate(problem.slot_of_stage):
            k = max(choices[v], key=lambda k, m=m, v=v: _value(program.route[m, v, k]))  # type: ignore[misc]
            keys.setdefault(Worker(k, s), []).extend((kind, m, v) for kind in program.kinds(v))
    homes = [(k, j) for k, count in enumerate(problem.microbatches) for j in range(count)]
    orders = {}
    for worker, found in keys.items():
        place = {key: sum(_value(program.precedes(other, key)) for other in found if other != key) for key in found}
        orders[worker] = [_timed(program, worker, key, homes) for key in sorted(found, key=lambda key: place[key])]
    return schedule_from_orders(problem.num_pipelines, problem.num_slots, orders)


def _timed(program: Program, worker: Worker, key: Key, homes: list[tuple[int, int]]) -> TimedOperation:
    kind, m, v = key
    start_ns = round(program.start[key].varValue * program.scale.tick_ns)
    duration = program.problem.duration_ns(kind, v, worker)
    return TimedOperation(Operation(Kind(kind), v, *homes[m]), start_ns, start_ns + duration)


def _value(expression: object) -> int:
    """A binary's value, or a constant's."""
    return expression if isinstance(expression, int) else round(expression.value())  # type: ignore[attr-defined]
