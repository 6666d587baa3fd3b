"""Templates in one file, to precompute on one machine and use on another.

The file is ``REPLAN-TEMPLATES 1`` and a line break, then records, then the end. A record is the length of its header (four
bytes, big-endian), the header (JSON) and the content, whose length the header gives. The end is a length of 0, then JSON with
the number of records, then the sha256 of everything before it, 32 bytes. Nothing of a file is stored before all of it has
been read and checked.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, BinaryIO, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from api.errors import TemplateFileError

MAGIC = b"REPLAN-TEMPLATES "
FORMAT_VERSION = 1
MAX_HEADER_BYTES = 2**20
MAX_CONTENT_BYTES = 64 * 2**20
MAX_RECORDS = 10_000_000
_LENGTH = struct.Struct(">I")
_MAX_SIGNED = 2**63 - 1
_Form = TypeVar("_Form", bound=BaseModel)

_Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class TemplateHeader(BaseModel):
    """What stands before a template's content."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    job_sha256: _Sha256 = Field(description="Hash of the jobs that it is for.")
    failure_key: str = Field(min_length=1, description="Text of the failure key.")
    sha256: _Sha256 = Field(description="sha256 of the content.")
    size: int = Field(ge=1, le=MAX_CONTENT_BYTES, description="Length of the content in bytes.")
    period_ns: int = Field(ge=1, le=_MAX_SIGNED, description="Period in nanoseconds.")
    bound_ns: int = Field(ge=0, le=_MAX_SIGNED, description="Lower bound of the period in nanoseconds.")
    solver: str = Field(min_length=1, max_length=64, description="Name of the solver that found it.")
    deadline_s: float = Field(ge=0, allow_inf_nan=False, description="Seconds that the solver had.")


class _End(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    records: int = Field(ge=0, le=MAX_RECORDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportCounts:
    """How many templates a file held, and how many of them were new or better than what was stored."""

    read: int
    stored: int


class TemplateWriter:
    """Writes a file of templates to a binary stream; :meth:`finish` makes it whole."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._digest = hashlib.sha256()
        self.num_records = 0
        self._write(MAGIC + str(FORMAT_VERSION).encode() + b"\n")

    def add(self, header: TemplateHeader, content: bytes) -> None:
        """Write one template."""
        assert header.size == len(content), "the header gives the content's length"
        text = header.model_dump_json().encode()
        self._write(_LENGTH.pack(len(text)) + text)
        self._write(content)
        self.num_records += 1

    def finish(self) -> None:
        """Write the end."""
        text = _End(records=self.num_records).model_dump_json().encode()
        self._write(_LENGTH.pack(0) + _LENGTH.pack(len(text)) + text)
        self._stream.write(self._digest.digest())

    def _write(self, data: bytes) -> None:
        self._digest.update(data)
        self._stream.write(data)


def read_templates(stream: BinaryIO) -> Iterator[tuple[TemplateHeader, bytes]]:
    """Templates of a file, one after the other; whether the file is whole is known once all have been taken.

    Raises
    ------
    TemplateFileError
        If it is another kind of file, of a newer version, cut short, changed, or beyond the limits.
    """
    return _Reader(stream).records()


class _Reader:
    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._digest = hashlib.sha256()
        self._position = 0

    def records(self) -> Iterator[tuple[TemplateHeader, bytes]]:
        self._read_magic()
        count = 0
        while (length := self._read_length()) > 0:
            header = self._parse(TemplateHeader, length)
            content = self._take(header.size)
            if hashlib.sha256(content).hexdigest() != header.sha256:
                raise self._fault(f"the template of failure key {header.failure_key[:80]!r} does not match its sha256")
            count += 1
            if count > MAX_RECORDS:
                raise self._fault(f"more than {MAX_RECORDS} templates")
            yield header, content
        end = self._parse(_End, self._read_length())
        if end.records != count:
            raise self._fault(f"the end counts {end.records} templates, {count} stand before it")
        expected = self._digest.digest()
        if self._take(len(expected)) != expected:
            raise self._fault("the content does not match the checksum at the end")
        if self._stream.read(1):
            raise self._fault("something follows the end")

    def _read_magic(self) -> None:
        if self._stream.read(len(MAGIC)) != MAGIC:
            raise TemplateFileError("not a file of templates", hint="expected a file that `replan store export` wrote")
        self._digest.update(MAGIC)
        self._position = len(MAGIC)
        version = bytearray()
        while (byte := self._take(1)) != b"\n":
            version += byte
            if len(version) > 9 or not byte.isdigit():
                raise self._fault("the version of its format cannot be read")
        if bytes(version) != str(FORMAT_VERSION).encode():
            raise TemplateFileError(
                f"the file of templates has format version {version.decode()}; this RePlan reads {FORMAT_VERSION}",
                hint="use the version of RePlan that wrote it",
            )

    def _read_length(self) -> int:
        length: int = _LENGTH.unpack(self._take(_LENGTH.size))[0]
        if length > MAX_HEADER_BYTES:
            raise self._fault(f"a header of {length} bytes; expected {MAX_HEADER_BYTES} at most")
        return length

    def _parse(self, form: type[_Form], length: int) -> _Form:
        text = self._take(length)
        try:
            return form.model_validate_json(text)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise self._fault(f"a header that is not one: {where}: {first['msg']}") from error

    def _take(self, length: int) -> bytes:
        data = self._stream.read(length)
        if len(data) != length:
            raise self._fault("it ends in the middle")
        self._digest.update(data)
        self._position += length
        return data

    def _fault(self, what: str) -> TemplateFileError:
        return TemplateFileError(
            f"the file of templates is damaged before byte {self._position}: {what}",
            hint="nothing of it was stored; copy or export it again",
        )
