"""Faults of schedule files, each by row and cell."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.formats import pytorch_csv_checks
from planner.formats.pytorch_csv import CsvPlace, parse_pytorch_csv
from planner.formats.pytorch_csv_checks import CsvFault, find_csv_faults
from planner.problem import Problem
from tests.problems import unit_problem

SOUND = """\
0F0,0F1,0I0,0W0,0B1
1F0,1B0,1F1,1I1,1W1
"""
"""Two stages, two microbatches, one backward of each stage fused."""


def faults(text: str, problem: Problem | None = None) -> tuple[CsvFault, ...]:
    """Faults of a file for two slots and two microbatches."""
    return find_csv_faults(parse_pytorch_csv(text.encode()), problem or unit_problem(1, 2, 2))


def test_a_sound_file_has_none() -> None:
    """Whole and split backwards may stand side by side."""
    assert faults(SOUND) == ()


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("0F1", "0F2", {("unknown_operation", 1, 2), ("out_of_order", 1, 5), ("missing_operation", 1, None)}),
        ("0F1", "2F1", {("unknown_operation", 1, 2), ("out_of_order", 1, 5), ("missing_operation", 1, None)}),
        ("0F1", "0F0,0F1", {("duplicate_operation", 1, 2)}),
        ("1W1", "1W1,1W1", {("duplicate_operation", 2, 6)}),
        ("1W1", "1W1,0W1", {("wrong_slot", 2, 6)}),
        ("0F0,0F1,0I0", "0I0,0F0,0F1", {("out_of_order", 1, 1)}),
        ("0I0,0W0", "0W0,0I0", {("out_of_order", 1, 3)}),
        ("1F0,1B0", "1B0,1F0", {("out_of_order", 2, 1)}),
        ("0B1", "0B1,0I1", {("mixed_backward", 1, 6)}),
        ("0W0", "0B0", {("mixed_backward", 1, 4)}),
        ("1F0,1B0,1F1", "1F1,1F0,1B0", {("last_stage_order", 2, 2)}),
        ("0F0,0F1,", "0F1,0F0,", set()),
        (",0B1", "", {("missing_operation", 1, None)}),
        (",0W0", "", {("missing_operation", 1, None)}),
        ("0I0,", "", {("out_of_order", 1, 3), ("missing_operation", 1, None)}),
        (SOUND, SOUND + "2F0\n", {("wrong_grid", None, None)}),
        (SOUND, SOUND.splitlines()[0], {("wrong_grid", None, None)}),
    ],
)
def test_each_fault_is_found_in_its_place(
    old: str, new: str, expected: set[tuple[str, int | None, int | None]]
) -> None:
    """One change of a sound file at a time; that stages ahead of the last do not ascend is no fault."""
    assert old in SOUND
    found = faults(SOUND.replace(old, new))
    assert {
        (f.code, None if f.place is None else f.place.row, None if f.place is None else f.place.cell) for f in found
    } == expected
    assert all(str(f.place) in f.message for f in found if f.place is not None)


def test_a_stage_in_two_rows_names_where_it_belongs() -> None:
    """The second row is told, and which one the job expects."""
    (found,) = faults(SOUND.replace("1W1", "1W1,0W1"))
    assert found.message == (
        "row 2 (rank 1), cell 6: 0W1 is of stage 0, which slot 0 holds; expected it in row 1 (rank 0)"
    )


def test_stages_that_cannot_split() -> None:
    """I and W of such a stage are refused, and where there is no backward B is missing."""
    problem = unit_problem(1, 2, 2)
    whole = replace(problem, stages=(replace(problem.stages[0], splittable=False), problem.stages[1]))
    assert [(f.code, f.place) for f in faults(SOUND, whole)] == [
        ("unsplittable", CsvPlace(1, 3)),
        ("unsplittable", CsvPlace(1, 4)),
    ]
    (missing,) = faults(SOUND.replace(",0I0,0W0", ""), whole)
    assert str(missing.operation) == "0B0"


def test_faults_past_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of five missing forwards two are listed."""
    monkeypatch.setattr(pytorch_csv_checks, "MAX_FAULTS", 2)
    found = faults("0F0,0B0\n1F0,1B0\n", unit_problem(1, 2, 6))
    # Two stages lack F and backward of five microbatches: 20 in all.
    assert [f.code for f in found] == ["missing_operation", "missing_operation", "truncated"]
    assert found[-1].message.startswith("18 more")
