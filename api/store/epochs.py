"""Epochs of jobs and the events that led to them, as they are read: each row is compared with its checksum."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import sqlalchemy as sa

from api.errors import CorruptStoreError
from api.store.checksums import row_checksum
from api.store.engine import Database
from api.store.jobs import no_job
from api.store.schema import EPOCHS, EVENTS, JOBS
from planner.errors import NotFoundError

MAX_EPOCH = 2**31 - 1
Cause = Literal["registered", "event", "improved", "revised", "recovered"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRecord:
    """One epoch of a job.

    Parameters
    ----------
    job_id, epoch
        The job, and the epoch's number in it, from 1 and one more each time.
    revision
        Revision of the job that it was made for.
    cause
        What led to it.
    state
        Canonical JSON of the failure state.
    failure_key
        Text of the failure key of its plan; ``None`` where there is no plan.
    template_sha256
        sha256 of the template's content; ``None`` where there is no plan.
    body
        JSON that clients are answered.
    created_at
        When it was appended.
    """

    job_id: str
    epoch: int
    revision: int
    cause: Cause
    state: bytes
    failure_key: str | None
    template_sha256: str | None
    body: bytes
    created_at: datetime

    def checksum(self) -> str:
        """What the row is stored with."""
        return row_checksum(
            "epoch",
            self.job_id,
            self.epoch,
            self.revision,
            self.cause,
            self.state,
            self.failure_key,
            self.template_sha256,
            self.body,
            self.created_at.isoformat(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRecord:
    """What was reported and led to an epoch: ``event`` is its JSON, ``request_sha256`` hashes the request's body."""

    job_id: str
    epoch: int
    idempotency_key: str | None
    request_sha256: str | None
    event: bytes | None

    def checksum(self) -> str:
        """What the row is stored with."""
        return row_checksum("event", self.job_id, self.epoch, self.idempotency_key, self.request_sha256, self.event)


class EpochRows(Database):
    """Epochs, and the events that led to them."""

    def current_epoch(self, job_id: str) -> EpochRecord | None:
        """Newest epoch of a job; ``None`` for a job that has none yet.

        Raises
        ------
        NotFoundError
            If there is no such job.
        CorruptStoreError
            If the stored epoch is damaged.
        """
        query = (
            sa.select(JOBS.c.current_epoch, newest_of(JOBS.c.job_id).label("newest"), EPOCHS)
            .outerjoin(EPOCHS, (EPOCHS.c.job_id == JOBS.c.job_id) & (EPOCHS.c.epoch == JOBS.c.current_epoch))
            .where(JOBS.c.job_id == job_id)
        )
        row = self._read(lambda connection: connection.execute(query).one_or_none())
        if row is None:
            raise no_job(job_id)
        if row.current_epoch != (row.newest or 0):
            raise CorruptStoreError(
                f"{self.name}: the number of the current epoch of job {job_id!r} is damaged",
                hint="restore the store from a copy",
            )
        return None if row.newest is None else self._checked(row, job_id, row.current_epoch)

    def epoch(self, job_id: str, n: int) -> EpochRecord:
        """Epoch ``n`` of a job.

        Raises
        ------
        NotFoundError
            If there is no such job or epoch.
        CorruptStoreError
            If the stored epoch is damaged.
        """
        return self._read(lambda connection: self._epoch(connection, job_id, n))

    def epochs_after(self, job_id: str, n: int, limit: int = 100) -> tuple[EpochRecord, ...]:
        """At most ``limit`` epochs of a job behind epoch ``n``, in order; raises as :meth:`epoch` does for the job."""
        query = sa.select(EPOCHS).where(EPOCHS.c.job_id == job_id, EPOCHS.c.epoch > n).order_by(EPOCHS.c.epoch)

        def work(connection: sa.Connection) -> tuple[EpochRecord, ...]:
            rows = connection.execute(query.limit(limit)).all()
            if (
                not rows
                and connection.execute(sa.select(JOBS.c.current_epoch).where(JOBS.c.job_id == job_id)).scalar() is None
            ):
                raise no_job(job_id)
            return tuple(self._checked(row, job_id, row.epoch) for row in rows)

        return self._read(work)

    def find_event(self, job_id: str, idempotency_key: str) -> EventRecord | None:
        """Event that came with an idempotency key; ``None`` where the key was not used.

        Raises
        ------
        CorruptStoreError
            If the stored event is damaged.
        """
        return self._read(lambda connection: self._event(connection, job_id, idempotency_key))

    def _epoch(self, connection: sa.Connection, job_id: str, n: int) -> EpochRecord:
        query = sa.select(EPOCHS).where(EPOCHS.c.job_id == job_id, EPOCHS.c.epoch == n)
        row = connection.execute(query).one_or_none()
        if row is None:
            raise no_epoch(job_id, n)
        return self._checked(row, job_id, n)

    def _checked(self, row: sa.Row[Any], job_id: str, n: int) -> EpochRecord:
        record = EpochRecord(**{name: getattr(row, name) for name in EpochRecord.__slots__})
        if record.checksum() != row.checksum:
            raise CorruptStoreError(
                f"{self.name}: epoch {n} of job {job_id!r} does not match its checksum",
                hint="restore the store from a copy",
            )
        return record

    def _event(self, connection: sa.Connection, job_id: str, idempotency_key: str) -> EventRecord | None:
        e = EVENTS.c
        query = sa.select(EVENTS).where(e.job_id == job_id, e.idempotency_key == idempotency_key)
        return self._checked_event(connection.execute(query).one_or_none())

    def _event_at(self, connection: sa.Connection, job_id: str, n: int) -> EventRecord | None:
        query = sa.select(EVENTS).where(EVENTS.c.job_id == job_id, EVENTS.c.epoch == n)
        return self._checked_event(connection.execute(query).one_or_none())

    def _checked_event(self, row: sa.Row[Any] | None) -> EventRecord | None:
        if row is None:
            return None
        record = EventRecord(**{name: getattr(row, name) for name in EventRecord.__slots__})
        if record.checksum() != row.checksum:
            raise CorruptStoreError(
                f"{self.name}: the event of epoch {row.epoch} of job {row.job_id!r} does not match its checksum",
                hint="restore the store from a copy",
            )
        return record


def newest_of(job_id: Any) -> sa.ScalarSelect[Any]:
    """Largest number of an epoch of a job. In SQLite what is no number any more is larger than all numbers, and left out."""
    e = EPOCHS.alias().c
    return sa.select(sa.func.max(e.epoch)).where(e.job_id == job_id, e.epoch <= MAX_EPOCH).scalar_subquery()


def no_epoch(job_id: str, n: int) -> NotFoundError:
    """Error of an epoch that is not there."""
    return NotFoundError(f"there is no epoch {n} of a job {job_id[:80]!r}")
