"""What is compared, by name: every solver, every rule of the list schedules, and what does without our techniques.

Whatever a contender leaves out (memory, staggering, split backwards) is left out of the problem that its answer is timed,
validated and replayed by; gaps are to the bound of the whole problem.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from benchmarks.baselines import MOST_OPERATIONS, naive_rerouting, round_robin_in_order
from benchmarks.cluster import WHOLE_COMMAND
from benchmarks.row import Counted
from planner.bounds import best_bound
from planner.errors import OptionError
from planner.problem import Optimizer, Problem
from planner.schedule import Schedule
from planner.timing import time_schedule
from solver_models import registry
from solver_models.list_scheduling.routing import balanced_routing
from solver_models.list_scheduling.search import ListSearch, rule_parameters
from solver_models.result import SolveOptions, Status

PASSES_PATIENCE = 0.6
"""Patience of the forward-backward passes that count as a rule."""


class Repeats(StrEnum):
    """When the same seed gives the same plan again, by the wall clock."""

    ALWAYS = "always"
    """No clock is read."""
    UNLESS_CUT = "unless cut"
    """Where it ends before its deadline."""
    BY_CHANCE = "by chance"
    """The clock decides when one search hands on to the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a contender found.

    Parameters
    ----------
    problem
        By which the schedule is timed and to be validated.
    status
        A :class:`~solver_models.result.Status`.
    schedule, period_ns
        ``None`` where it found none.
    bound_ns
        Best lower bound of the whole problem that it knew or proved.
    found_by
        What within it found the schedule.
    detail
        One line for people.
    """

    problem: Problem
    status: Status
    schedule: Schedule | None
    period_ns: int | None
    bound_ns: int
    found_by: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One of them.

    Parameters
    ----------
    name
        As options and rows have it.
    summary
        What it is.
    leaves_out
        What the problem that it answers lacks, for people.
    repeats
        When the same seed gives the same plan again, by the wall clock.
    most_counted
        Largest problem, in operations, on which its deadline can count work, so that the same seed always gives the same plan;
        ``None`` for any.
    solve
        Answers a problem within its options; ``None`` for whole commands, which are given a job.
    needs
        Solver of the registry that has to be installed; ``None`` for none.
    """

    name: str
    summary: str
    solve: Callable[[Problem, SolveOptions], Answer] | None
    leaves_out: str = ""
    repeats: Repeats = Repeats.ALWAYS
    most_counted: int | None = None
    needs: str | None = None

    def clock(self, problem: Problem, *, deterministic: bool) -> Counted:
        """What its deadline counts on a problem where work is to be counted, or is not."""
        if self.repeats is Repeats.ALWAYS:
            return "none"
        counts = self.most_counted is None or problem.num_operations <= self.most_counted
        return "work" if deterministic and counts else "wall"

    def repeats_by(self, clock: Counted) -> Repeats:
        """When the same seed gives the same plan again by a deadline that counts this."""
        return Repeats.ALWAYS if clock == "work" else self.repeats

    def repeats_told(self) -> str:
        """When the same seed gives the same plan again where work is counted, for people."""
        if self.most_counted is None:
            return str(Repeats.ALWAYS)
        if not self.most_counted:
            return str(self.repeats)
        return f"{Repeats.ALWAYS}, up to {self.most_counted} operations"


def contenders() -> Mapping[str, Contender]:
    """Every contender by name, in the order in which tables have them."""
    found = [*_solvers(), *_without_techniques(), *_rules(), _WHOLE_COMMAND]
    return {contender.name: contender for contender in found}


def groups() -> Mapping[str, tuple[str, ...]]:
    """Names that stand for several contenders."""
    known = tuple(contenders())
    return {
        "all": known,
        "solvers": tuple(name for name in known if name in registry.SOLVERS),
        "milp": tuple(name for name in known if name.startswith("milp_")),
        "rules": tuple(name for name in known if name.startswith("rule:")),
        "techniques": tuple(contender.name for contender in _without_techniques()),
    }


def contenders_named(names: str) -> tuple[str, ...]:
    """Contenders of a list of names and groups, separated by commas; each once, in the order given.

    Raises
    ------
    OptionError
        If there is none of a name.
    """
    known, several = contenders(), groups()
    found: list[str] = []
    for name in map(str.strip, names.split(",")):
        if name not in known and name not in several:
            raise OptionError(
                f"there is no solver {name!r} to compare; expected some of {', '.join((*several, *known))}",
            )
        found.extend(several.get(name, (name,)))
    return tuple(dict.fromkeys(found))


_SUMMARIES = {
    "list_scheduling": ("compiled list schedules, all rules", Repeats.UNLESS_CUT),
    "annealing": ("list schedules, annealed", Repeats.BY_CHANCE),
    "cp_sat": ("CP-SAT on the whole problem", Repeats.UNLESS_CUT),
    "improve": ("CP-SAT on neighbourhoods of a list schedule", Repeats.BY_CHANCE),
    "milp_cbc": ("the paper's integer program, CBC", Repeats.UNLESS_CUT),
    "milp_highs": ("the paper's integer program, HiGHS", Repeats.UNLESS_CUT),
    "milp_scip": ("the paper's integer program, SCIP", Repeats.UNLESS_CUT),
    "portfolio": ("ours: all of it within the deadline", Repeats.BY_CHANCE),
}


_MOST_COUNTED = {"improve": 2_000, "milp_cbc": 0, "milp_highs": 0, "milp_scip": 0}
"""Of solvers that cannot count their work on any problem."""


def _solvers() -> list[Contender]:
    return [
        Contender(
            name=name,
            summary=_SUMMARIES[name][0] if name in _SUMMARIES else name,
            repeats=_SUMMARIES[name][1] if name in _SUMMARIES else Repeats.BY_CHANCE,
            solve=lambda problem, options, name=name: _by_solver(name, problem, options),  # type: ignore[misc]
            most_counted=_MOST_COUNTED.get(name),
            needs=name,
        )
        for name in registry.SOLVERS
    ]


_WHOLE_COMMAND = Contender(
    name=WHOLE_COMMAND,
    summary="`replan plan` and `replan validate` as commands, for instances of jobs",
    repeats=Repeats.BY_CHANCE,
    solve=None,
)


def _without_techniques() -> list[Contender]:
    return [
        Contender(
            name="naive",
            summary="1F1B, failed workers' microbatches behind their peers' own",
            leaves_out="staggering, split backwards, filling of bubbles",
            solve=_naive,
        ),
        Contender(
            name="reroute",
            summary="ours with rerouting into bubbles alone",
            leaves_out="staggering, split backwards",
            repeats=Repeats.BY_CHANCE,
            solve=lambda problem, options: _restricted(problem, options, fused=True),
        ),
        Contender(
            name="reroute_split",
            summary="ours with rerouting and split backwards",
            leaves_out="staggering",
            repeats=Repeats.BY_CHANCE,
            solve=lambda problem, options: _restricted(problem, options, fused=False),
        ),
        Contender(
            name="round_robin",
            summary="rerouting in fixed turns that keeps 1F1B's order",
            leaves_out="staggering, memory",
            solve=_round_robin,
        ),
    ]


def _rules() -> list[Contender]:
    """The first rule of the portfolio, those that differ from it in one parameter, and its forward-backward passes."""
    first, *others = rule_parameters()
    near = [rule for rule in others if sum(a != b for a, b in zip(first, rule, strict=True)) == 1]
    return [
        *(
            Contender(
                name=_rule_name(rule),
                summary=_rule_summary(rule),
                solve=lambda problem, _options, rule=rule: _by_rule(problem, rule),  # type: ignore[misc]
            )
            for rule in (first, *near)
        ),
        Contender(
            name="rule:passes",
            summary="forward-backward passes from the first rule",
            solve=lambda p, _options: _passes(p),
        ),
    ]


def _rule_name(rule: tuple[float, float | None, float]) -> str:
    budget, limit, patience = rule
    return f"rule:idle{budget:g}-flight{'M' if limit is None else f'{limit:g}'}-wait{patience:g}"


def _rule_summary(rule: tuple[float, float | None, float]) -> str:
    budget, limit, patience = rule
    return (
        f"one list schedule: idles by choice up to {budget:g} of the bound, "
        f"{'what memory holds' if limit is None else f'{limit:g} of 1F1B'} in flight, waits {patience:g} of a forward"
    )


def _by_solver(name: str, problem: Problem, options: SolveOptions) -> Answer:
    if name.startswith("milp_"):
        # Its child says so too, unless the deadline comes first.
        from solver_models.milp_search import require_small  # noqa: PLC0415 - its backend need not be installed

        require_small(problem)
    result = registry.solve(name, problem, options)
    return Answer(
        problem=problem,
        status=result.status,
        schedule=result.schedule,
        period_ns=result.period_ns,
        bound_ns=result.bound_ns,
        found_by=result.solver,
        detail=result.failure or result.detail,
    )


def _known(problem: Problem, whole: Problem, schedule: Schedule, period_ns: int, found_by: str) -> Answer:
    """Answer of something that proves nothing, for ``problem`` in place of the ``whole`` one."""
    bound_ns = best_bound(whole).value_ns
    return Answer(
        problem=problem,
        status=Status.OPTIMAL if period_ns == bound_ns and problem == whole else Status.FEASIBLE,
        schedule=schedule,
        period_ns=period_ns,
        bound_ns=bound_ns,
        found_by=found_by,
    )


def _naive(problem: Problem, _options: SolveOptions) -> Answer:
    _require_few(problem)
    made = naive_rerouting(problem)
    return _known(made.problem, problem, made.schedule, made.period_ns, "naive")


def _round_robin(problem: Problem, _options: SolveOptions) -> Answer:
    _require_few(problem)
    made = round_robin_in_order(problem)
    return _known(made.problem, problem, made.schedule, made.period_ns, "round_robin")


def _require_few(problem: Problem) -> None:
    if problem.num_operations > MOST_OPERATIONS:
        raise OptionError(
            f"the problem has {problem.num_operations} operations; this baseline takes at most {MOST_OPERATIONS}"
        )


def _restricted(problem: Problem, options: SolveOptions, *, fused: bool) -> Answer:
    """The portfolio on a problem whose slots step together, and whose backwards are fused where asked for."""
    restricted = replace(problem, optimizer=Optimizer.GLOBAL)
    if fused:
        stages = tuple(replace(stage, splittable=False) for stage in problem.stages)
        restricted = replace(restricted, stages=stages)
    found = registry.solve("portfolio", restricted, options)
    assert found.schedule is not None
    assert found.period_ns is not None
    answer = _known(restricted, problem, found.schedule, found.period_ns, found.solver)
    return replace(answer, detail=found.failure or found.detail)


def _list_search(problem: Problem) -> ListSearch:
    problem.require_plannable()
    return ListSearch(problem, balanced_routing(problem), best_bound(problem).value_ns)


def _by_rule(problem: Problem, rule: tuple[float, float | None, float]) -> Answer:
    trial = _list_search(problem).by_rounds(*rule)
    schedule, period_ns = time_schedule(problem, trial.order(problem))
    return _known(problem, problem, schedule, period_ns, _rule_name(rule))


def _passes(problem: Problem) -> Answer:
    search = _list_search(problem)
    first = search.by_rounds(*next(rule_parameters()))
    best = min([first, *search.passes(first.start, PASSES_PATIENCE)], key=lambda trial: trial.window_ns)
    schedule, period_ns = time_schedule(problem, best.order(problem))
    return _known(problem, problem, schedule, period_ns, "rule:passes")
