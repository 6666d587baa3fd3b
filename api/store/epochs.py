"""Epochs: append-only for each job, each durable before it is told to anybody."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Literal

import sqlalchemy as sa

from api.errors import CorruptStoreError, EpochConflictError, IdempotencyConflictError, StaleBaseError
from api.store.checksums import row_checksum, sha256_hex
from api.store.engine import Database
from api.store.jobs import no_job, whole
from api.store.notices import notify
from api.store.schema import ACKNOWLEDGEMENTS, EPOCHS, EVENTS, JOB_REVISIONS, JOBS, TEMPLATES
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """An epoch, and whether an earlier request with the same idempotency key had appended it."""

    record: EpochRecord
    is_replay: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRecord:
    """What was reported and led to an epoch: ``event`` is its JSON, ``request_sha256`` hashes the request's body."""

    job_id: str
    epoch: int
    idempotency_key: str | None
    request_sha256: str | None
    event: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AcknowledgementRecord:
    """A worker that has an epoch, and the iteration from which it runs it."""

    worker: str
    iteration: int | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEpoch:
    """An epoch that is to be appended.

    Parameters
    ----------
    job_id
        A registered job.
    base_epoch
        Number of the epoch that this one was computed from; 0 for the first one of a registration.
    revision
        Revision of the job that it was computed with.
    cause, state, failure_key, template_sha256
        See :class:`EpochRecord`. The template must be stored under the revision's job hash and the failure key.
    body
        Makes the answer's JSON from the epoch's number and time. Called within the transaction, perhaps more than once; the
        number is ``base_epoch + 1`` except for a job that was deleted and registered again.
    """

    job_id: str
    base_epoch: int
    revision: int
    cause: Cause
    state: bytes
    failure_key: str | None
    template_sha256: str | None
    body: Callable[[int, datetime], bytes]

    def record(self, number: int, created_at: datetime) -> EpochRecord:
        """The epoch under its number, as it is stored."""
        return EpochRecord(
            job_id=self.job_id,
            epoch=number,
            revision=self.revision,
            cause=self.cause,
            state=self.state,
            failure_key=self.failure_key,
            template_sha256=self.template_sha256,
            body=self.body(number, created_at),
            created_at=created_at,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """The client's request that led to an epoch.

    Parameters
    ----------
    expected_epoch
        The client's compare-and-set; ``None`` where it does not care.
    idempotency_key, request_sha256
        Name of the request, up to 256 characters, and hash of its body; both or neither.
    event
        JSON of what was reported; ``None`` where nothing was.
    """

    expected_epoch: int | None = None
    idempotency_key: str | None = None
    request_sha256: str | None = None
    event: bytes | None = None


_NOTHING_REPORTED = Reported()


class EpochRows(Database):
    """Epochs, the events that led to them, and who has acknowledged them."""

    def append(self, new: NewEpoch, reported: Reported | None = None) -> Appended:
        """Append an epoch in one transaction, which is durable when this returns.

        Checked in this order: the idempotency key, the expected epoch, the base.

        Parameters
        ----------
        new
            The epoch.
        reported
            What led to it, where a client's request did.

        Raises
        ------
        NotFoundError
            If there is no such job.
        IdempotencyConflictError
            If the key was used with another body.
        EpochConflictError
            If the job's epoch is not the expected one; it holds the current one.
        StaleBaseError
            If the job has moved on since the base was read, or the template has gone: compute again.
        StoreError
            If it cannot be stored; nothing of it is then.
        """
        # Names this call: where its answer is lost, the next try finds its own row.
        attempt = uuid.uuid4().hex
        return self._write(partial(self._append, new=new, reported=reported or _NOTHING_REPORTED, attempt=attempt))

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
            sa.select(JOBS.c.current_epoch, _newest_of(JOBS.c.job_id).label("newest"), EPOCHS)
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

    def acknowledge(self, job_id: str, epoch: int, worker: str, iteration: int | None) -> None:
        """Store that a worker has an epoch; a later iteration of the same worker replaces the earlier one.

        Raises
        ------
        NotFoundError
            If there is no such job or epoch.
        """
        self.acknowledge_all(job_id, epoch, {worker: iteration})

    def acknowledge_all(self, job_id: str, epoch: int, iterations: Mapping[str, int | None]) -> None:
        """Store the acknowledgements of many workers in one transaction; see :meth:`acknowledge`."""

        def work(connection: sa.Connection) -> None:
            found = sa.select(EPOCHS.c.epoch).where(EPOCHS.c.job_id == job_id, EPOCHS.c.epoch == epoch)
            if connection.execute(found).scalar() is None:
                raise _no_epoch(job_id, epoch)
            now = self._now(connection)
            rows = [
                {"job_id": job_id, "epoch": epoch, "worker": worker, "iteration": iteration, "created_at": now}
                for worker, iteration in sorted(iterations.items())
            ]
            insert = self._insert(ACKNOWLEDGEMENTS)
            changes = {name: insert.excluded[name] for name in ("iteration", "created_at")}
            if rows:
                connection.execute(
                    insert.on_conflict_do_update(index_elements=["job_id", "epoch", "worker"], set_=changes), rows
                )

        self._write(work)

    def acknowledgements(self, job_id: str, epoch: int) -> tuple[AcknowledgementRecord, ...]:
        """Who has acknowledged an epoch, in order of the workers' names."""
        a = ACKNOWLEDGEMENTS.c
        query = sa.select(a.worker, a.iteration, a.created_at).where(a.job_id == job_id, a.epoch == epoch)
        rows = self._read(lambda connection: connection.execute(query).all())
        records = (AcknowledgementRecord(worker=w, iteration=i, created_at=at) for w, i, at in rows)
        return tuple(sorted(records, key=lambda record: record.worker))

    def _append(self, connection: sa.Connection, new: NewEpoch, reported: Reported, attempt: str) -> Appended:
        job = connection.execute(self._locked(sa.select(JOBS).where(JOBS.c.job_id == new.job_id))).one_or_none()
        if job is None:
            raise no_job(new.job_id)
        known = self._appended_before(connection, new, reported, attempt)
        if known is not None:
            return known
        _require_current(job, new, reported)
        if new.template_sha256 is not None:
            self._hold_template(connection, new)
        record = new.record(self._next_number(connection, job), self._now(connection))
        self._insert_epoch(connection, record, attempt)
        self._insert_event(connection, record, reported)
        number = record.epoch
        changes = JOBS.update().where(JOBS.c.job_id == new.job_id).values(current_epoch=number, last_epoch=number)
        connection.execute(changes)
        notify(connection, new.job_id, number)
        return Appended(record=record, is_replay=False)

    def _hold_template(self, connection: sa.Connection, new: NewEpoch) -> None:
        """Keep the template of an epoch from being dropped before the epoch is stored."""
        assert new.failure_key is not None, "an epoch with a template has a failure key"
        t = TEMPLATES.c
        job_sha256 = (
            sa.select(JOB_REVISIONS.c.job_sha256)
            .where(JOB_REVISIONS.c.job_id == new.job_id, JOB_REVISIONS.c.revision == new.revision)
            .scalar_subquery()
        )
        query = sa.select(t.sha256).where(
            t.job_sha256 == job_sha256,
            t.key_sha256 == sha256_hex(new.failure_key.encode()),
            t.sha256 == new.template_sha256,
        )
        if connection.execute(self._locked(query, shared=True)).scalar() is None:
            raise StaleBaseError(f"job {new.job_id!r} has no template {new.template_sha256} any more")

    def _appended_before(
        self, connection: sa.Connection, new: NewEpoch, reported: Reported, attempt: str
    ) -> Appended | None:
        """Epoch that an earlier try appended, whose answer was lost, or an earlier request with the same key."""
        e, job_id = EPOCHS.c, new.job_id
        mine = sa.select(e.epoch).where(e.job_id == job_id, e.epoch > new.base_epoch, e.attempt == attempt)
        number = connection.execute(mine).scalar()
        if number is not None:
            return Appended(record=self._epoch(connection, job_id, number), is_replay=False)
        used = None
        if reported.idempotency_key is not None:
            used = self._event(connection, job_id, reported.idempotency_key)
        if used is None:
            return None
        require_same_request(used, reported.request_sha256)
        return Appended(record=self._epoch(connection, job_id, used.epoch), is_replay=True)

    def _next_number(self, connection: sa.Connection, job: sa.Row[Any]) -> int:
        """Number of a job's next epoch: behind all that are there, else behind those of deleted jobs with its id."""
        newest = connection.execute(sa.select(_newest_of(job.job_id))).scalar()
        return (whole(job.last_epoch) if newest is None else int(newest)) + 1

    def _insert_event(self, connection: sa.Connection, record: EpochRecord, reported: Reported) -> None:
        if reported.event is None and reported.idempotency_key is None:
            return
        values = (record.job_id, record.epoch, reported.idempotency_key, reported.request_sha256, reported.event)
        row = dict(zip(EventRecord.__slots__, values, strict=True))
        connection.execute(EVENTS.insert().values(checksum=row_checksum("event", *values), **row))

    def _insert_epoch(self, connection: sa.Connection, record: EpochRecord, attempt: str) -> None:
        values = {name: getattr(record, name) for name in EpochRecord.__slots__}
        connection.execute(EPOCHS.insert().values(attempt=attempt, checksum=_checksum(record), **values))

    def _epoch(self, connection: sa.Connection, job_id: str, n: int) -> EpochRecord:
        query = sa.select(EPOCHS).where(EPOCHS.c.job_id == job_id, EPOCHS.c.epoch == n)
        row = connection.execute(query).one_or_none()
        if row is None:
            raise _no_epoch(job_id, n)
        return self._checked(row, job_id, n)

    def _checked(self, row: sa.Row[Any], job_id: str, n: int) -> EpochRecord:
        names = EpochRecord.__slots__
        record = EpochRecord(**{name: getattr(row, name) for name in names})
        if _checksum(record) != row.checksum:
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
        values = (row.job_id, row.epoch, row.idempotency_key, row.request_sha256, row.event)
        if row_checksum("event", *values) != row.checksum:
            raise CorruptStoreError(
                f"{self.name}: the event of epoch {row.epoch} of job {row.job_id!r} does not match its checksum",
                hint="restore the store from a copy",
            )
        return EventRecord(**dict(zip(EventRecord.__slots__, values, strict=True)))


def require_same_request(used: EventRecord, request_sha256: str | None) -> None:
    """Refuse a request whose idempotency key came with another one before.

    Raises
    ------
    IdempotencyConflictError
        If it did.
    """
    if used.request_sha256 != request_sha256:
        raise IdempotencyConflictError(
            f"the idempotency key {str(used.idempotency_key)[:80]!r} came with another request, which led to epoch "
            f"{used.epoch}",
            hint="use a new key for a new event",
        )


def require_expected(job_id: str, current_epoch: int, expected_epoch: int | None) -> None:
    """Refuse a request that expects another epoch than a job has.

    Raises
    ------
    EpochConflictError
        If it does; it holds the current one.
    """
    if expected_epoch is not None and expected_epoch != current_epoch:
        raise EpochConflictError(
            f"job {job_id!r} is at epoch {current_epoch}; the request expected {expected_epoch}",
            hint="read the current epoch and decide again",
            current=current_epoch,
        )


def _require_current(job: sa.Row[Any], new: NewEpoch, reported: Reported) -> None:
    current = whole(job.current_epoch)
    require_expected(job.job_id, current, reported.expected_epoch)
    if new.base_epoch != current or new.revision != job.revision:
        raise StaleBaseError(
            f"job {job.job_id!r} is at epoch {job.current_epoch} and revision {job.revision}; "
            f"the new epoch was computed from epoch {new.base_epoch} and revision {new.revision}"
        )


def _newest_of(job_id: Any) -> sa.ScalarSelect[Any]:
    """Largest number of an epoch of a job. In SQLite what is no number any more is larger than all numbers, and left out."""
    e = EPOCHS.alias().c
    return sa.select(sa.func.max(e.epoch)).where(e.job_id == job_id, e.epoch <= MAX_EPOCH).scalar_subquery()


def _no_epoch(job_id: str, n: int) -> NotFoundError:
    return NotFoundError(f"there is no epoch {n} of a job {job_id[:80]!r}")


def _checksum(record: EpochRecord) -> str:
    return row_checksum(
        "epoch",
        record.job_id,
        record.epoch,
        record.revision,
        record.cause,
        record.state,
        record.failure_key,
        record.template_sha256,
        record.body,
        record.created_at.isoformat(),
    )
