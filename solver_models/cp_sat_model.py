"""The CP-SAT model: intervals, routing, memory and windows, one function a constraint family.

Numbers in brackets are equations of docs/model.md. Times are units of :class:`solver_models.cp_sat_ticks.Ticks`. The model
leaves out (12), FIFO links: where transfers of one directed pair differ it is a relaxation, its bounds still hold, and the
exact timing has the last word. Stages that can split their backward always do: I with W straight after it gives the gradient
away earlier than B and holds no more bytes, so (3) decides nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeAlias

from ortools.sat.python import cp_model

from planner.operation import Kind, Operation, Worker
from planner.problem import Optimizer, Problem
from planner.schedule import Schedule, TimedOperation, schedule_from_orders
from solver_models.routing import Routing, groups, symmetric_peers
from solver_models.ticks import Ticks

Key: TypeAlias = tuple[Kind, int, int]
"""Kind, microbatch index, stage."""


@dataclass(kw_only=True)
class Model:
    """Variables of one model under construction.

    Parameters
    ----------
    problem, ticks, routing
        What is modelled, and in which units.
    microbatches
        Home pipeline and number of each microbatch index.
    period
        The period ``T``: a variable to minimise, or the number of units asked about.
    cp
        OR-Tools' model.
    start, end
        Of each operation, whichever worker runs it.
    route
        (2): literal of each microbatch index, stage and pipeline that may run it; the constant 1 where it must.
    slot_start
        ``S_s`` of each slot.
    intervals
        Operations' intervals of each worker, optional where routing is free.
    """

    problem: Problem
    ticks: Ticks
    routing: Routing
    microbatches: tuple[tuple[int, int], ...]
    period: Any
    latest: int
    cp: cp_model.CpModel = field(default_factory=cp_model.CpModel)
    start: dict[Key, Any] = field(default_factory=dict)
    end: dict[Key, Any] = field(default_factory=dict)
    route: dict[tuple[int, int, int], Any] = field(default_factory=dict)
    slot_start: list[Any] = field(default_factory=list)
    intervals: dict[Worker, list[Any]] = field(default_factory=dict)

    def back(self, stage: int) -> Kind:
        """Kind of the operation that sends the gradient back from a stage."""
        return Kind.I if self.problem.stages[stage].splittable else Kind.B

    def kinds(self, stage: int) -> tuple[Kind, ...]:
        """Modelled kinds of a stage. A W of zero ticks is left out: straight after its I it costs nothing."""
        cost = self.problem.stages[stage]
        if not cost.splittable:
            return (Kind.F, Kind.B)
        return (Kind.F, Kind.I, Kind.W) if self.ticks.units(cost.weight_grad_ns) else (Kind.F, Kind.I)

    def last(self, stage: int) -> Kind:
        """Kind of a stage's last modelled operation."""
        return self.kinds(stage)[-1]

    def holds(self, m: int, stage: int) -> list[tuple[Key, Key, int]]:
        """Operations between which a microbatch holds bytes at a stage: from the start of F or the end of I, to an end."""
        cost, back, last = self.problem.stages[stage], self.back(stage), self.last(stage)
        keeps = cost.weight_grad_bytes if last is Kind.W else 0
        if keeps == cost.activation_bytes:
            return [((Kind.F, m, stage), (last, m, stage), keeps)]
        return [
            ((Kind.F, m, stage), (back, m, stage), cost.activation_bytes),
            ((back, m, stage), (last, m, stage), keeps),
        ]

    def duration(self, kind: Kind, stage: int, pipeline: int) -> int:
        """Units an operation takes on a pipeline's worker (1)."""
        worker = Worker(pipeline, self.problem.slot_of_stage[stage])
        return self.ticks.operation_units(self.problem.duration_ns(kind, stage, worker))

    @property
    def num_microbatches(self) -> int:
        """Number of microbatch indices."""
        return len(self.microbatches)


def new_model(problem: Problem, ticks: Ticks, routing: Routing, *, lower: int, upper: int) -> Model:
    """Model with all its variables, intervals and the period in ``lower..upper``, and no constraints but (1), (2) and (4)-(6).

    Every F and I lies within the first slot's window, since the first stage's F precedes and its I follows it; only a W may
    end later, at most one period after its slot began. Thus all times lie in ``0..2 * upper``.
    """
    microbatches = tuple((k, j) for k, count in enumerate(problem.microbatches) for j in range(count))
    model = Model(
        problem=problem,
        ticks=ticks,
        routing=routing,
        microbatches=microbatches,
        period=upper,
        latest=2 * upper,
    )
    if lower < upper:
        model.period = model.cp.new_int_var(lower, upper, "T")
    first = problem.slot_of_stage[0]
    for s in range(problem.num_slots):
        anchored = s == first or problem.optimizer is Optimizer.GLOBAL
        model.slot_start.append(0 if anchored else model.cp.new_int_var(0, upper, f"S{s}"))
    for m in range(len(microbatches)):
        for v in range(problem.num_stages):
            _add_routes(model, m, v)
            for kind in model.kinds(v):
                _add_operation(model, kind, m, v)
    return model


def _add_routes(model: Model, m: int, v: int) -> None:
    choices = model.routing[m][v]
    if len(choices) == 1:
        model.route[m, v, choices[0]] = 1
        return
    for k in choices:
        model.route[m, v, k] = model.cp.new_bool_var(f"x{m},{v},{k}")
    model.cp.add_exactly_one(model.route[m, v, k] for k in choices)


def _add_operation(model: Model, kind: Kind, m: int, v: int) -> None:
    """Start, end and intervals of one operation; every worker it may run on has an interval over the same start."""
    choices = model.routing[m][v]
    units = {k: model.duration(kind, v, k) for k in choices}
    start = model.cp.new_int_var(0, model.latest, f"{kind.name}{m},{v}")
    model.start[kind, m, v] = start
    if len(set(units.values())) == 1:
        model.end[kind, m, v] = start + units[choices[0]]
    else:
        # A variable of its own, since intervals that hold memory end with it.
        end = model.cp.new_int_var(0, model.latest, "")
        model.cp.add(end == start + sum(units[k] * model.route[m, v, k] for k in choices))
        model.end[kind, m, v] = end
    for k in choices:
        worker = Worker(k, model.problem.slot_of_stage[v])
        interval = (
            model.cp.new_fixed_size_interval_var(start, units[k], "")
            if len(choices) == 1
            else model.cp.new_optional_fixed_size_interval_var(start, units[k], model.route[m, v, k], "")
        )
        model.intervals.setdefault(worker, []).append(interval)


def add_precedence(model: Model) -> None:
    """(7)-(10): forwards down the stages, gradients up, W after its own I, transfers between different workers."""
    for m in range(model.num_microbatches):
        for v in range(model.problem.num_stages):
            back = model.back(v)
            if v + 1 < model.problem.num_stages:
                lag = _lag(model, m, v)
                model.cp.add(model.start[Kind.F, m, v + 1] >= model.end[Kind.F, m, v] + lag)
                model.cp.add(model.start[back, m, v] >= model.end[model.back(v + 1), m, v + 1] + lag)
            else:
                model.cp.add(model.start[back, m, v] >= model.end[Kind.F, m, v])
            if model.last(v) is Kind.W:
                model.cp.add(model.start[Kind.W, m, v] >= model.end[Kind.I, m, v])


def _lag(model: Model, m: int, v: int) -> Any:
    """Transfer time over the boundary after stage ``v``: none where one worker runs both of its stages."""
    transfer = model.ticks.units(model.problem.stages[v].transfer_ns)
    shared = set(model.routing[m][v]) & set(model.routing[m][v + 1])
    if not transfer or model.problem.slot_of_stage[v] != model.problem.slot_of_stage[v + 1] or not shared:
        return transfer
    if len(model.routing[m][v]) == 1 and model.routing[m][v] == model.routing[m][v + 1]:
        return 0
    same = model.cp.new_bool_var("")
    for k in {*model.routing[m][v], *model.routing[m][v + 1]}:
        here, there = model.route.get((m, v, k), 0), model.route.get((m, v + 1, k), 0)
        model.cp.add(here == there).only_enforce_if(same)
    return transfer * (1 - same)


def add_no_overlap(model: Model) -> None:
    """(11): a worker runs one operation at a time."""
    for intervals in model.intervals.values():
        model.cp.add_no_overlap(intervals)


def add_memory(model: Model) -> None:
    """(13) in every slot."""
    for s in range(model.problem.num_slots):
        add_slot_memory(model, s)


def add_slot_memory(model: Model, s: int) -> None:
    """(13): bytes held from the start of F to the end of I or B, and what W needs from there to its end."""
    slot = model.problem.slots[s]
    if slot.capacity_bytes is None:
        return
    most = sum(model.problem.stages[v].activation_bytes for v in slot.stages) * model.num_microbatches
    if most <= slot.capacity_bytes:
        return
    for k in model.problem.live_pipelines(s):
        intervals: list[Any] = []
        demands: list[int] = []
        for m in range(model.num_microbatches):
            for v in slot.stages:
                if k in model.routing[m][v]:
                    _add_holds(model, m, v, k, intervals, demands)
        if intervals:
            model.cp.add_cumulative(intervals, demands, slot.capacity_bytes)


def _add_holds(model: Model, m: int, v: int, k: int, intervals: list[Any], demands: list[int]) -> None:
    route = model.route[m, v, k]
    for first, last, held in model.holds(m, v):
        if not held:
            continue
        size = model.cp.new_int_var(1, model.latest, "")
        start, end = model.start[first] if first[0] is Kind.F else model.end[first], model.end[last]
        intervals.append(
            model.cp.new_interval_var(start, size, end, "")
            if isinstance(route, int)
            else model.cp.new_optional_interval_var(start, size, end, route, "")
        )
        demands.append(held)


def add_windows(model: Model) -> None:
    """(14)-(16): every operation of a slot, and its synchronisation, within one period of the slot's start."""
    problem, ticks = model.problem, model.ticks
    slowest = max(slot.sync_ns for slot in problem.slots)
    for v, s in enumerate(problem.slot_of_stage):
        sync = ticks.units(slowest if problem.optimizer is Optimizer.GLOBAL else problem.slots[s].sync_ns)
        begin = model.slot_start[s]
        for m in range(model.num_microbatches):
            if not isinstance(begin, int):
                model.cp.add(model.start[Kind.F, m, v] >= begin)
            model.cp.add(model.end[model.last(v), m, v] + sync <= begin + model.period)


def add_loads(model: Model) -> None:
    """Implied by (11) and (14)-(16): what a worker runs fits into one period."""
    problem = model.problem
    slowest = max(slot.sync_ns for slot in problem.slots)
    for s, slot in enumerate(problem.slots):
        sync = model.ticks.units(slowest if problem.optimizer is Optimizer.GLOBAL else slot.sync_ns)
        for k in problem.live_pipelines(s):
            load = [
                model.route[m, v, k] * sum(model.duration(kind, v, k) for kind in model.kinds(v))
                for m in range(model.num_microbatches)
                for v in slot.stages
                if k in model.routing[m][v]
            ]
            if load:
                model.cp.add(sum(load) + sync <= model.period)


def add_symmetry_breaking(model: Model) -> None:
    """Order what is interchangeable; some best schedule always satisfies it.

    Microbatches with the same choices differ in name only: the first stage takes them in index order. Peers of equal speed
    that every microbatch may use are labels, slot by slot: at the slot's first stage a peer gets a microbatch only after its
    predecessor has got one of a lower index.
    """
    for group in groups(model.routing):
        for a, b in pairwise(group):
            model.cp.add(model.start[Kind.F, a, 0] <= model.start[Kind.F, b, 0])
    for s, peers in symmetric_peers(model.problem, model.routing):
        stage = model.problem.slots[s].stages[0]
        for before, after in pairwise(peers):
            for m in range(model.num_microbatches):
                earlier = [model.route[n, stage, before] for n in range(m)]
                model.cp.add_bool_or([*earlier, model.route[m, stage, after].negated()])


def add_first_in_first_out(model: Model) -> None:
    """Keep interchangeable microbatches in index order at every stage, for F, I and W alike.

    Not without loss of generality, but good schedules have it and it shrinks the search; use it to find, not to prove.
    """
    for group in groups(model.routing):
        for a, b in pairwise(group):
            for v in range(model.problem.num_stages):
                together = len(model.routing[a][v]) == 1
                for kind in model.kinds(v):
                    before = model.end[kind, a, v] if together else model.start[kind, a, v]
                    model.cp.add(before <= model.start[kind, b, v])


def add_hint(model: Model, schedule: Schedule) -> None:
    """Suggest a schedule's routing and times, rounded down to units and renamed as :func:`add_symmetry_breaking` asks."""
    index, label = _names(model, schedule)
    worker = schedule.worker_of_row()
    for row in range(schedule.num_operations):
        op = schedule.operation(row)
        m = index[op.pipeline, op.microbatch]
        start = model.start.get((op.kind, m, op.stage))
        if start is not None:
            model.cp.add_hint(start, model.ticks.time_units(int(schedule.start_ns[row])))
        if op.kind is Kind.F and len(model.routing[m][op.stage]) > 1:
            runs = label[schedule.worker_at(int(worker[row]))]
            for k in model.routing[m][op.stage]:
                model.cp.add_hint(model.route[m, op.stage, k], runs == k)


def _names(model: Model, schedule: Schedule) -> tuple[dict[tuple[int, int], int], dict[Worker, int]]:
    """Microbatch index of each (home, number), and the pipeline each worker is renamed to within its slot."""
    problem = model.problem
    first_start = {
        (int(schedule.pipeline[row]), int(schedule.microbatch[row])): (int(schedule.start_ns[row]), row)
        for row in range(schedule.num_operations)
        if schedule.kind[row] == Kind.F and schedule.stage[row] == 0
    }
    index: dict[tuple[int, int], int] = {}
    for group in groups(model.routing):
        homes = sorted((model.microbatches[m] for m in group), key=lambda home: first_start[home])
        index.update(zip(homes, group, strict=True))
    label = {Worker(k, s): k for s in range(problem.num_slots) for k in range(problem.num_pipelines)}
    for s, peers in symmetric_peers(model.problem, model.routing):
        stage = problem.slots[s].stages[0]
        first_index: dict[int, int] = {}
        for k in peers:
            rows = schedule.rows(Worker(k, s))
            mine = [
                index[int(schedule.pipeline[r]), int(schedule.microbatch[r])]
                for r in rows
                if schedule.kind[r] == Kind.F and schedule.stage[r] == stage
            ]
            first_index[k] = min(mine, default=len(index))
        for k, name in zip(sorted(peers, key=lambda k: first_index[k]), peers, strict=True):
            label[Worker(k, s)] = name
    return index, label


def extract(model: Model, value: Any) -> Schedule:
    """Order and model times of a solution.

    Parameters
    ----------
    model
        The model that was solved.
    value
        Function from a variable or expression to its value.
    """
    problem, ticks = model.problem, model.ticks
    rows: dict[Worker, list[tuple[int, bool, TimedOperation]]] = {}
    for m, (home, number) in enumerate(model.microbatches):
        for v, s in enumerate(problem.slot_of_stage):
            k = next(k for k in model.routing[m][v] if len(model.routing[m][v]) == 1 or value(model.route[m, v, k]))
            kinds: Sequence[Kind] = model.kinds(v)
            if problem.stages[v].splittable and Kind.W not in kinds:
                kinds = (*kinds, Kind.W)
            for kind in kinds:
                modelled = (kind, m, v) in model.start
                begin = value(model.start[kind, m, v]) if modelled else value(model.end[Kind.I, m, v])
                start_ns = ticks.time_ns(begin)
                end_ns = start_ns + problem.duration_ns(kind, v, Worker(k, s))
                timed = TimedOperation(Operation(kind, v, home, number), start_ns, end_ns)
                # An unmodelled W stands before whatever starts at the same time.
                rows.setdefault(Worker(k, s), []).append((begin, modelled, timed))
    orders = {w: [timed for _, _, timed in sorted(found, key=lambda row: row[:2])] for w, found in rows.items()}
    return schedule_from_orders(problem.num_pipelines, problem.num_slots, orders)
