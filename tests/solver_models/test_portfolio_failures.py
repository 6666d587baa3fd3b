"""What the portfolio keeps and tells when CP-SAT's process does not end as it should."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.problem import Problem
from planner.schedule import parse_schedule
from planner.timing import time_schedule
from solver_models import portfolio
from solver_models.child import SEARCH_MODULES
from solver_models.clock import WALL_CLOCK
from solver_models.result import SolveOptions, SolveResult, Status
from tests.problems import unit_problem

SEARCH = """
import os, pathlib, signal, time
from planner.schedule import parse_schedule

BETTER = "0/0: 0F0.0 0I0.0 0W0.0 0F0.1 0I0.1 0W0.1 0F1.0 0I1.0 0W1.0\\n1/0: 0F1.1 0I1.1 0W1.1"

def search(given, report):
    report(parse_schedule(BETTER, 2, 1), 7_000)
    pathlib.Path(os.environ["REPLAN_TEST_NOTE"]).touch()
    if given.options.seed == 0:
        os.kill(os.getpid(), signal.SIGSEGV)
    if given.options.seed == 2:
        os.kill(os.getppid(), signal.SIGSTOP)
    time.sleep(600)
"""
ALL_ON_ONE = "0/0: 0F0.0 0I0.0 0W0.0 0F0.1 0I0.1 0W0.1 0F1.0 0I1.0 0W1.0 0F1.1 0I1.1 0W1.1"


@pytest.fixture
def problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Problem:
    """Two workers of one slot, two microbatches each: 6 us at best; CP-SAT's search misbehaves once it has found 9 us."""
    (tmp_path / "crashing.py").write_text(SEARCH)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("REPLAN_TEST_NOTE", str(tmp_path / "note"))
    monkeypatch.setitem(SEARCH_MODULES, "cp_sat", "crashing")
    return unit_problem(2, 1, 2)


def best_so_far(problem: Problem) -> SolveResult:
    """All four microbatches on one worker: 12 us."""
    schedule, period = time_schedule(problem, parse_schedule(ALL_ON_ONE, 2, 1))
    assert period == 12_000
    return SolveResult(
        status=Status.FEASIBLE, solver="annealing", schedule=schedule, period_ns=period, bound_ns=6_000, wall_s=0.0
    )


@pytest.mark.parametrize(
    ("seed", "told"),
    [
        (0, "cp_sat was ended by signal 11"),
        (1, "cp_sat overran its deadline and was killed"),
        (2, "cp_sat overran its deadline and was killed"),
    ],
    ids=["dies", "hangs", "stops its watcher too"],
)
def test_what_was_found_before_the_end_is_kept_and_the_end_told(
    problem: Problem, seed: int, told: str, tmp_path: Path
) -> None:
    """The incumbent of 9 us and the proved bound of 7 us stay, and the failure names the solver."""
    # On a busy machine the child may be killed before it has found anything: then it is given longer.
    for deadline_s in (2.0, 8.0, 32.0, 128.0):
        options = SolveOptions(deadline_s=deadline_s, seed=seed)
        found = portfolio._try_exact(problem, options, best_so_far(problem), WALL_CLOCK)
        if (tmp_path / "note").exists():
            break
    assert (found.period_ns, found.bound_ns, found.solver) == (9_000, 7_000, "cp_sat")
    assert found.status is Status.FEASIBLE
    assert found.failure == told


def test_a_missing_solver_is_told(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without OR-Tools the schedule stays as it was."""
    monkeypatch.setattr(portfolio.registry, "is_installed", lambda _: False)
    best = best_so_far(problem)
    found = portfolio._try_exact(problem, SolveOptions(deadline_s=3.0), best, WALL_CLOCK)
    assert found.schedule is best.schedule
    assert found.failure == "cp_sat could not be used: solver cp_sat needs the module ortools, which is not installed"
