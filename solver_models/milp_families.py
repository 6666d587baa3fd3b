"""Constraint families of the integer program, one function each; numbers are equations of docs/model.md.

(5) and (6) are not rows: a route to a dead worker has no variable, and a stage runs B exactly where it cannot be split. (12),
FIFO links, is left out: where transfers of one directed pair differ the program is a relaxation.
"""

from __future__ import annotations

from itertools import pairwise

import pulp

from planner.operation import Kind
from planner.problem import Optimizer
from solver_models.milp_model import Key, Program
from solver_models.routing import groups, symmetric_peers


def add_routing(program: Program) -> None:
    """(4): each microbatch and stage on exactly one worker."""
    for m, choices in enumerate(program.routing):
        for v in range(program.problem.num_stages):
            if len(choices[v]) > 1:
                program.lp += pulp.lpSum(program.route[m, v, k] for k in choices[v]) == 1


def add_forward_precedence(program: Program) -> None:
    """(7): F after the F of the stage before, and its transfer."""
    for m in range(program.num_microbatches):
        for v in range(1, program.problem.num_stages):
            program.lp += program.start[Kind.F, m, v] >= program.end(Kind.F, m, v - 1) + _lag(program, m, v - 1)


def add_turn(program: Program) -> None:
    """(8): the last stage's I or B after its own F."""
    v = program.problem.num_stages - 1
    for m in range(program.num_microbatches):
        program.lp += program.start[program.kinds(v)[1], m, v] >= program.end(Kind.F, m, v)


def add_backward_precedence(program: Program) -> None:
    """(9): I or B after the I or B of the stage behind, and its transfer."""
    for m in range(program.num_microbatches):
        for v in range(program.problem.num_stages - 1):
            arrival = program.end(program.kinds(v + 1)[1], m, v + 1) + _lag(program, m, v)
            program.lp += program.start[program.kinds(v)[1], m, v] >= arrival


def add_weight_precedence(program: Program) -> None:
    """(10): W after its own I."""
    for m in range(program.num_microbatches):
        for v in range(program.problem.num_stages):
            if Kind.W in program.kinds(v):
                program.lp += program.start[Kind.W, m, v] >= program.end(Kind.I, m, v)


def _lag(program: Program, m: int, v: int) -> pulp.LpAffineExpression:
    """Transfer over the boundary after stage ``v``: none where one worker runs both of its stages."""
    problem = program.problem
    transfer = program.scale.ticks(problem.stages[v].transfer_ns)
    if not transfer or problem.slot_of_stage[v] != problem.slot_of_stage[v + 1]:
        return pulp.lpSum([transfer])
    shared = set(program.routing[m][v]) & set(program.routing[m][v + 1])
    for k in sorted(shared):
        if (m, v, k) not in program.stay:
            program.stay[m, v, k] = program.lp.add_variable(f"stay_{m}_{v}_{k}", lowBound=0, upBound=1)
            program.lp += program.stay[m, v, k] <= program.route[m, v, k]
            program.lp += program.stay[m, v, k] <= program.route[m, v + 1, k]
    return transfer - transfer * pulp.lpSum(program.stay[m, v, k] for k in shared)


def add_sharing(program: Program) -> None:
    """Linking rows of (11) and (13): two microbatches' stages share a worker where both are routed to it."""
    for (a, b), share in program.shared.items():
        if isinstance(share, int):
            continue
        for k in set(program.routing[a[0]][a[1]]) & set(program.routing[b[0]][b[1]]):
            program.lp += share >= program.route[*a, k] + program.route[*b, k] - 1


def add_one_at_a_time(program: Program) -> None:
    """(11), by big M: of two operations on one worker one ends before the other starts."""
    for first, second in program.before:
        share = program.shares(first[1:], second[1:])
        for one, other in ((first, second), (second, first)):
            slack = program.latest * (2 - program.precedes(one, other) - share)
            program.lp += program.end(*one) <= program.start[other] + slack


def add_memory(program: Program) -> None:
    """(13), at every F: bytes that others hold on its worker at that point of the order.

    Another microbatch's stage holds ``a (F before) - (a - w) (I before) - w (W before)``, at least 0, where it shares the worker.
    Memory only rises at an F, so rows for these suffice.
    """
    problem = program.problem
    for slot in problem.slots:
        if slot.capacity_bytes is None:
            continue
        places = [(m, v) for m in range(program.num_microbatches) for v in slot.stages]
        if sum(problem.stages[v].activation_bytes for _, v in places) <= slot.capacity_bytes:
            continue
        for m, v in places:
            held = [_held(program, other, (m, v)) for other in places if other != (m, v)]
            program.lp += pulp.lpSum(held) <= slot.capacity_bytes - problem.stages[v].activation_bytes


def _held(program: Program, holder: tuple[int, int], at: tuple[int, int]) -> pulp.LpAffineExpression:
    """Bytes of ``holder`` on the worker of ``at`` when the F of ``at`` starts."""
    pair = (min(holder, at), max(holder, at))
    if pair not in program.shared:
        return pulp.lpSum([])
    stage = program.problem.stages[holder[1]]
    moment: Key = (Kind.F, *at)
    kinds = program.kinds(holder[1])
    keeps = stage.weight_grad_bytes if Kind.W in kinds else 0
    done = [program.precedes((kind, *holder), moment) for kind in kinds]
    held = stage.activation_bytes * done[0] - (stage.activation_bytes - keeps) * done[1] - keeps * done[-1]
    share = program.shared[pair]
    if isinstance(share, int):
        return held
    bytes_held = program.lp.add_variable(f"held_{holder[0]}_{holder[1]}_{at[0]}_{at[1]}", lowBound=0)
    program.lp += bytes_held >= held - stage.activation_bytes * (1 - share)
    return bytes_held + 0


def add_windows(program: Program) -> None:
    """(14)-(16): every operation of a slot, and its synchronisation, within one period of the slot's start."""
    problem = program.problem
    slowest = max(slot.sync_ns for slot in problem.slots)
    for v, s in enumerate(problem.slot_of_stage):
        sync = program.scale.ticks(slowest if problem.optimizer is Optimizer.GLOBAL else problem.slots[s].sync_ns)
        begin = program.slot_start[s]
        for m in range(program.num_microbatches):
            program.lp += program.start[Kind.F, m, v] >= begin
            program.lp += program.period >= program.end(program.kinds(v)[-1], m, v) + sync - begin


def add_loads(program: Program) -> None:
    """Implied by (11) and (14)-(16): what a worker runs fits into one period. Strengthens the relaxation."""
    problem = program.problem
    slowest = max(slot.sync_ns for slot in problem.slots)
    for s, slot in enumerate(problem.slots):
        sync = program.scale.ticks(slowest if problem.optimizer is Optimizer.GLOBAL else slot.sync_ns)
        for k in problem.live_pipelines(s):
            load = [
                program.duration(kind, v, k) * program.route[m, v, k]
                for m in range(program.num_microbatches)
                for v in slot.stages
                if k in program.routing[m][v]
                for kind in program.kinds(v)
            ]
            program.lp += pulp.lpSum(load) + sync <= program.period


def add_symmetry_breaking(program: Program) -> None:
    """Order what is interchangeable, as in the CP-SAT model: microbatches by first F, peers by first microbatch."""
    for group in groups(program.routing):
        for a, b in pairwise(group):
            program.lp += program.start[Kind.F, a, 0] <= program.start[Kind.F, b, 0]
    for s, peers in symmetric_peers(program.problem, program.routing):
        v = program.problem.slots[s].stages[0]
        for before, after in pairwise(peers):
            for m in range(program.num_microbatches):
                earlier = pulp.lpSum(program.route[n, v, before] for n in range(m))
                program.lp += program.route[m, v, after] <= earlier


def add_split_consistency(program: Program) -> None:
    """Implied by (7)-(11) on a shared worker: whoever runs before an F also runs before what follows that F there."""
    for a, b in program.shared:
        for place, other in ((a, b), (b, a)):
            for kind in program.kinds(place[1]):
                for one, later in pairwise(program.kinds(other[1])):
                    after = program.precedes((kind, *place), (later, *other))
                    program.lp += program.precedes((kind, *place), (one, *other)) <= after


FAMILIES = (
    add_routing,
    add_forward_precedence,
    add_turn,
    add_backward_precedence,
    add_weight_precedence,
    add_sharing,
    add_one_at_a_time,
    add_memory,
    add_windows,
    add_loads,
    add_symmetry_breaking,
    add_split_consistency,
)
"""Every family; the program is all of them over :func:`solver_models.milp_model.new_program`."""
