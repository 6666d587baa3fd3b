"""Templates: packed plans of canonical problems, shared by all jobs with the same hash."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import sqlalchemy as sa

from api.errors import CorruptStoreError, RequestError
from api.store.checksums import row_checksum, sha256_hex
from api.store.engine import Database
from api.store.schema import EPOCHS, TEMPLATES
from planner.errors import NotFoundError

_LOG = logging.getLogger("replan.store")


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


class RowKey(NamedTuple):
    """Primary key of a template's row."""

    job_sha256: str
    key_sha256: str
    sha256: str


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
        """Failure keys that have a template, with the best one's period, bound and size; contents are not read.

        Rows whose other columns are damaged are left out.
        """
        query = sa.select(*_FACTS, TEMPLATES.c.size).where(TEMPLATES.c.job_sha256 == job_sha256)
        rows = self._read(lambda connection: connection.execute(query.order_by(*_WORST_FIRST)).all())
        return {
            row.failure_key: TemplateFacts(row.period_ns, row.bound_ns, row.size)
            for row in rows
            if _has_sound_facts(row)
        }

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

    def drop_damaged_templates(self, job_sha256: str) -> tuple[str, ...]:
        """Read all templates of a job and drop those that are damaged; why each was, empty where all are sound."""
        found = []
        for key in self._keys_of(job_sha256):
            try:
                self._template_of(key)
            except CorruptStoreError as error:
                found.append(error.message)
                self._write(partial(self._drop_damaged, key=key))
        return tuple(found)

    def _keys_of(self, job_sha256: str) -> list[RowKey]:
        """Primary keys of all templates of a job; of each failure key the best comes first."""
        t = TEMPLATES.c
        query = sa.select(t.job_sha256, t.key_sha256, t.sha256).where(t.job_sha256 == job_sha256)
        query = query.order_by(t.key_sha256, *_BEST_FIRST)
        return [RowKey(*row) for row in self._read(lambda connection: connection.execute(query).all())]

    def _template_of(self, key: RowKey) -> TemplateRecord:
        """Template of a row; raises :class:`CorruptStoreError` where it is damaged, also where its key cannot be asked for."""
        query = sa.select(TEMPLATES).where(*_is_row(key))
        try:
            row = self._read(lambda connection: connection.execute(query).one_or_none())
        except RequestError as error:
            raise self._damaged(key.job_sha256, "unknown") from error
        if row is None:
            raise self._damaged(key.job_sha256, "unknown")
        record = self._template(row, row.job_sha256, row.failure_key)
        if sha256_hex(record.failure_key.encode()) != key.key_sha256:
            raise self._damaged(key.job_sha256, record.failure_key)
        return record

    def _drop_damaged(self, connection: sa.Connection, key: RowKey) -> None:
        _LOG.error("%s: a damaged template of job hash %.64r is dropped", self.name, key.job_sha256)
        connection.execute(TEMPLATES.delete().where(*_is_row(key)))

    def _put_template(self, connection: sa.Connection, record: TemplateRecord) -> tuple[TemplateRecord, bool]:
        conditions = _of_key(record.job_sha256, record.failure_key)
        t = TEMPLATES.c
        self._exclude(connection, "template", record.job_sha256, record.failure_key)
        # Whoever appends an epoch with one of these waits until this transaction ends, or this one for it.
        found = connection.execute(self._locked(sa.select(*_FACTS, t.key_sha256).where(*conditions))).all()
        rows = [row for row in found if _has_sound_facts(row)]
        for row in found:
            if row not in rows:
                self._drop_damaged(connection, RowKey(row.job_sha256, row.key_sha256, row.sha256))
        is_better = all((record.period_ns, -record.bound_ns) < (row.period_ns, -row.bound_ns) for row in rows)
        if not is_better and not any(row.sha256 == record.sha256 for row in rows):
            try:
                return self._template_in(connection, record), False
            except CorruptStoreError:
                # What is damaged keeps nothing out.
                self._drop_damaged(connection, self._best_key(connection, record))
                return self._put_template(connection, record)
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

    def _best_key(self, connection: sa.Connection, record: TemplateRecord) -> RowKey:
        row = connection.execute(self._best(record.job_sha256, record.failure_key)).one()
        return RowKey(row.job_sha256, row.key_sha256, row.sha256)

    def _best(self, job_sha256: str, failure_key: str) -> sa.Select[Any]:
        return sa.select(TEMPLATES).where(*_of_key(job_sha256, failure_key)).order_by(*_BEST_FIRST).limit(1)

    def _template(self, row: sa.Row[Any], job_sha256: str, failure_key: str) -> TemplateRecord:
        names = TemplateRecord.__slots__
        record = TemplateRecord(**{name: getattr(row, name) for name in names})
        intact = isinstance(record.content, bytes) and sha256_hex(record.content) == record.sha256
        if not intact or _checksum(record) != row.checksum or record.failure_key != failure_key:
            raise self._damaged(job_sha256, failure_key)
        return record

    def _damaged(self, job_sha256: str, failure_key: str) -> CorruptStoreError:
        return CorruptStoreError(
            f"{self.name}: the template of failure key {str(failure_key)[:80]!r} of job hash {str(job_sha256)[:64]!r} "
            "does not match its checksum",
            hint="it is made again when it is needed, and by `replan precompute`",
        )


_KEY = ("job_sha256", "key_sha256", "sha256")
_FACTS: Sequence[sa.ColumnElement[Any]] = [
    column
    for column in TEMPLATES.c
    if column.name in (*TemplateRecord.__slots__, "checksum") and column.name != "content"
]
"""All of a template but its content, and the checksum over that."""
_BEST_FIRST = (TEMPLATES.c.period_ns, TEMPLATES.c.bound_ns.desc(), TEMPLATES.c.created_at, TEMPLATES.c.sha256)
_WORST_FIRST: Sequence[sa.ColumnElement[Any]] = (
    TEMPLATES.c.period_ns.desc(),
    TEMPLATES.c.bound_ns,
    TEMPLATES.c.created_at.desc(),
)


def _of_key(job_sha256: str, failure_key: str) -> tuple[sa.ColumnElement[bool], ...]:
    return TEMPLATES.c.job_sha256 == job_sha256, TEMPLATES.c.key_sha256 == sha256_hex(failure_key.encode())


def _is_row(key: RowKey) -> tuple[sa.ColumnElement[bool], ...]:
    return tuple(TEMPLATES.c[name] == value for name, value in zip(_KEY, key, strict=True))


def _has_sound_facts(row: Any) -> bool:
    return bool(_checksum(row) == row.checksum)


def _checksum(record: TemplateRecord | sa.Row[Any]) -> str:
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
