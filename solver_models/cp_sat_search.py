"""The CP-SAT search: ask for the known bound first, then minimise.

Posed as "is there a schedule with this period?", with every slot's operations confined to one window, CP-SAT finds the
bound where plain minimisation stalls above it. So, in order, each step only while nothing is proved yet and time is left:

1. the bound's period with microbatches at home and first-in first-out, which is where good schedules are;
2. the same restrictions, minimising, if there is no schedule to improve on yet;
3. the whole model at exact scale, minimising below the best: what proves a bound above the known one, or infeasibility.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ortools.sat.python import cp_model

from planner.operation import Kind, Worker
from planner.problem import Optimizer, Problem
from planner.schedule import Schedule
from solver_models import cp_sat_model as build
from solver_models import work
from solver_models.cp_sat_statuses import STATUSES
from solver_models.result import Status
from solver_models.routing import Routing, free_routing, home_routing
from solver_models.search import Found, Report, SearchInput
from solver_models.ticks import Ticks, choose_ticks

MAX_INTERVALS = 60_000
"""Most optional intervals of a model; beyond, building it alone takes minutes and gigabytes."""

_STEP_SHARES = (0.35, 0.5)
"""Share of the time left that each of the first two steps may take."""


@dataclass(kw_only=True)
class Progress:
    """Best schedule and bound of a search so far.

    Parameters
    ----------
    given, report
        The search.
    schedule, period_ns
        Best order and the model's period of it, rounded up.
    bound_ns
        Greatest lower bound known or proved.
    notes
        What each step came to, for people.
    """

    given: SearchInput
    report: Report
    bound_ns: int
    schedule: Schedule | None = None
    period_ns: int | None = None
    notes: list[str] = field(default_factory=list)

    def take(self, schedule: Schedule, period_ns: int) -> None:
        """Keep a schedule if it is better than the best."""
        if self.period_ns is None or period_ns < self.period_ns:
            self.schedule, self.period_ns = schedule, period_ns
            self.report(schedule, self.bound_ns)

    @property
    def good_enough(self) -> bool:
        """Whether the best schedule meets the bound or the target gap."""
        return self.period_ns is not None and self.period_ns <= self.bound_ns * (1 + self.given.options.target_gap)


class _Watcher(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]
    """Takes every solution as it is found and stops the solver once the best is good enough."""

    def __init__(self, model: build.Model, progress: Progress) -> None:
        super().__init__()
        self._model, self._progress = model, progress

    def on_solution_callback(self) -> None:
        """Called by CP-SAT from one of its threads."""
        self._progress.take(build.extract(self._model, self.value), period_ns(self._model, self.value))
        if self._progress.good_enough:
            self.stop_search()


def period_ns(model: build.Model, value: Any) -> int:
    """Longest window of a solution's own times, in nanoseconds rounded up to parts of a tick."""
    problem, ticks = model.problem, model.ticks
    slowest = max(slot.sync_ns for slot in problem.slots)
    longest = 0
    for v, s in enumerate(problem.slot_of_stage):
        sync = slowest if problem.optimizer is Optimizer.GLOBAL else problem.slots[s].sync_ns
        latest = max(int(value(model.end[model.last(v), m, v])) for m in range(model.num_microbatches))
        begin = model.slot_start[s]
        longest = max(longest, latest + ticks.units(sync) - (begin if isinstance(begin, int) else int(value(begin))))
    return -(-(longest // ticks.subticks) * ticks.tick_ns // ticks.divisor)


def search(given: SearchInput, report: Report) -> Found:
    """Search for the best schedule of a problem with CP-SAT; see the module's description."""
    problem = given.problem
    progress = Progress(given=given, report=report, bound_ns=given.floor_ns)
    if given.hint is not None:
        progress.schedule, progress.period_ns = given.hint, window_period_ns(problem, given.hint)
    if not progress.good_enough:
        _ask_for_bound(progress)
    if progress.schedule is None and given.left_s() > 0:
        _minimise_restricted(progress)
    status = Status.NO_PLAN_BY_DEADLINE
    if not progress.good_enough and given.left_s() > 0:
        status = _minimise(progress)
    if progress.schedule is not None:
        status = Status.OPTIMAL if progress.good_enough else Status.FEASIBLE
    return Found(
        status=status, schedule=progress.schedule, bound_ns=progress.bound_ns, detail="; ".join(progress.notes)
    )


def window_period_ns(problem: Problem, timed: Schedule) -> int:
    """Longest window of a timed schedule's slots (15), or its whole length (16), with synchronisation, in nanoseconds."""
    if problem.optimizer is Optimizer.GLOBAL:
        slowest = max(slot.sync_ns for slot in problem.slots)
        return int(timed.end_ns.max() - timed.start_ns.min()) + slowest
    slot = timed.worker_of_row() % problem.num_slots
    return max(
        int(timed.end_ns[slot == s].max() - timed.start_ns[slot == s].min()) + problem.slots[s].sync_ns
        for s in range(problem.num_slots)
    )


def complete(
    problem: Problem, ticks: Ticks, routing: Routing, *, lower: int, upper: int, restricted: bool
) -> build.Model:
    """Whole model: every family, and what orders the interchangeable."""
    model = build.new_model(problem, ticks, routing, lower=lower, upper=upper)
    build.add_precedence(model)
    build.add_no_overlap(model)
    build.add_memory(model)
    build.add_windows(model)
    build.add_loads(model)
    if restricted:
        build.add_first_in_first_out(model)
    else:
        build.add_symmetry_breaking(model)
    return model


def _ask_for_bound(progress: Progress) -> None:
    """Step 1: whether the known bound is reached."""
    given = progress.given
    if given.floor_ns <= 0 or _too_large(home_routing(given.problem)):
        return
    ticks = choose_ticks(given.problem, given.floor_ns, exact=False)
    target = ticks.period_units(given.floor_ns)
    model = complete(given.problem, ticks, home_routing(given.problem), lower=target, upper=target, restricted=True)
    status, _ = solve_model(model, progress, given.left_s() * _STEP_SHARES[0], whole=True)
    progress.notes.append(f"bound's period at home in order: {status.value}")


def _minimise_restricted(progress: Progress) -> None:
    """Step 2: any schedule, as good as time allows, where good ones are."""
    given = progress.given
    routing = home_routing(given.problem)
    if _too_large(routing):
        return
    ticks = choose_ticks(given.problem, given.floor_ns, exact=False)
    model = complete(
        given.problem,
        ticks,
        routing,
        lower=lower_units(ticks, given.floor_ns),
        upper=_serial(given.problem, ticks),
        restricted=True,
    )
    model.cp.minimize(model.period)
    status, _ = solve_model(model, progress, given.left_s() * _STEP_SHARES[1], whole=True)
    progress.notes.append(f"minimised at home in order: {status.value}")


def _minimise(progress: Progress) -> Status:
    """Step 3: the whole model below the best so far; its bound counts, and where it is infeasible the best is optimal."""
    given, problem = progress.given, progress.given.problem
    routing = free_routing(problem)
    if _too_large(routing):
        progress.notes.append("too large for the whole model")
        return Status.NO_PLAN_BY_DEADLINE
    ticks = choose_ticks(problem, given.floor_ns, exact=True)
    upper = _serial(problem, ticks)
    if progress.period_ns is not None:
        upper = min(upper, ticks.period_units(progress.period_ns - 1))
    lower = min(lower_units(ticks, given.floor_ns), upper)
    model = complete(problem, ticks, routing, lower=lower, upper=upper, restricted=False)
    if lower < upper:
        model.cp.minimize(model.period)
    status, bound_units = solve_model(model, progress, given.left_s(), whole=True)
    if status is Status.INFEASIBLE and progress.schedule is not None:
        progress.bound_ns = max(progress.bound_ns, ticks.bound_ns(upper + 1))
    elif bound_units is not None:
        progress.bound_ns = max(progress.bound_ns, ticks.bound_ns(bound_units))
    progress.notes.append(f"whole model: {status.value}")
    return status


def solve_model(model: build.Model, progress: Progress, limit_s: float, *, whole: bool) -> tuple[Status, int | None]:
    """Solve a model: its status, and the lower bound on its period if it has one.

    Parameters
    ----------
    model, progress
        The model and the search.
    limit_s
        Seconds that it may take.
    whole
        Whether all orders are free: such a model takes long before CP-SAT counts any work.
    """
    given = progress.given
    constraints, clock = len(model.cp.proto.constraints), given.deadline.clock
    clock.charge(work.model_s(constraints))
    before_s = work.presolve_s(constraints) if whole else 0.0
    if progress.schedule is not None:
        build.add_hint(model, progress.schedule)
    solver = cp_model.CpSolver()
    limit_s = max(0.01, min(limit_s, given.left_s()))
    if given.options.deterministic:
        if before_s >= limit_s:
            return Status.NO_PLAN_BY_DEADLINE, None
        solver.parameters.max_deterministic_time = (limit_s - before_s) / work.DETERMINISTIC_S
    else:
        solver.parameters.max_time_in_seconds = limit_s
    solver.parameters.num_workers = given.options.workers
    solver.parameters.random_seed = given.options.seed
    # Without it, presolve alone may run past any time limit on large models.
    solver.parameters.symmetry_level = 0
    status = STATUSES[solver.solve(model.cp, _Watcher(model, progress))]
    clock.charge(before_s + work.DETERMINISTIC_S * solver.response_proto.deterministic_time)
    has_bound = not isinstance(model.period, int) and status in (
        Status.OPTIMAL,
        Status.FEASIBLE,
        Status.NO_PLAN_BY_DEADLINE,
    )
    return status, round(solver.best_objective_bound) if has_bound else None


def lower_units(ticks: Ticks, floor_ns: int) -> int:
    """Units that no schedule's period can be below; 0 where rounding down could have taken them."""
    if ticks.coarse:
        return 0
    return floor_ns * ticks.divisor // ticks.tick_ns * ticks.subticks


def _serial(problem: Problem, ticks: Ticks) -> int:
    """Units within which everything surely fits: one microbatch after the other, on the slowest workers."""
    total = max(ticks.units(slot.sync_ns) for slot in problem.slots)
    for v, s in enumerate(problem.slot_of_stage):
        stage = problem.stages[v]
        _, slowest = min((problem.speed_ppm(Worker(k, s)), k) for k in problem.live_pipelines(s))
        kinds = (Kind.F, Kind.I, Kind.W) if stage.splittable else (Kind.F, Kind.B)
        each = sum(ticks.operation_units(problem.duration_ns(kind, v, Worker(slowest, s))) for kind in kinds)
        total += problem.num_microbatches * (each + 2 * ticks.units(stage.transfer_ns))
    return total


def _too_large(routing: Routing) -> bool:
    return 3 * sum(len(choices) for stages in routing for choices in stages) > MAX_INTERVALS
