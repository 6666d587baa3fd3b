"""What is compared: techniques switched on one at a time, rules, solvers, and what each cannot do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.contenders import Contender, Repeats, contenders, contenders_named, groups
from benchmarks.generated import growth, small
from benchmarks.instance import Instance
from benchmarks.jobs import worked_example
from benchmarks.measure import measure
from benchmarks.suites import SUITES
from planner.errors import OptionError
from planner.formats.job_file import job_to_document, load_job
from planner.operation import Worker
from solver_models import registry
from solver_models.improve_search import MAX_COUNTED_OPERATIONS
from solver_models.result import SolveOptions

ROOT = Path(__file__).parents[2]
OPTIONS = SolveOptions(deadline_s=0.3, deterministic=True)
"""Work in place of seconds, so that no load of the machine decides what is found."""
TINY = next(small())
KNOWN = contenders()


def instance_named(name: str) -> Instance:
    """One of the worked example's."""
    return next(instance for instance in worked_example() if instance.name == name)


@pytest.mark.parametrize(("name", "period_ns"), [("reroute", 33_000), ("reroute_split", 29_000), ("portfolio", 27_000)])
def test_techniques_give_the_periods_of_the_worked_example(name: str, period_ns: int) -> None:
    """The paper's example around its third slot's failure: fused backwards at best 33, split 29, split and staggered 27."""
    found = measure(instance_named("3x4x6-slot2"), KNOWN[name], OPTIONS)
    assert (found.status in ("feasible", "optimal"), found.period_ns) == (True, period_ns)
    assert found.bound_ns == 27_000
    assert found.gap == period_ns / 27_000 - 1


@pytest.mark.parametrize("name", [name for name in KNOWN if name not in ("cp_sat", "improve", "command")])
def test_each_answers_a_tiny_problem_with_a_plan_that_stands_its_checks(name: str) -> None:
    """Or, an integer program by the deadline, with none."""
    if name == "milp_scip":
        pytest.importorskip("pyscipopt", reason="pyscipopt, the extra scip, is not installed")
    found = measure(TINY, KNOWN[name], SolveOptions(deadline_s=2.0))
    assert found.status in ("optimal", "feasible", *(("no_plan_by_deadline",) if name.startswith("milp") else ()))
    assert (found.period_ns is None) == (found.schedule_sha256 is None)
    assert found.period_ns is None or found.period_ns >= found.bound_ns
    assert found.solve_peak_bytes is not None
    assert found.base_bytes is not None


def test_the_same_order_has_the_same_hash_and_another_another() -> None:
    """What `bench compare` calls the same plan."""
    hashes = [measure(TINY, KNOWN[name], OPTIONS).schedule_sha256 for name in ("naive", "naive", "round_robin")]
    assert hashes[0] == hashes[1] != hashes[2]


def test_what_is_too_large_for_a_contender_is_told_not_tried() -> None:
    """An integer program of a thousand operations, a baseline of millions."""
    large = list(growth())
    for name, instance in (("milp_highs", large[1]), ("naive", large[-1]), ("round_robin", large[-1])):
        found = measure(instance, KNOWN[name], OPTIONS)
        assert (found.status, found.period_ns) == ("not_applicable", None)
        assert "at most" in found.detail


def test_a_solver_that_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows say so, and nothing else is wrong."""
    monkeypatch.setattr(registry, "is_installed", lambda _name: False)
    assert measure(TINY, KNOWN["milp_scip"], OPTIONS).status == "not_installed"
    assert measure(TINY, KNOWN["naive"], OPTIONS).status == "feasible"


def test_a_whole_command_needs_a_job() -> None:
    """There is no job file for a problem of the grid."""
    assert measure(TINY, KNOWN["command"], OPTIONS).status == "not_applicable"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda answer: replace(answer, period_ns=answer.period_ns - 1), "period"),
        (lambda answer: replace(answer, bound_ns=answer.period_ns + 1), "below the bound"),
    ],
)
def test_an_answer_that_is_wrong_is_not_believed(change: object, told: str) -> None:
    """A period that the schedule does not have, and one below what is said to be proved."""
    honest = KNOWN["naive"]
    assert honest.solve is not None

    def lie(problem: object, options: object) -> object:
        return change(honest.solve(problem, options))  # type: ignore[operator, misc, arg-type]

    found = measure(TINY, replace(honest, solve=lie), OPTIONS)  # type: ignore[arg-type]
    assert found.status == "invalid"
    assert told in found.detail
    assert found.schedule_sha256 is None


def test_groups_and_names() -> None:
    """Names are taken once, in the order given; every solver of the registry is there; rules differ in one parameter."""
    assert contenders_named("portfolio, milp,portfolio") == ("portfolio", "milp_cbc", "milp_highs", "milp_scip")
    assert groups()["solvers"] == tuple(registry.SOLVERS)
    assert set(groups()["all"]) == set(KNOWN)
    assert len(groups()["rules"]) == 13
    with pytest.raises(OptionError, match="no solver 'gurobi'"):
        contenders_named("portfolio,gurobi")
    with pytest.raises(OptionError, match="no solver ''"):
        contenders_named("")


def test_names_of_contenders_are_their_own() -> None:
    """Each stands under its name, and says what it is."""
    for name, contender in KNOWN.items():
        assert isinstance(contender, Contender)
        assert contender.name == name
        assert contender.summary


def test_a_whole_command_is_measured_from_its_start_to_its_file() -> None:
    """On the worked example: the plan that the planner makes too, by `replan plan`, checked by `replan validate`."""
    job = load_job(ROOT / "examples" / "recycle-worked-example.yaml")
    instance = Instance(
        name="worked", problem=job.problem(frozenset({Worker(1, 2)})), job=job_to_document(job), failed_nodes="n06"
    )
    found = measure(instance, KNOWN["command"], OPTIONS)
    assert (found.status, found.period_ns, found.bound_ns) == ("optimal", 27_000, 27_000)
    assert found.solve_s > 0 < found.check_s
    assert found.schedule_sha256 is not None
    assert (found.solve_peak_bytes or 0) > 10 * 2**20
    found = measure(replace(instance, failed_nodes="x99"), KNOWN["command"], OPTIONS)
    assert (found.status, found.period_ns) == ("crashed", None)
    assert "ended with 3" in found.detail


def test_what_cannot_count_its_work_keeps_to_the_wall_clock() -> None:
    """The integer program always, CP-SAT's neighbourhoods on problems that they refuse to count on; the rest never does."""
    (small, large) = (next(i for i in SUITES["grid"].make() if i.name.startswith(name)) for name in ("g43-", "g98-"))
    for name, contender in KNOWN.items():
        clocks = [contender.clock(instance.problem, deterministic=True) for instance in (small, large)]
        if contender.repeats is Repeats.ALWAYS:
            assert clocks == ["none", "none"]
        elif name.startswith("milp_"):
            assert clocks == ["wall", "wall"]
        else:
            assert clocks == ["work", "wall" if name == "improve" else "work"]
        assert contender.clock(small.problem, deterministic=False) in ("none", "wall")
    assert KNOWN["improve"].most_counted == MAX_COUNTED_OPERATIONS
    counted = SolveOptions(deadline_s=0.5, deterministic=True)
    with pytest.raises(OptionError, match="at most 2000 where work is counted"):
        registry.solve("improve", large.problem, counted)
    found = measure(large, KNOWN["improve"], counted)
    assert (found.clock, found.repeats) == ("wall", "by chance")
    assert found.status in ("feasible", "optimal")
