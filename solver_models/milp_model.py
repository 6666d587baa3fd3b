"""Variables of the integer program of docs/model.md, in PuLP: ReCycle's, generalised.

Times are continuous, in ticks (the greatest common divisor of all durations), so a period may lie between two ticks and the
program is exact. Operations of zero cost take so little time that all of them together change no period's lattice
point: periods are multiples of ``1 / lcm(1..P)`` tick (:attr:`Scale.lattice`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, TypeAlias

import pulp

from planner.operation import Kind, Worker
from planner.problem import Optimizer, Problem
from solver_models.routing import Routing
from solver_models.ticks import durations

Key: TypeAlias = tuple[Kind, int, int]
"""Kind, microbatch index, stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Units of one program.

    Parameters
    ----------
    tick_ns
        Nanoseconds of a unit of time.
    lattice
        Every order's period is a multiple of ``1 / lattice`` ticks.
    zero_operations
        Number of operations of zero cost; each takes ``1 / (lattice * zero_operations + 1)`` ticks.
    """

    tick_ns: int
    lattice: int
    zero_operations: int

    def ticks(self, duration_ns: int) -> float:
        """Duration in ticks."""
        return duration_ns / self.tick_ns

    @property
    def zero_ticks(self) -> float:
        """Duration of an operation of zero cost."""
        return 1 / (self.lattice * self.zero_operations + 1)

    def bound_ns(self, ticks: float) -> int:
        """Lower bound on the period that a backend's bound proves, its tolerance and zero operations' time taken off."""
        tolerance = 1e-6 * max(1.0, abs(ticks)) + 1e-6
        safe = ticks - tolerance - self.zero_operations * self.zero_ticks
        return max(0, -(-math.ceil(safe * self.lattice) * self.tick_ns // self.lattice))


def choose_scale(problem: Problem) -> Scale:
    """Scale of a problem's program."""
    lattice = 1 if problem.optimizer is Optimizer.GLOBAL else math.lcm(*range(1, problem.num_slots + 1))
    costs = [
        cost
        for stage in problem.stages
        for cost in (
            (stage.forward_ns, stage.input_grad_ns, stage.weight_grad_ns)
            if stage.splittable
            else (stage.forward_ns, stage.input_grad_ns + stage.weight_grad_ns)
        )
    ]
    return Scale(
        tick_ns=math.gcd(*durations(problem)) or 1,
        lattice=lattice,
        zero_operations=problem.num_microbatches * costs.count(0),
    )


@dataclass(kw_only=True)
class Program:
    """One integer program under construction.

    Parameters
    ----------
    problem, scale, routing
        What is modelled, in which units, and where microbatches may run.
    latest
        Ticks by which everything can be over, used as big M.
    lp
        PuLP's problem.
    period
        ``T``.
    start
        Of each operation.
    route
        (2): for each microbatch index, stage and allowed pipeline; the constant 1 where there is no choice.
    before
        For each pair of operations that may meet on a worker, in key order: 1 where the first runs first.
    shared
        For each pair of (microbatch index, stage) of one slot: at least 1 where both run on one worker.
    stay
        Where a slot holds two stages in a row: 1 only where both run on the pipeline's worker.
    slot_start
        ``S_s``.
    """

    problem: Problem
    scale: Scale
    routing: Routing
    latest: float
    lp: pulp.LpProblem
    period: Any
    start: dict[Key, Any] = field(default_factory=dict)
    route: dict[tuple[int, int, int], Any] = field(default_factory=dict)
    before: dict[tuple[Key, Key], Any] = field(default_factory=dict)
    shared: dict[tuple[tuple[int, int], tuple[int, int]], Any] = field(default_factory=dict)
    stay: dict[tuple[int, int, int], Any] = field(default_factory=dict)
    slot_start: list[Any] = field(default_factory=list)

    @property
    def num_microbatches(self) -> int:
        """Number of microbatch indices."""
        return len(self.routing)

    def kinds(self, stage: int) -> tuple[Kind, ...]:
        """Kinds a stage runs: split where it can be, since I with W straight after it is never worse than B."""
        return (Kind.F, Kind.I, Kind.W) if self.problem.stages[stage].splittable else (Kind.F, Kind.B)

    def duration(self, kind: Kind, stage: int, pipeline: int) -> float:
        """Ticks an operation takes on a pipeline's worker (1)."""
        worker = Worker(pipeline, self.problem.slot_of_stage[stage])
        cost = self.problem.duration_ns(kind, stage, worker)
        return self.scale.ticks(cost) if cost else self.scale.zero_ticks

    def end(self, kind: Kind, m: int, stage: int) -> Any:
        """End of an operation, as an expression."""
        return self.start[kind, m, stage] + pulp.lpSum(
            self.duration(kind, stage, k) * self.route[m, stage, k] for k in self.routing[m][stage]
        )

    def precedes(self, first: Key, second: Key) -> Any:
        """1 where ``first`` runs before ``second`` on the worker they share; meaningless where they share none."""
        if first[1:] == second[1:]:
            return int(first < second)
        return self.before[first, second] if first < second else 1 - self.before[second, first]

    def shares(self, a: tuple[int, int], b: tuple[int, int]) -> Any:
        """At least 1 where two (microbatch index, stage) run on one worker."""
        return self.shared[min(a, b), max(a, b)]


def num_pairs(problem: Problem) -> int:
    """Number of ordering binaries of the whole program: pairs of one slot's operations, less each microbatch's own at a stage."""
    total = 0
    for slot in problem.slots:
        kinds = [3 if problem.stages[v].splittable else 2 for v in slot.stages]
        operations = problem.num_microbatches * sum(kinds)
        together = problem.num_microbatches * sum(count * count for count in kinds)
        total += (operations * operations - together) // 2
    return total


def new_program(problem: Problem, routing: Routing, *, floor_ns: int = 0) -> Program:
    """Program with all its variables, the objective (17), a period of at least ``floor_ns``, and no other constraint."""
    scale = choose_scale(problem)
    lp = pulp.LpProblem("replan", pulp.LpMinimize)
    serial = _serial_ticks(problem, scale)
    # As in the CP-SAT model every F and I ends within the first slot's window, a W at most one period later.
    program = Program(
        problem=problem,
        scale=scale,
        routing=routing,
        latest=2 * serial,
        lp=lp,
        period=lp.add_variable("T", lowBound=floor_ns / scale.tick_ns, upBound=serial),
    )
    lp += program.period
    for s in range(problem.num_slots):
        anchored = s == problem.slot_of_stage[0] or problem.optimizer is Optimizer.GLOBAL
        program.slot_start.append(0 if anchored else lp.add_variable(f"S_{s}", lowBound=0, upBound=serial))
    for m, choices in enumerate(routing):
        for v in range(problem.num_stages):
            for k in choices[v]:
                fixed = len(choices[v]) == 1
                program.route[m, v, k] = 1 if fixed else lp.add_variable(f"x_{m}_{v}_{k}", cat=pulp.LpBinary)
            for kind in program.kinds(v):
                name = f"start_{kind.name}_{m}_{v}"
                program.start[kind, m, v] = lp.add_variable(name, lowBound=0, upBound=program.latest)
    _add_pairs(program)
    return program


def _add_pairs(program: Program) -> None:
    problem, routing = program.problem, program.routing
    for slot in problem.slots:
        places = sorted((m, v) for m in range(len(routing)) for v in slot.stages)
        for a, b in combinations(places, 2):
            choices, others = routing[a[0]][a[1]], routing[b[0]][b[1]]
            if not set(choices) & set(others):
                continue
            name = f"{a[0]}_{a[1]}_{b[0]}_{b[1]}"
            settled = len(choices) == len(others) == 1
            program.shared[a, b] = 1 if settled else program.lp.add_variable(f"share_{name}", cat=pulp.LpBinary)
            for kind in program.kinds(a[1]):
                for other in program.kinds(b[1]):
                    first, second = sorted([(kind, *a), (other, *b)])
                    variable = program.lp.add_variable(f"y_{kind.name}{other.name}_{name}", cat=pulp.LpBinary)
                    program.before[first, second] = variable


def _serial_ticks(problem: Problem, scale: Scale) -> float:
    """Ticks within which everything surely fits: one microbatch after the other, on the slowest workers."""
    total = scale.ticks(max(slot.sync_ns for slot in problem.slots)) + scale.zero_operations * scale.zero_ticks
    for v, s in enumerate(problem.slot_of_stage):
        stage = problem.stages[v]
        _, slowest = min((problem.speed_ppm(Worker(k, s)), k) for k in problem.live_pipelines(s))
        each = sum(problem.duration_ns(kind, v, Worker(slowest, s)) for kind in (Kind.F, Kind.B))
        total += problem.num_microbatches * scale.ticks(each + 2 * stage.transfer_ns)
    return total
