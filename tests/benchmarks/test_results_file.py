"""Files of results: what is read, what is refused, and what a killed process leaves."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from benchmarks.errors import BenchmarkFileError, BenchmarkMismatchError, BenchmarkVersionError
from benchmarks.results_file import ResultsWriter, read_results
from tests.benchmarks.rows import make_row

ROW = make_row()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of two rows."""
    path = tmp_path / "results.jsonl"
    with ResultsWriter(path, ["small"], "work") as file:
        file.add(ROW)
        file.add(make_row(solver="naive", status="feasible", period_ns=None, gap=None, forced=("commit",)))
    return path


def test_rows_come_back_as_they_were(path: Path) -> None:
    """Column by column."""
    found = read_results(path)
    assert found.rows[0] == ROW
    assert found.rows[1].forced == ("commit",)
    assert found.header.suites == ("small",)
    assert not found.cut_short


@pytest.mark.parametrize("left", ['{"schema_version":1,"suite":"sma', "{", ROW.model_dump_json()])
def test_a_half_written_last_row_is_dropped_and_cut_off(path: Path, left: str) -> None:
    """Also one that lacks no more than its line break: nobody was told that it is there."""
    whole = path.read_bytes()
    path.write_bytes(whole + left.encode())
    assert read_results(path).cut_short
    assert len(read_results(path).rows) == 2
    with ResultsWriter(path, ["small"], "work") as file:
        assert file.cut_short
        assert path.read_bytes() == whole
        file.add(make_row(solver="reroute"))
    assert [row.solver for row in read_results(path).rows] == ["portfolio", "naive", "reroute"]


@pytest.mark.parametrize("left", [b"", b'{"format":"replan-be'])
def test_a_file_without_a_whole_header_begins_anew(tmp_path: Path, left: bytes) -> None:
    """What a process leaves that was killed before it measured anything."""
    path = tmp_path / "results.jsonl"
    path.write_bytes(left)
    with pytest.raises(BenchmarkFileError, match="no whole line"):
        read_results(path)
    with ResultsWriter(path, ["small"], "work") as file:
        assert file.rows == ()
    assert read_results(path).rows == ()


@pytest.mark.parametrize("text", ['{"important": 1}', "a note", '{"format":"replan-plan"'])
def test_a_file_of_something_else_is_left_as_it_is(tmp_path: Path, text: str) -> None:
    """Also one without a line break, which a run killed at its start could have left."""
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(BenchmarkFileError, match="no file of results"):
        ResultsWriter(path, ["small"], "work")
    assert path.read_text() == text


def edit(path: Path, number: int, **changes: Any) -> None:
    """Change a line's object; ``None`` as a value takes the key out."""
    lines = path.read_text().splitlines()
    document = json.loads(lines[number]) | changes
    taken = {key for key, value in changes.items() if value is None}
    lines[number] = json.dumps({key: value for key, value in document.items() if key not in taken})
    path.write_text("".join(f"{line}\n" for line in lines))


@pytest.mark.parametrize("number", [0, 2])
@pytest.mark.parametrize("version", [1, 0, "2", None])
def test_another_version_is_refused(path: Path, number: int, version: object) -> None:
    """In the header and in any row, naming the line; and nothing is written to the file."""
    edit(path, number, schema_version=version)
    before = path.read_bytes()
    for use in (lambda: read_results(path), lambda: ResultsWriter(path, ["small"], "work")):
        with pytest.raises(BenchmarkVersionError, match=f"line {number + 1}: schema_version"):
            use()
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("number", "changes", "told"),
    [
        (0, {"format": "replan-plan"}, "format is 'replan-plan'"),
        (0, {"suites": []}, "suites"),
        (0, {"more": 1}, "more"),
        (1, {"status": "splendid"}, "status"),
        (1, {"period_ns": -1}, "period_ns"),
        (1, {"period_ns": 1.5}, "period_ns"),
        (1, {"instance_sha256": "abc"}, "instance_sha256"),
        (1, {"solver": None}, "solver"),
        (1, {"more": 1}, "more"),
        (1, {"suite": "grid"}, "expected one of the header's, small"),
        (2, {"solver": "portfolio"}, "the same row as in line 2"),
        (1, {"period_ns": 1}, "gap 0.0 is not that of period 1 ns to bound 1000 ns"),
        (1, {"gap": None}, "gap None is not that of period 1000 ns"),
        (2, {"gap": 0.5}, "gap 0.5 is not that of period None"),
    ],
)
def test_a_line_that_does_not_fit_is_named(path: Path, number: int, changes: dict[str, Any], told: str) -> None:
    """With what is wrong with it."""
    edit(path, number, **changes)
    with pytest.raises(BenchmarkFileError, match=rf"line {number + 1}.*{told}"):
        read_results(path)


def test_an_instance_is_one_problem(path: Path) -> None:
    """Rows of two problems under one name have no common bound."""
    edit(path, 2, instance_sha256="1" * 64)
    with pytest.raises(BenchmarkMismatchError, match=r"line 3: .* another problem than in a line above"):
        read_results(path)


@pytest.mark.parametrize("line", ["", "[]", "nonsense", "1", "[" * 100_000, '{"schema_version": 1}'])
def test_a_broken_line_in_the_middle_is_refused(path: Path, line: str) -> None:
    """Only the last can be half-written."""
    lines = path.read_text().splitlines()
    path.write_text("".join(f"{line}\n" for line in (lines[0], line, *lines[1:])))
    with pytest.raises(BenchmarkFileError, match="line 2"):
        read_results(path)


def test_not_a_number_is_no_number(path: Path) -> None:
    """NaN and infinity are not JSON, though Python reads them."""
    text = path.read_text().replace('"solve_s":0.5', '"solve_s":NaN', 1)
    path.write_text(text)
    with pytest.raises(BenchmarkFileError, match="line 2"):
        read_results(path)


def test_other_suites_are_refused(path: Path) -> None:
    """Rows of two runs would stand in one file; the file stays as it was."""
    before = path.read_bytes()
    with pytest.raises(BenchmarkMismatchError, match="of the suites small; expected grid"):
        ResultsWriter(path, ["grid"], "work")
    assert path.read_bytes() == before


def test_deadlines_that_count_something_else_are_refused(path: Path) -> None:
    """Rows that reproduce would stand beside rows that do not."""
    before = path.read_bytes()
    with pytest.raises(BenchmarkMismatchError, match="by the work clock; expected the wall clock"):
        ResultsWriter(path, ["small"], "wall")
    with pytest.raises(BenchmarkMismatchError, match="have 1 threads; expected 2"):
        ResultsWriter(path, ["small"], "work", 2)
    assert path.read_bytes() == before


def test_two_runs_do_not_add_to_one_file(path: Path) -> None:
    """The second is told; afterwards it may."""
    with ResultsWriter(path, ["small"], "work"), pytest.raises(BenchmarkFileError, match="another run"):
        ResultsWriter(path, ["small"], "work")
    with ResultsWriter(path, ["small"], "work") as file:
        assert len(file.rows) == 2


def test_files_that_cannot_be_opened_are_told(tmp_path: Path) -> None:
    """Folders, files that are not there, and devices."""
    with pytest.raises(BenchmarkFileError, match="cannot be read"):
        read_results(tmp_path / "missing.jsonl")
    with pytest.raises(BenchmarkFileError, match="cannot write"):
        ResultsWriter(tmp_path, ["small"], "work")
    with pytest.raises(BenchmarkFileError, match="no regular file"):
        ResultsWriter(Path(os.devnull), ["small"], "work")
