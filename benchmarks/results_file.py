"""Files of results: a header line, then one row a line, added as they are measured.

A process that is killed leaves at most the last line half-written; reading drops it, and going on cuts it off. Everything else
that does not fit is refused by line.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from benchmarks.errors import BenchmarkFileError, BenchmarkMismatchError, BenchmarkVersionError
from benchmarks.row import FORMAT, SCHEMA_VERSION, Key, Row
from planner.formats.documents import read_text

MAX_BYTES = 256 * 2**20
"""Largest file that is read."""

_BEGINNING = f'{{"format":"{FORMAT}"'.encode()
"""What every file begins with."""

_Model = TypeVar("_Model", bound=BaseModel)


class Header(BaseModel):
    """First line of a file: what it is, what deadlines of its rows count where they can, and the suites that its rows are of."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    format: Literal["replan-bench-results"] = FORMAT
    schema_version: Literal[2] = SCHEMA_VERSION
    clock: Literal["work", "wall"]
    workers: Annotated[int, Field(ge=1, le=256)] = 1
    suites: Annotated[tuple[str, ...], Field(min_length=1, max_length=64)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What a file holds.

    Parameters
    ----------
    header
        Its first line.
    rows
        Every row, in the order in which they were measured.
    cut_short
        Whether a half-written line at the end was left out.
    whole_bytes
        Length of the file without it.
    """

    header: Header
    rows: tuple[Row, ...]
    cut_short: bool
    whole_bytes: int


def read_results(path: Path) -> Results:
    """Read a file of results.

    Raises
    ------
    BenchmarkFileError
        If the file cannot be read, is no file of results, or a line other than a half-written last one does not fit.
    BenchmarkVersionError
        If it, or one of its rows, is of another version.
    BenchmarkMismatchError
        If an instance is one problem in one row and another in another.
    DocumentLimitError
        If it is larger than :data:`MAX_BYTES`.
    """
    text = read_text(path, max_bytes=MAX_BYTES, error=BenchmarkFileError)
    *lines, rest = text.split("\n")
    if not lines:
        raise BenchmarkFileError(f"{path.name} has no whole line; expected a header and rows")
    header = _parsed(Header, lines[0], f"{path.name}, line 1")
    seen: dict[Key, int] = {}
    hashes: dict[tuple[str, str], str] = {}
    rows = []
    for number, line in enumerate(lines[1:], start=2):
        row = _parsed(Row, line, f"{path.name}, line {number}")
        if row.key in seen:
            raise BenchmarkFileError(
                f"{path.name}, line {number}: the same row as in line {seen[row.key]}; expected each once"
            )
        if row.suite not in header.suites:
            raise BenchmarkFileError(
                f"{path.name}, line {number}: suite {row.suite!r}; expected one of the header's, {', '.join(header.suites)}"
            )
        if hashes.setdefault((row.suite, row.instance), row.instance_sha256) != row.instance_sha256:
            raise BenchmarkMismatchError(
                f"{path.name}, line {number}: instance {row.instance} is another problem than in a line above"
            )
        seen[row.key] = number
        rows.append(row)
    size = sum(len(line.encode("utf-8")) + 1 for line in lines)
    return Results(header=header, rows=tuple(rows), cut_short=bool(rest), whole_bytes=size)


def _parsed(model: type[_Model], line: str, where: str) -> _Model:
    try:
        document: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BenchmarkFileError(f"{where}: no JSON object: {line[:60]!r}") from error
    if not isinstance(document, dict):
        raise BenchmarkFileError(f"{where}: no JSON object: {line[:60]!r}")
    version = document.get("schema_version")
    if model is Header and document.get("format") != FORMAT:
        raise BenchmarkFileError(f"{where}: format is {str(document.get('format'))[:60]!r}; expected {FORMAT!r}")
    if version != SCHEMA_VERSION:
        raise BenchmarkVersionError(
            f"{where}: schema_version is {str(version)[:20]}; this RePlan reads version {SCHEMA_VERSION}",
            hint="use the RePlan that wrote it, or measure again into another file",
        )
    try:
        return model.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "the line"
        raise BenchmarkFileError(f"{where}: {place}: {first['msg']}") from error


class ResultsWriter:
    """A file of results that rows are added to; nobody else may add to it meanwhile.

    Parameters
    ----------
    path
        Where; a file that is there is gone on with.
    suites
        Names of the suites whose rows it is for.
    clock
        What deadlines count.
    workers
        Threads of each search.

    Raises
    ------
    BenchmarkFileError
        If the file cannot be read or written, or somebody else adds to it.
    BenchmarkMismatchError
        If it is of other suites, its deadlines count something else, or its searches have more or fewer threads.
    BenchmarkVersionError, DocumentLimitError
        As :func:`read_results` does.
    """

    def __init__(self, path: Path, suites: Sequence[str], clock: Literal["work", "wall"], workers: int = 1) -> None:
        self.rows: tuple[Row, ...] = ()
        self.cut_short = False
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise BenchmarkFileError(f"cannot write {path}: {error.strerror}") from error
        try:
            self._open(path, Header(suites=tuple(suites), clock=clock, workers=workers))
        except BaseException:
            os.close(self._file)
            raise

    def _open(self, path: Path, header: Header) -> None:
        if not stat.S_ISREG(os.fstat(self._file).st_mode):
            raise BenchmarkFileError(f"{path} is no regular file; rows can only be added to one")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise BenchmarkFileError(
                f"{path} is being added to by another run", hint="wait for it, or write to another file"
            ) from error
        begun = os.pread(self._file, 2**16, 0)
        if b"\n" not in begun:
            # New, or killed before its header was whole; anything else is somebody's file.
            if not (begun.startswith(_BEGINNING) or _BEGINNING.startswith(begun)):
                raise BenchmarkFileError(f"{path} is no file of results", hint="write to another file")
            os.ftruncate(self._file, 0)
            self._write(header.model_dump_json())
            return
        found = read_results(path)
        if set(found.header.suites) != set(header.suites):
            raise BenchmarkMismatchError(
                f"{path} is of the suites {', '.join(found.header.suites)}; expected {', '.join(header.suites)}",
                hint="name the same suites, or write to another file",
            )
        if found.header.clock != header.clock:
            raise BenchmarkMismatchError(
                f"deadlines in {path} are by the {found.header.clock} clock; expected the {header.clock} clock",
                hint="run with --wall-clock as the file was, or without as it was not, or write to another file",
            )
        if found.header.workers != header.workers:
            raise BenchmarkMismatchError(
                f"searches in {path} have {found.header.workers} threads; expected {header.workers}",
                hint=f"run with --workers {found.header.workers}, or write to another file",
            )
        self.rows, self.cut_short = found.rows, found.cut_short
        if found.cut_short:
            os.ftruncate(self._file, found.whole_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        os.close(self._file)

    def add(self, row: Row) -> None:
        """Add a row; once this returns it outlives this process.

        Raises
        ------
        BenchmarkFileError
            If the disk is full or broken.
        """
        self._write(row.model_dump_json())

    def _write(self, line: str) -> None:
        data = line.encode("utf-8") + b"\n"
        try:
            while data:
                data = data[os.write(self._file, data) :]
        except OSError as error:
            raise BenchmarkFileError(f"a row cannot be written: {error.strerror}") from error
