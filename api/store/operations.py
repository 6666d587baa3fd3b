"""Operations: long work that one replica does at a time, and another one goes on with when that one dies."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

import sqlalchemy as sa

from api.store.engine import Database
from api.store.jobs import Mode
from api.store.schema import JOBS, OPERATIONS
from planner.errors import NotFoundError

OperationState = Literal["queued", "running", "done", "failed", "cancelled"]
FinalState = Literal["done", "failed", "cancelled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationRecord:
    """One operation.

    Parameters
    ----------
    operation_id
        Its id, 32 hexadecimal digits.
    job_id
        Job that it was asked for; ``None`` where it was started for a job file.
    job_sha256
        Hash of the job.
    kind
        "precompute".
    mode, tolerance
        Which failure keys.
    options
        Whatever else its maker needs to do it, JSON.
    state
        "queued" until a replica claims it.
    total, done, failed, skipped
        How many keys there are (``None`` until it is known), and how many of them are solved, cannot be solved, and were
        there already.
    cancel_requested
        Whether it is to stop.
    owner, lease_until
        Who does it, and until when it is known to be alive.
    error
        What went wrong, for a failed one.
    created_at, updated_at
        When it was asked for, and when it was last changed.
    """

    operation_id: str
    job_id: str | None
    job_sha256: str
    kind: str
    mode: Mode
    tolerance: int
    options: bytes
    state: OperationState
    total: int | None
    done: int
    failed: int
    skipped: int
    cancel_requested: bool
    owner: str | None
    lease_until: datetime | None
    error: str | None
    created_at: datetime
    updated_at: datetime


class OperationRows(Database):
    """Operations, in the order they were asked for."""

    def create_operation(
        self,
        *,
        job_id: str | None,
        job_sha256: str,
        mode: Mode,
        tolerance: int,
        options: bytes,
        kind: str = "precompute",
    ) -> OperationRecord:
        """Queue an operation.

        Raises
        ------
        StoreError
            If it cannot be stored, or there is no such job.
        """
        row = {"job_id": job_id, "job_sha256": job_sha256, "mode": mode, "tolerance": tolerance, "kind": kind}
        operation_id = uuid.uuid4().hex
        return self._write(lambda connection: self._create(connection, operation_id, options=options, **row))

    def begin_operation(
        self, *, job_id: str, job_sha256: str, mode: Mode, tolerance: int, options: bytes
    ) -> OperationRecord | None:
        """Queue an operation of a job unless one for the same keys is queued, runs or is done.

        Of several servers that begin the same at once, one does. One that failed, or was told to stop, does not count.

        Returns
        -------
        OperationRecord | None
            ``None`` where there is one already, or the job has gone.
        """
        operation_id = uuid.uuid4().hex
        o = OPERATIONS.c
        row = {"job_id": job_id, "job_sha256": job_sha256, "mode": mode, "tolerance": tolerance, "kind": "precompute"}
        stands = (o.state == "done") | (o.state.in_(["queued", "running"]) & ~o.cancel_requested)
        query = sa.select(o.operation_id).where(stands, *(o[name] == value for name, value in row.items())).limit(1)

        def work(connection: sa.Connection) -> OperationRecord | None:
            job = self._locked(sa.select(JOBS.c.job_id).where(JOBS.c.job_id == job_id))
            if connection.execute(job).scalar() is None:
                return None
            found = connection.execute(query).scalar()
            # Its own row is there where the connection was lost after an earlier try had been stored.
            if found is not None and found != operation_id:
                return None
            return self._create(connection, operation_id, options=options, **row)

        return self._write(work)

    def operation(self, operation_id: str) -> OperationRecord:
        """An operation.

        Raises
        ------
        NotFoundError
            If there is none with this id.
        """
        return self._read(lambda connection: self._operation(connection, operation_id))

    def list_operations(
        self, job_id: str | None = None, limit: int = 100, *, after: str | None = None
    ) -> tuple[OperationRecord, ...]:
        """At most ``limit`` operations of a job, or of all, newest first, those behind the operation ``after`` only.

        Raises
        ------
        NotFoundError
            If there is no operation ``after``.
        """
        o = OPERATIONS.c
        query = sa.select(OPERATIONS).order_by(o.created_at.desc(), o.operation_id).limit(limit)
        if job_id is not None:
            query = query.where(o.job_id == job_id)

        def work(connection: sa.Connection) -> tuple[OperationRecord, ...]:
            behind = query
            if after is not None:
                last = self._operation(connection, after)
                same = (o.created_at == last.created_at) & (o.operation_id > last.operation_id)
                behind = query.where((o.created_at < last.created_at) | same)
            # What is no text any more, on a damaged SQLite disk, cannot be named.
            rows = connection.execute(behind).all()
            return tuple(_record(row) for row in rows if isinstance(row.operation_id, str))

        return self._read(work)

    def claim_operation(
        self,
        owner: str,
        lease_s: float,
        *,
        operation_id: str | None = None,
        besides: Sequence[OperationRecord] = (),
    ) -> OperationRecord | None:
        """Take over the oldest operation that is queued, or whose owner has let its lease run out.

        Parameters
        ----------
        owner
            Name of whoever will do it, unique among all processes.
        lease_s
            Seconds for which no other may claim it, above 0; :meth:`report_progress` renews it.
        operation_id
            Claim this operation only. Without it, those that were started for a job file, which only their maker can do,
            are left alone.
        besides
            What the owner does now: of the same jobs, by id or by hash, nothing is claimed.

        Returns
        -------
        OperationRecord | None
            The operation, now running; ``None`` where there is nothing to do. One whose cancelling was asked for is to be
            finished as cancelled.
        """

        def work(connection: sa.Connection) -> OperationRecord | None:
            o, now = OPERATIONS.c, self._now(connection)
            expired = (o.state == "running") & (o.lease_until < now)
            which = o.job_id.is_not(None) if operation_id is None else o.operation_id == operation_id
            query = sa.select(o.operation_id).where(which, (o.state == "queued") | expired)
            query = query.where(
                o.job_id.is_(None) | o.job_id.not_in([other.job_id for other in besides if other.job_id is not None]),
                o.job_sha256.not_in([other.job_sha256 for other in besides]),
            )
            query = query.order_by(o.created_at, o.operation_id).limit(1)
            found: str | None = connection.execute(self._locked(query, skip_locked=True)).scalar()
            if found is None:
                return None
            lease_until = now + timedelta(seconds=lease_s)
            self._update(connection, found, now, state="running", owner=owner, lease_until=lease_until)
            return self._operation(connection, found)

        return self._write(work)

    def report_progress(
        self,
        operation_id: str,
        owner: str,
        *,
        lease_s: float,
        total: int | None = None,
        done: int | None = None,
        failed: int | None = None,
        skipped: int | None = None,
    ) -> bool:
        """Renew the lease and store how far an operation is; counts that are ``None`` stay as they are.

        Returns
        -------
        bool
            Whether the owner must stop: cancelling was asked for, another owner has taken over, or it was deleted.
        """
        counts = {"total": total, "done": done, "failed": failed, "skipped": skipped}
        changes = {name: count for name, count in counts.items() if count is not None}

        def work(connection: sa.Connection) -> bool:
            row = self._owned(connection, operation_id, owner)
            if row is None:
                return True
            now = self._now(connection)
            self._update(connection, operation_id, now, lease_until=now + timedelta(seconds=lease_s), **changes)
            return row.cancel_requested

        return self._write(work)

    def finish_operation(self, operation_id: str, owner: str, state: FinalState, error: str | None = None) -> bool:
        """End an operation; whether ``owner`` still had it, else nothing is changed."""

        def work(connection: sa.Connection) -> bool:
            if self._owned(connection, operation_id, owner) is None:
                return False
            now = self._now(connection)
            self._update(connection, operation_id, now, state=state, error=error, lease_until=None)
            return True

        return self._write(work)

    def release_operation(self, operation_id: str, owner: str) -> bool:
        """Put an operation back into the queue, for another process to go on with; whether ``owner`` still had it."""

        def work(connection: sa.Connection) -> bool:
            if self._owned(connection, operation_id, owner) is None:
                return False
            now = self._now(connection)
            self._update(connection, operation_id, now, state="queued", owner=None, lease_until=None)
            return True

        return self._write(work)

    def release_operations(self, owner: str) -> None:
        """Put all operations that ``owner`` has back into the queue."""

        def work(connection: sa.Connection) -> None:
            o = OPERATIONS.c
            update = OPERATIONS.update().where(o.owner == owner, o.state == "running")
            now = self._now(connection)
            connection.execute(update.values(state="queued", owner=None, lease_until=None, updated_at=now))

        self._write(work)

    def cancel_operation(self, operation_id: str) -> OperationRecord:
        """Cancel an operation: at once where it is queued, else its owner is told with its next progress.

        Raises
        ------
        NotFoundError
            If there is none with this id.
        """

        def work(connection: sa.Connection) -> OperationRecord:
            o = OPERATIONS.c
            query = self._locked(sa.select(OPERATIONS).where(o.operation_id == operation_id))
            row = connection.execute(query).one_or_none()
            if row is not None and row.state in ("queued", "running"):
                ended = {"state": "cancelled"} if row.state == "queued" else {}
                self._update(connection, operation_id, self._now(connection), cancel_requested=True, **ended)
            return self._operation(connection, operation_id)

        return self._write(work)

    def _create(self, connection: sa.Connection, operation_id: str, **values: Any) -> OperationRecord:
        now = self._now(connection)
        counts = dict.fromkeys(("done", "failed", "skipped"), 0)
        fixed = {"state": "queued", "cancel_requested": False, "created_at": now, "updated_at": now}
        self._insert_missing(connection, OPERATIONS, operation_id=operation_id, **fixed, **counts, **values)
        return self._operation(connection, operation_id)

    def _owned(self, connection: sa.Connection, operation_id: str, owner: str) -> OperationRecord | None:
        o = OPERATIONS.c
        query = sa.select(OPERATIONS).where(o.operation_id == operation_id, o.owner == owner, o.state == "running")
        row = connection.execute(self._locked(query)).one_or_none()
        return None if row is None else _record(row)

    def _update(self, connection: sa.Connection, operation_id: str, now: datetime, **changes: Any) -> None:
        update = OPERATIONS.update().where(OPERATIONS.c.operation_id == operation_id)
        connection.execute(update.values(updated_at=now, **changes))

    def _operation(self, connection: sa.Connection, operation_id: str) -> OperationRecord:
        row = connection.execute(sa.select(OPERATIONS).where(OPERATIONS.c.operation_id == operation_id)).one_or_none()
        if row is None:
            raise NotFoundError(f"there is no operation {operation_id[:80]!r}")
        return _record(row)


def _record(row: sa.Row[Any]) -> OperationRecord:
    return OperationRecord(**{name: getattr(row, name) for name in OperationRecord.__slots__})
