"""Comparing two files of results."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.compare import Verdict, compare, mean_ratio
from benchmarks.errors import BenchmarkMismatchError
from tests.benchmarks.rows import make_row

NONE: dict[str, Any] = {"period_ns": None, "gap": None, "schedule_sha256": None, "status": "no_plan_by_deadline"}


@pytest.mark.parametrize(
    ("before", "after", "tolerance", "verdict"),
    [
        ({}, {}, 0.0, Verdict.SAME),
        ({}, {"period_ns": 1001}, 0.0, Verdict.WORSE),
        ({}, {"period_ns": 1001}, 0.001, Verdict.SAME),
        ({}, {"period_ns": 1002}, 0.001, Verdict.WORSE),
        ({"period_ns": 1002}, {}, 0.0, Verdict.BETTER),
        (NONE, {}, 0.0, Verdict.BETTER),
        ({}, NONE, 0.0, Verdict.WORSE),
        (NONE, NONE, 0.0, Verdict.SAME),
        # A plan that broke a constraint was none, however short its period.
        ({}, {"status": "invalid", "period_ns": 900}, 0.0, Verdict.WORSE),
        ({"status": "invalid", "period_ns": 900}, {}, 0.0, Verdict.BETTER),
        (NONE, NONE | {"status": "crashed"}, 0.0, Verdict.WORSE),
        (NONE | {"status": "crashed"}, NONE, 0.0, Verdict.SAME),
    ],
)
def test_verdicts(before: dict[str, Any], after: dict[str, Any], tolerance: float, verdict: Verdict) -> None:
    """By the period alone; a plan is better than none."""
    found = compare([make_row(**before)], [make_row(**after)], tolerance=tolerance)
    assert [pair.verdict for pair in found.pairs] == [verdict]
    assert len(found.of(verdict)) == 1


def test_rows_are_paired_by_what_they_are_the_result_of() -> None:
    """Another seed, deadline, gap, solver or instance is another row."""
    others = [{"seed": 1}, {"deadline_s": 1.0}, {"target_gap": 0.01}, {"solver": "naive"}, {"instance": "x"}]
    before = [make_row(), *(make_row(**change) for change in others)]
    found = compare(before, [make_row(), make_row(seed=2)])
    assert (len(found.pairs), found.only_before, found.only_after) == (1, 5, 1)


def test_rows_in_which_nothing_was_tried_say_nothing() -> None:
    """Unless something was in the other file."""
    untried = NONE | {"status": "not_installed"}
    rows = [make_row(), make_row(seed=1, **untried), make_row(seed=2, **untried)]
    found = compare(rows, [make_row(), make_row(seed=1, **untried), make_row(seed=2)])
    assert [(pair.after.seed, pair.verdict) for pair in found.pairs] == [(0, Verdict.SAME), (2, Verdict.BETTER)]


def test_ratios_and_plans() -> None:
    """Periods 1100 over 1000, 3 s over 1.5 s, and another order."""
    before = make_row(solve_s=1.5)
    (pair,) = compare([before], [make_row(period_ns=1100, solve_s=3.0, schedule_sha256="b" * 64)]).pairs
    assert (pair.period_ratio, pair.time_ratio, pair.same_plan) == (1.1, 2.0, False)
    (pair,) = compare([before], [make_row()]).pairs
    assert pair.same_plan
    assert mean_ratio([0.5, 2.0]) == 1.0


@pytest.mark.parametrize("changes", [{"status": "invalid", "period_ns": 1}, NONE | {"status": "overran"}])
def test_what_failed_has_no_ratios(changes: dict[str, Any]) -> None:
    """A plan that broke a constraint is not a thousandth as long, and a process that was killed not slow by how much."""
    for rows in ((make_row(), make_row(**changes)), (make_row(**changes), make_row())):
        (pair,) = compare(rows[:1], rows[1:]).pairs
        assert (pair.period_ratio, pair.time_ratio) == (None, None)
    (pair,) = compare([make_row()], [make_row(**(NONE | {"status": "not_installed", "solve_s": 0.0}))]).pairs
    assert pair.time_ratio is None
    (pair,) = compare([make_row(solve_s=1.0)], [make_row(**NONE, solve_s=5.0)]).pairs
    assert (pair.period_ratio, pair.time_ratio) == (None, 5.0)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"repeats": "always"}, True),
        ({"repeats": "by chance"}, False),
        ({"repeats": "unless cut"}, True),
        # 3 s of a deadline of 5 s: some part of it may have been cut short.
        ({"repeats": "unless cut", "solve_s": 3.0}, False),
        ({"repeats": "always", "schedule_sha256": None}, False),
        ({"repeats": "always", "commit": "0" * 40}, False),
    ],
)
def test_plans_that_should_come_again_and_do_not_are_told(columns: dict[str, Any], expected: bool) -> None:
    """Only of the same sources, and of what the clock has no part in."""
    before = make_row(repeats=columns["repeats"])
    found = compare([before], [make_row(**({"schedule_sha256": "b" * 64} | columns))])
    assert (len(found.unrepeated) == 1) is expected
    assert compare([before], [before]).unrepeated == ()


def test_work_is_not_compared_with_seconds() -> None:
    """But for what looks at no deadline."""
    with pytest.raises(
        BenchmarkMismatchError, match="by the work clock in one file and by the wall clock in the other"
    ):
        compare([make_row(clock="work")], [make_row(clock="wall")])
    with pytest.raises(BenchmarkMismatchError, match="1 threads in one file and 2 in the other"):
        compare([make_row()], [make_row(workers=2)])
    for clock in ("work", "wall", "none"):
        found = compare([make_row(clock=clock)], [make_row(clock=clock), make_row(seed=1)])
        assert (found.plans, found.same_plans) == (1, 1)


def test_files_that_cannot_be_compared_are_told() -> None:
    """Without a row in common, or of different problems of the same name."""
    with pytest.raises(BenchmarkMismatchError, match="no row in common"):
        compare([make_row()], [make_row(seed=1)])
    with pytest.raises(BenchmarkMismatchError, match="another problem"):
        compare([make_row()], [make_row(instance_sha256="1" * 64)])
