"""Templates from a store to a file, and from a file to a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

import sqlalchemy as sa

from api.errors import CorruptStoreError
from api.store.template_file import ImportCounts, TemplateHeader, TemplateWriter, read_templates
from api.store.templates import TemplateRecord, TemplateRows

_BATCH_BYTES = 4 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportCounts:
    """How many templates were written, and why each of those was left out that is damaged."""

    written: int
    damaged: tuple[str, ...]


class TemplateTransferRows(TemplateRows):
    """Templates that are carried from one store to another."""

    def export_templates(self, job_sha256s: Iterable[str], stream: BinaryIO) -> ExportCounts:
        """Write the best sound template of each failure key of some jobs to a binary stream; damaged ones are left out."""
        writer = TemplateWriter(stream)
        damaged = []
        for job_sha256 in sorted(set(job_sha256s)):
            written: set[str] = set()
            for key in self._keys_of(job_sha256):
                if key.key_sha256 in written:
                    continue
                try:
                    record = self._template_of(key)
                except CorruptStoreError as error:
                    damaged.append(error.message)
                    continue
                writer.add(_header(record), record.content)
                written.add(key.key_sha256)
        writer.finish()
        return ExportCounts(written=writer.num_records, damaged=tuple(damaged))

    def import_templates(self, stream: BinaryIO, check: Callable[[TemplateHeader, bytes], None]) -> ImportCounts:
        """Store the templates of a file, each unless a better one is there.

        Parameters
        ----------
        stream
            A binary stream that can be read twice: all of it is checked before anything is stored.
        check
            Called with each template before anything is stored; whatever it raises ends the import.

        Raises
        ------
        TemplateFileError
            If the file is of another kind, of a newer version, cut short or damaged; nothing of it is stored then.
        StoreError
            If the store cannot take them; what had been stored by then stays.
        """
        start = stream.tell()
        for header, content in read_templates(stream):
            check(header, content)
        stream.seek(start)
        num_read = num_stored = 0
        # A few at a time, so that events of jobs do not wait for the whole file.
        for batch in _batches(read_templates(stream)):
            num_read += len(batch)
            num_stored += self._write(partial(self._import, batch=batch))
        return ImportCounts(read=num_read, stored=num_stored)

    def _import(self, connection: sa.Connection, batch: Sequence[tuple[TemplateHeader, bytes]]) -> int:
        now = self._now(connection)
        # Everybody takes the rows in the same order, so that two imports do not wait for each other in a circle.
        ordered = sorted(batch, key=lambda item: (item[0].job_sha256, item[0].failure_key))
        stored = 0
        for header, content in ordered:
            facts = header.model_dump(exclude={"size"})
            _, is_new = self._put_template(connection, TemplateRecord(content=content, created_at=now, **facts))
            stored += is_new
        return stored


def _batches(
    records: Iterable[tuple[TemplateHeader, bytes]],
) -> Iterator[list[tuple[TemplateHeader, bytes]]]:
    """Records in lists of a few megabytes each."""
    batch: list[tuple[TemplateHeader, bytes]] = []
    size = 0
    for header, content in records:
        batch.append((header, content))
        size += len(content)
        if size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _header(record: TemplateRecord) -> TemplateHeader:
    return TemplateHeader(
        job_sha256=record.job_sha256,
        failure_key=record.failure_key,
        sha256=record.sha256,
        size=len(record.content),
        period_ns=record.period_ns,
        bound_ns=record.bound_ns,
        solver=record.solver,
        deadline_s=record.deadline_s,
    )
