"""Templates: packed plans of canonical problems, shared by all jobs with the same hash."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, BinaryIO, NamedTuple

import sqlalchemy as sa

from api.errors import CorruptStoreError
from api.store.checksums import row_checksum, sha256_hex
from api.store.engine import Database
from api.store.schema import EPOCHS, TEMPLATES
from api.store.template_file import ImportCounts, TemplateHeader, TemplateWriter, read_templates
from planner.errors import NotFoundError


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateRecord:
    """A plan of the canonical problem of a failure key.

    Parameters
    ----------
    job_sha256
        Hash of the jobs that it is for.
    failure_key
        Text of the failure key.
    content
        The packed plan.
    sha256
        sha256 of ``content``, by which epochs name it.
    period_ns, bound_ns
        Its period, and the bound that no schedule can beat, nanoseconds.
    solver
        Name of the solver that found it.
    deadline_s
        Seconds that the solver had.
    created_at
        When it was stored.
    """

    job_sha256: str
    failure_key: str
    content: bytes
    sha256: str
    period_ns: int
    bound_ns: int
    solver: str
    deadline_s: float
    created_at: datetime


class TemplateFacts(NamedTuple):
    """What is known of a template without reading it: period and bound in nanoseconds, size in bytes."""

    period_ns: int
    bound_ns: int
    size: int


class TemplateRows(Database):
    """The best template of each failure key, and replaced ones for as long as an epoch names them."""

    def template(self, job_sha256: str, failure_key: str) -> TemplateRecord | None:
        """Best template of a failure key; ``None`` where there is none.

        Raises
        ------
        CorruptStoreError
            If the stored one is damaged: drop it and make it again.
        """
        query = self._best(job_sha256, failure_key)
        row = self._read(lambda connection: connection.execute(query).one_or_none())
        return None if row is None else self._template(row, job_sha256, failure_key)

    def template_version(self, job_sha256: str, failure_key: str, sha256: str) -> TemplateRecord:
        """The template that an epoch names, which may not be the best any more.

        Raises
        ------
        NotFoundError
            If it is not there.
        CorruptStoreError
            If it is damaged.
        """
        query = sa.select(TEMPLATES).where(*_of_key(job_sha256, failure_key), TEMPLATES.c.sha256 == sha256)
        row = self._read(lambda connection: connection.execute(query).one_or_none())
        if row is None:
            raise NotFoundError(f"there is no template {sha256[:64]!r} of failure key {failure_key[:80]!r}")
        return self._template(row, job_sha256, failure_key)

    def put_template(
        self,
        *,
        job_sha256: str,
        failure_key: str,
        content: bytes,
        period_ns: int,
        bound_ns: int,
        solver: str,
        deadline_s: float,
    ) -> tuple[TemplateRecord, bool]:
        """Store a template unless a better one is there.

        Better is a smaller period and, among equal ones, a larger bound. What was replaced goes once no epoch names it.

        Returns
        -------
        tuple[TemplateRecord, bool]
            The best template now, and whether it is this one and new.
        """
        values: dict[str, Any] = {
            "job_sha256": job_sha256,
            "failure_key": failure_key,
            "content": content,
            "sha256": sha256_hex(content),
            "period_ns": period_ns,
            "bound_ns": bound_ns,
            "solver": solver,
            "deadline_s": float(deadline_s),
        }

        def work(connection: sa.Connection) -> tuple[TemplateRecord, bool]:
            return self._put_template(connection, TemplateRecord(created_at=self._now(connection), **values))

        return self._write(work)

    def template_keys(self, job_sha256: str) -> dict[str, TemplateFacts]:
        """Failure keys that have a template, with the best one's period, bound and size; contents are not read."""
        t = TEMPLATES.c
        query = sa.select(t.failure_key, t.period_ns, t.bound_ns, t.size).where(t.job_sha256 == job_sha256)
        rows = self._read(lambda connection: connection.execute(query.order_by(*_WORST_FIRST)).all())
        return {key: TemplateFacts(period_ns, bound_ns, size) for key, period_ns, bound_ns, size in rows}

    def template_jobs(self) -> tuple[str, ...]:
        """Hashes of all jobs that have templates, in order."""
        query = sa.select(TEMPLATES.c.job_sha256).distinct().order_by(TEMPLATES.c.job_sha256)
        return tuple(self._read(lambda connection: connection.execute(query).scalars().all()))

    def drop_template(self, job_sha256: str, failure_key: str, sha256: str | None = None) -> bool:
        """Drop the templates of a failure key, or one of them, because they are damaged; whether one was there."""
        conditions = list(_of_key(job_sha256, failure_key))
        if sha256 is not None:
            conditions.append(TEMPLATES.c.sha256 == sha256)
        return self._write(lambda connection: connection.execute(TEMPLATES.delete().where(*conditions)).rowcount > 0)

    def export_templates(self, job_sha256s: Iterable[str], stream: BinaryIO) -> int:
        """Write the best template of each failure key of some jobs to a binary stream; how many there were.

        Raises
        ------
        CorruptStoreError
            If one is damaged.
        """
        writer = TemplateWriter(stream)
        for job_sha256 in sorted(set(job_sha256s)):
            for failure_key in self.template_keys(job_sha256):
                record = self.template(job_sha256, failure_key)
                if record is not None:
                    writer.add(_header(record), record.content)
        writer.finish()
        return writer.num_records

    def import_templates(self, stream: BinaryIO) -> ImportCounts:
        """Store the templates of a file, each unless a better one is there.

        Parameters
        ----------
        stream
            A binary stream that can be read twice: all of it is checked before anything is stored.

        Raises
        ------
        TemplateFileError
            If the file is of another kind, of a newer version, cut short or damaged; nothing of it is stored then.
        StoreError
            If the store cannot take them; what had been stored by then stays.
        """
        start = stream.tell()
        for _ in read_templates(stream):
            pass
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

    def _put_template(self, connection: sa.Connection, record: TemplateRecord) -> tuple[TemplateRecord, bool]:
        conditions = _of_key(record.job_sha256, record.failure_key)
        t = TEMPLATES.c
        self._exclude(connection, "template", record.job_sha256, record.failure_key)
        # Whoever appends an epoch with one of these waits until this transaction ends, or this one for it.
        rows = connection.execute(self._locked(sa.select(t.sha256, t.period_ns, t.bound_ns).where(*conditions))).all()
        is_better = all((record.period_ns, -record.bound_ns) < (row.period_ns, -row.bound_ns) for row in rows)
        if not is_better and not any(row.sha256 == record.sha256 for row in rows):
            return self._template_in(connection, record), False
        values = {name: getattr(record, name) for name in TemplateRecord.__slots__}
        insert = self._insert(TEMPLATES).values(
            key_sha256=sha256_hex(record.failure_key.encode()),
            size=len(record.content),
            checksum=_checksum(record),
            **values,
        )
        # The same content again is written once more, which mends a damaged row.
        changes = {name: insert.excluded[name] for name in (*values, "size", "checksum") if name not in _KEY}
        connection.execute(insert.on_conflict_do_update(index_elements=list(_KEY), set_=changes))
        named = sa.select(EPOCHS.c.epoch).where(EPOCHS.c.template_sha256 == t.sha256)
        if is_better:
            connection.execute(TEMPLATES.delete().where(*conditions, t.sha256 != record.sha256, ~named.exists()))
        return self._template_in(connection, record), is_better

    def _template_in(self, connection: sa.Connection, record: TemplateRecord) -> TemplateRecord:
        row = connection.execute(self._best(record.job_sha256, record.failure_key)).one()
        return self._template(row, record.job_sha256, record.failure_key)

    def _best(self, job_sha256: str, failure_key: str) -> sa.Select[Any]:
        t = TEMPLATES.c
        best_first = (t.period_ns, t.bound_ns.desc(), t.created_at, t.sha256)
        return sa.select(TEMPLATES).where(*_of_key(job_sha256, failure_key)).order_by(*best_first).limit(1)

    def _template(self, row: sa.Row[Any], job_sha256: str, failure_key: str) -> TemplateRecord:
        names = TemplateRecord.__slots__
        record = TemplateRecord(**{name: getattr(row, name) for name in names})
        intact = isinstance(record.content, bytes) and sha256_hex(record.content) == record.sha256
        if not intact or _checksum(record) != row.checksum or record.failure_key != failure_key:
            raise CorruptStoreError(
                f"{self.name}: the template of failure key {failure_key[:80]!r} of job hash {job_sha256} "
                "does not match its checksum",
                hint="it is made again when it is needed",
            )
        return record


_BATCH_BYTES = 4 * 2**20
_KEY = ("job_sha256", "key_sha256", "sha256")
_WORST_FIRST: Sequence[sa.ColumnElement[Any]] = (
    TEMPLATES.c.period_ns.desc(),
    TEMPLATES.c.bound_ns,
    TEMPLATES.c.created_at.desc(),
)


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


def _of_key(job_sha256: str, failure_key: str) -> tuple[sa.ColumnElement[bool], ...]:
    return TEMPLATES.c.job_sha256 == job_sha256, TEMPLATES.c.key_sha256 == sha256_hex(failure_key.encode())


def _checksum(record: TemplateRecord) -> str:
    """Checksum of all but the content, which ``sha256`` stands for, and the time."""
    return row_checksum(
        "template",
        record.job_sha256,
        record.failure_key,
        record.sha256,
        record.period_ns,
        record.bound_ns,
        record.solver,
        record.deadline_s,
    )
