"""PyTorch's schedule files: one CSV file a pipeline, one row a rank, one cell an operation.

The form is the ``compute_only`` one of ``torch.distributed.pipelining`` (``_PipelineScheduleRuntime._load_csv``; torchtitan's
``pipeline_parallel_schedule_csv`` loads it too). Row ``r`` lists what rank ``r`` runs, in its order; a cell is stage, kind and
microbatch, as in ``2F3``; an empty cell is idle. There is no header, sends and receives follow from the order, and nothing says
how long anything takes. PyTorch's own reader takes ``0F0xyz`` for ``0F0``, and a blank last line for one more rank; this one
takes neither.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from planner.errors import DocumentLimitError, InputError, ScheduleFormatError
from planner.operation import Kind

MAX_CSV_BYTES = 16 * 2**20
"""Largest file that is read; a pipeline of 16 stages and 1024 microbatches is some 300 kB."""

MAX_CSV_OPERATIONS = 1_000_000
"""Most operations that one file may hold."""

MAX_CSV_ROWS = 4096
"""Most rows that one file may hold: as many as a job may have stages."""

_NUMBER = r"(0|[1-9][0-9]{0,8})"
_CELL = re.compile(rf"{_NUMBER}([FIWB]){_NUMBER}")
_PREFIX = re.compile(r"[0-9]+[FIWB][0-9]*")
_COMMUNICATION = re.compile(r"[0-9]+(SEND_F|RECV_F|SEND_B|RECV_B|UNSHARD|RESHARD|REDUCE_GRAD)[0-9]*")
_OVERLAPPED = re.compile(r"\(.*\)OVERLAP_F_B")
_BYTE_ORDER_MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
_SHOWN_FAULTS = 8
_MOST_FAULTS = 1000
_SHOWN_CHARACTERS = 40


@dataclass(frozen=True, slots=True, order=True)
class CsvOperation:
    """An operation of one pipeline, as a cell names it: ``2F3``."""

    kind: Kind
    stage: int
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind.name}{self.microbatch}"


@dataclass(frozen=True, slots=True, order=True)
class CsvPlace:
    """Where something stands in a file: rows and cells as a reader counts them, from 1. ``cell`` is ``None`` for a whole row."""

    row: int
    cell: int | None = None

    def __str__(self) -> str:
        rank = f"row {self.row} (rank {self.row - 1})"
        return rank if self.cell is None else f"{rank}, cell {self.cell}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PytorchCsv:
    """The operations of a schedule file.

    Parameters
    ----------
    rows
        For each rank what it runs, in its order, with the place of each. Idle cells are left out.
    """

    rows: tuple[tuple[tuple[CsvPlace, CsvOperation], ...], ...]

    @property
    def num_operations(self) -> int:
        """Operations of all rows."""
        return sum(map(len, self.rows))


def read_pytorch_csv(path: str | os.PathLike[str]) -> PytorchCsv:
    """Read a schedule file.

    Raises
    ------
    InputError
        If the file cannot be read.
    DocumentLimitError, ScheduleFormatError
        As :func:`parse_pytorch_csv` does.
    """
    try:
        with Path(path).open("rb") as file:
            # A pipe has no size, so no more than one byte past the limit is ever taken.
            data = file.read(MAX_CSV_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read the schedule file {path}: {error.strerror or error}") from error
    return parse_pytorch_csv(data)


def parse_pytorch_csv(data: bytes) -> PytorchCsv:
    r"""Read the bytes of a schedule file. What the operations mean together is not looked at.

    Raises
    ------
    DocumentLimitError
        If the file is larger, or holds more rows or operations, than one may.
    ScheduleFormatError
        Naming row and cell of what cannot be read, and what to do about it.

    Examples
    --------
    >>> [str(operation) for _, operation in parse_pytorch_csv(b"0F0,0F1\n1F0,,1B0\n").rows[1]]
    ['1F0', '1B0']
    """
    if len(data) > MAX_CSV_BYTES:
        raise DocumentLimitError(f"a schedule file has more than {MAX_CSV_BYTES} bytes; expected at most as many")
    if data.lstrip()[:1] in (b"{", b"["):
        raise ScheduleFormatError(
            "the file is a JSON document; expected CSV", hint="a plan file has its job's costs: leave --job out"
        )
    reader = _Reader()
    rows: list[tuple[tuple[CsvPlace, CsvOperation], ...]] = []
    try:
        for number, cells in enumerate(csv.reader(io.StringIO(_text(data), newline=""), strict=True), start=1):
            if number > MAX_CSV_ROWS:
                raise DocumentLimitError(f"a schedule file has more than {MAX_CSV_ROWS} rows; expected one a rank")
            rows.append(tuple(reader.operations(number, cells)))
    except csv.Error as error:
        raise ScheduleFormatError(f"{CsvPlace(len(rows) + 1)} is no CSV: {error}") from error
    if not rows:
        raise ScheduleFormatError("the file is empty; expected one row for each rank")
    reader.require_no_faults()
    return PytorchCsv(rows=tuple(rows))


def _text(data: bytes) -> str:
    if data.startswith(_BYTE_ORDER_MARKS):
        raise ScheduleFormatError(
            f"{CsvPlace(1, 1)} begins with a byte order mark, which PyTorch takes for a part of the cell",
            hint="save the file as UTF-8 without a byte order mark",
        )
    try:
        return data.decode("ascii")
    except UnicodeDecodeError as error:
        row = data.count(b"\n", 0, error.start) + 1
        cell = data.count(b",", data.rfind(b"\n", 0, error.start) + 1, error.start) + 1
        raise ScheduleFormatError(
            f"{CsvPlace(row, cell)} holds the byte {data[error.start]:#04x}; expected ASCII, cells such as 2F3"
        ) from error


@dataclass(slots=True)
class _Reader:
    """Takes rows in one after the other; of their faults it keeps the first few, with what to do about them."""

    num_operations: int = 0
    num_faults: int = 0
    messages: list[str] = field(default_factory=list)
    hints: dict[str, None] = field(default_factory=dict)

    def operations(self, number: int, cells: list[str]) -> Iterator[tuple[CsvPlace, CsvOperation]]:
        """Operations of a row that can be read."""
        if not cells:
            self._add(
                f"{CsvPlace(number)} is blank; expected the operations of a rank",
                "remove blank lines, the last one too: PyTorch counts each as one more rank",
            )
            return
        is_idle = True
        for at, cell in enumerate(cells, start=1):
            word = cell.strip(" \t")
            if not word:
                continue
            is_idle = False
            match = _CELL.fullmatch(word)
            if match is None:
                self._add(*_fault(CsvPlace(number, at), word))
                continue
            self.num_operations += 1
            if self.num_operations > MAX_CSV_OPERATIONS:
                raise DocumentLimitError(
                    f"a schedule file has more than {MAX_CSV_OPERATIONS} operations by {CsvPlace(number, at)}"
                )
            yield CsvPlace(number, at), CsvOperation(Kind[match[2]], int(match[1]), int(match[3]))
        if is_idle:
            self._add(f"{CsvPlace(number)} has idle cells only; expected the operations of a rank")

    def require_no_faults(self) -> None:
        """Refuse the file if anything of it could not be read."""
        if self.num_faults:
            raise self._error(f"and {self.num_faults - len(self.messages)} more cells or rows")

    def _error(self, rest: str) -> ScheduleFormatError:
        """Error that tells the first faults and, where there are more, ``rest``."""
        lines = [*self.messages, rest] if self.num_faults > len(self.messages) else self.messages
        return ScheduleFormatError("\n".join(lines), hint="; ".join(self.hints) or None)

    def _add(self, message: str, hint: str = "") -> None:
        self.num_faults += 1
        if len(self.messages) < _SHOWN_FAULTS:
            self.messages.append(message)
            if hint:
                self.hints[hint] = None
        elif self.num_faults == _MOST_FAULTS:
            # What is no schedule file at all need not be read to its end.
            raise self._error(f"and {_MOST_FAULTS - _SHOWN_FAULTS} or more other cells or rows")


def _fault(place: CsvPlace, word: str) -> tuple[str, str]:
    """What is wrong with a cell, and what to do about it, empty where the message says all."""
    shown = repr(word) if len(word) <= _SHOWN_CHARACTERS else f"{word[:_SHOWN_CHARACTERS]!r}..."
    if _COMMUNICATION.fullmatch(word):
        return (
            f"{place}: {shown} is communication; expected computation alone",
            'write the file with format="compute_only": sends, receives and reductions follow from the order',
        )
    if _OVERLAPPED.fullmatch(word):
        return (
            f"{place}: {shown} is an overlapped pair; expected one operation a cell",
            "give the pair's operations a cell each, one after the other",
        )
    taken = _PREFIX.match(word)
    also = "" if taken is None or taken[0] == word else f"; PyTorch would take it for {taken[0][:_SHOWN_CHARACTERS]}"
    return (
        f"{place}: {shown} cannot be read; expected stage, kind and microbatch such as 2F3, kind one of F, I, W, B{also}",
        "",
    )
