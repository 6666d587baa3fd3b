"""Appending to the epochs of a job: each durable before it is told to anybody, none computed from one that is past."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import sqlalchemy as sa

from api.errors import EpochConflictError, IdempotencyConflictError, StaleBaseError
from api.store.checksums import sha256_hex
from api.store.epochs import Cause, EpochRecord, EpochRows, EventRecord, newest_of
from api.store.jobs import no_job, whole
from api.store.notices import notify
from api.store.schema import EPOCHS, EVENTS, JOB_REVISIONS, JOBS, TEMPLATES


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """An epoch, and whether an earlier request with the same idempotency key had appended it."""

    record: EpochRecord
    is_replay: bool


class AppendingRows(EpochRows):
    """Appends epochs with the events that led to them."""

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
        return self._write(partial(self._append, new=new, reported=reported or Reported(), attempt=attempt))

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
        newest = connection.execute(sa.select(newest_of(job.job_id))).scalar()
        return (whole(job.last_epoch) if newest is None else int(newest)) + 1

    def _insert_event(self, connection: sa.Connection, record: EpochRecord, reported: Reported) -> None:
        if reported.event is None and reported.idempotency_key is None:
            return
        event = EventRecord(
            job_id=record.job_id,
            epoch=record.epoch,
            idempotency_key=reported.idempotency_key,
            request_sha256=reported.request_sha256,
            event=reported.event,
        )
        values = {name: getattr(event, name) for name in EventRecord.__slots__}
        connection.execute(EVENTS.insert().values(checksum=event.checksum(), **values))

    def _insert_epoch(self, connection: sa.Connection, record: EpochRecord, attempt: str) -> None:
        values = {name: getattr(record, name) for name in EpochRecord.__slots__}
        connection.execute(EPOCHS.insert().values(attempt=attempt, checksum=record.checksum(), **values))


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
