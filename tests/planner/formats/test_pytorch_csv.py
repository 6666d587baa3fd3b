"""Reading PyTorch's schedule files: what is taken, and every kind of cell, row and file that is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import DocumentLimitError, InputError, ScheduleFormatError
from planner.formats import pytorch_csv
from planner.formats.pytorch_csv import CsvOperation, CsvPlace, parse_pytorch_csv, read_pytorch_csv
from planner.operation import Kind


def test_cells_are_read_with_their_places() -> None:
    """Idle cells, blanks around cells, quotes and the line ends of every system are what PyTorch takes too."""
    found = parse_pytorch_csv(b'0F0,,0F1 ,\t0I0,0W0,"0B1"\r\n,1F12,1B12')
    assert found.rows[0] == (
        (CsvPlace(1, 1), CsvOperation(Kind.F, 0, 0)),
        (CsvPlace(1, 3), CsvOperation(Kind.F, 0, 1)),
        (CsvPlace(1, 4), CsvOperation(Kind.I, 0, 0)),
        (CsvPlace(1, 5), CsvOperation(Kind.W, 0, 0)),
        (CsvPlace(1, 6), CsvOperation(Kind.B, 0, 1)),
    )
    assert [(place.cell, str(operation)) for place, operation in found.rows[1]] == [(2, "1F12"), (3, "1B12")]
    assert found.num_operations == 7


@pytest.mark.parametrize(
    ("data", "place", "said"),
    [
        (b"0F0,0F0xyz", "row 1 (rank 0), cell 2", "PyTorch would take it for 0F0"),
        (b"0F-1", "row 1 (rank 0), cell 1", "PyTorch would take it for 0F"),
        (b"0F", "row 1 (rank 0), cell 1", "expected stage, kind and microbatch"),
        (b"0F0\n1F00", "row 2 (rank 1), cell 1", "'1F00' cannot be read"),
        (b"01F0", "row 1 (rank 0), cell 1", "'01F0' cannot be read"),
        (b"0f0", "row 1 (rank 0), cell 1", "'0f0' cannot be read"),
        (b"0 F0", "row 1 (rank 0), cell 1", "'0 F0' cannot be read"),
        (b"0F1234567890", "row 1 (rank 0), cell 1", "cannot be read"),
        (b"rank,0F0", "row 1 (rank 0), cell 1", "'rank' cannot be read"),
        (b"# 1F1B", "row 1 (rank 0), cell 1", "'# 1F1B' cannot be read"),
        (b"0F0;0B0", "row 1 (rank 0), cell 1", "'0F0;0B0' cannot be read"),
        (b"0F0,\x00", "row 1 (rank 0), cell 2", "'\\x00' cannot be read"),
        (b"0F0,0SEND_F0\n1RECV_F0", "row 1 (rank 0), cell 2", 'format="compute_only"'),
        (b"0UNSHARD,0F0", "row 1 (rank 0), cell 1", "communication"),
        (b"(0F1;0B0)OVERLAP_F_B", "row 1 (rank 0), cell 1", "overlapped pair"),
        (b"0F0,0B0\n\n", "row 2 (rank 1) is blank", "remove blank lines"),
        (b"0F0,0B0\n\n1F0\n", "row 2 (rank 1) is blank", "remove blank lines"),
        (b"0F0,0B0\n,,\n", "row 2 (rank 1)", "idle cells only"),
        (b"\xef\xbb\xbf0F0", "row 1 (rank 0), cell 1", "without a byte order mark"),
        (b"\xff\xfe0\x00F\x00", "row 1 (rank 0), cell 1", "byte order mark"),
        (b"0F0\n1F0,\xd9\xa1F0", "row 2 (rank 1), cell 2", "expected ASCII"),
        (b'0F0\n"1F0', "row 2 (rank 1)", "no CSV"),
        (b'"0F0"1', "row 1 (rank 0)", "no CSV"),
        (b"", "", "the file is empty"),
        (b'{"format": "replan-plan"}', "", "leave --job out"),
    ],
)
def test_what_is_not_the_form_is_refused_by_row_and_cell(data: bytes, place: str, said: str) -> None:
    """Each message says where, what stands there and what to do."""
    with pytest.raises(ScheduleFormatError) as caught:
        parse_pytorch_csv(data)
    assert place in str(caught.value)
    assert said in str(caught.value)


def test_faults_are_told_together_and_the_rest_counted() -> None:
    """Of a hundred bad cells the first eight are told, and each piece of advice once."""
    with pytest.raises(ScheduleFormatError) as caught:
        parse_pytorch_csv(b",".join([b"0SEND_F0"] * 60 + [b"x"] * 40))
    lines = caught.value.message.splitlines()
    assert len(lines) == 9
    assert lines[-1] == "and 92 more cells or rows"
    assert caught.value.hint is not None
    assert caught.value.hint.count("compute_only") == 1


def test_what_is_no_schedule_file_is_not_read_to_its_end() -> None:
    """After a thousand faults the rest, here a byte that would be told first otherwise, is not looked at."""
    with pytest.raises(ScheduleFormatError, match="and 992 or more other cells or rows"):
        parse_pytorch_csv(b"x,y,z\n" * 400 + b'"')


def test_limits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Bytes, rows and operations past their limits are refused as such; what just fits is taken."""
    monkeypatch.setattr(pytorch_csv, "MAX_CSV_BYTES", 12)
    monkeypatch.setattr(pytorch_csv, "MAX_CSV_ROWS", 3)
    monkeypatch.setattr(pytorch_csv, "MAX_CSV_OPERATIONS", 2)
    path = tmp_path / "schedule.csv"
    path.write_bytes(b"0F0,0B0,,,,,")
    assert read_pytorch_csv(path).num_operations == 2
    for data in (b"0F0,0B0,,,,,,", b"0F0,0F1,0F2", b"\n\n\n\n"):
        path.write_bytes(data)
        with pytest.raises(DocumentLimitError):
            read_pytorch_csv(path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """A file that is not there and a folder are told as such."""
    for path in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(InputError, match="cannot read the schedule file"):
            read_pytorch_csv(path)
