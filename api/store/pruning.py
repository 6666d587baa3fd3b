"""What nobody needs any more is deleted, a few rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal

import sqlalchemy as sa

from api.store.checksums import row_checksum
from api.store.engine import Database
from api.store.schema import (
    ACKNOWLEDGEMENTS,
    EPOCHS,
    JOB_REVISIONS,
    JOBS,
    OPERATIONS,
    PLANS,
    PROGRAMS,
    RANKS,
    REQUESTS,
    TEMPLATES,
    USES,
)

UseKind = Literal["plan", "job"]
_ROWS = 1000
"""Most small rows of one transaction."""
_LARGE_ROWS = 50
"""Most rows of one transaction that may have large values, or many rows that go with them."""
_ENDED = ("done", "failed", "cancelled")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What is kept.

    Parameters
    ----------
    days
        Days that epochs, ended operations, and what is of no use are kept; above 0.
    epochs
        Newest epochs of each job that are kept whatever their age, at least 1.
    acknowledged_epochs
        Newest epochs of each job whose acknowledgements are kept, at least 1.
    """

    days: int
    epochs: int
    acknowledged_epochs: int


class PruningRows(Database):
    """Deletes what is older than its time. The current epoch of a job always stays."""

    def prune(self, retention: Retention) -> Iterator[tuple[str, int]]:
        """Delete in small transactions; after each, the table and how many of its rows went.

        Where another server is at it, this one leaves it to that.

        Raises
        ------
        StoreError
            If the store cannot be written.
        """
        steps: tuple[tuple[str, Callable[[sa.Connection], int], int], ...] = (
            ("acknowledgements", partial(self._old_acknowledgements, retention=retention), _ROWS),
            ("epochs", partial(self._old_epochs, retention=retention), _LARGE_ROWS),
            ("operations", partial(self._old_operations, retention=retention), _ROWS),
            ("plans", partial(self._unused_plans, retention=retention), _LARGE_ROWS),
            ("templates", partial(self._unused_templates, retention=retention), _LARGE_ROWS),
        )
        if self._write(self._note_uses) is None:
            return
        for table, step, most in steps:
            while True:
                count = self._write(partial(self._alone, step=step))
                if count:
                    yield table, count
                if count is None or count < most:
                    break

    def touch(self, kind: UseKind, name: str) -> None:
        """Note that a plan, by its id, or the templates of a job hash are of use now."""

        def work(connection: sa.Connection) -> None:
            insert = self._insert(USES).values(kind=kind, name=name, used_at=self._now(connection))
            changes = {"used_at": insert.excluded.used_at}
            connection.execute(insert.on_conflict_do_update(index_elements=["kind", "name"], set_=changes))

        self._write(work)

    def _alone(self, connection: sa.Connection, step: Callable[[sa.Connection], int]) -> int | None:
        """Do a step, unless another server does one; ``None`` then. SQLite has one writer at a time anyway."""
        if not self.is_sqlite:
            number = int.from_bytes(bytes.fromhex(row_checksum("pruning"))[:8], "big", signed=True)
            if not connection.execute(sa.select(sa.func.pg_try_advisory_xact_lock(number))).scalar_one():
                return None
        return step(connection)

    def _note_uses(self, connection: sa.Connection) -> int | None:
        """Take the hashes of registered jobs for used now, and so whatever has no time yet."""
        return self._alone(connection, self._note_uses_alone)

    def _note_uses_alone(self, connection: sa.Connection) -> int:
        now = self._now(connection)
        u, time = USES.c, sa.literal(now, USES.c.used_at.type)
        registered = sa.select(JOB_REVISIONS.c.job_sha256)
        connection.execute(USES.update().where(u.kind == "job", u.name.in_(registered)).values(used_at=now))
        for kind, column in (("plan", PLANS.c.plan_id), ("job", TEMPLATES.c.job_sha256)):
            known = sa.exists().where(u.kind == kind, u.name == column)
            missing = sa.select(sa.literal(kind), column, time).where(~known).distinct()
            insert = self._insert(USES).from_select(["kind", "name", "used_at"], missing)
            connection.execute(insert.on_conflict_do_nothing())
        return 0

    def _old_acknowledgements(self, connection: sa.Connection, retention: Retention) -> int:
        a = ACKNOWLEDGEMENTS.c
        old = (
            sa.select(a.job_id, a.epoch, a.worker)
            .join(JOBS, JOBS.c.job_id == a.job_id)
            .where(a.epoch <= JOBS.c.current_epoch - retention.acknowledged_epochs)
        )
        return _delete(connection, ACKNOWLEDGEMENTS, old.limit(_ROWS))

    def _old_epochs(self, connection: sa.Connection, retention: Retention) -> int:
        # Their events go with them.
        before = self._ago(connection, retention)
        old = (
            sa.select(EPOCHS.c.job_id, EPOCHS.c.epoch)
            .join(JOBS, JOBS.c.job_id == EPOCHS.c.job_id)
            .where(
                EPOCHS.c.epoch <= JOBS.c.current_epoch - retention.epochs,
                EPOCHS.c.created_at < before,
            )
        )
        return _delete(connection, EPOCHS, old.limit(_LARGE_ROWS))

    def _old_operations(self, connection: sa.Connection, retention: Retention) -> int:
        o = OPERATIONS.c
        old = sa.select(o.operation_id).where(o.state.in_(_ENDED), o.updated_at < self._ago(connection, retention))
        return _delete(connection, OPERATIONS, old.limit(_ROWS))

    def _unused_plans(self, connection: sa.Connection, retention: Retention) -> int:
        u = USES.c
        old = sa.select(u.name).where(u.kind == "plan", u.used_at < self._ago(connection, retention)).limit(_LARGE_ROWS)
        names = connection.execute(old).scalars().all()
        for table in (PROGRAMS, RANKS, REQUESTS, PLANS):
            connection.execute(table.delete().where(table.c.plan_id.in_(names)))
        connection.execute(USES.delete().where(u.kind == "plan", u.name.in_(names)))
        return len(names)

    def _unused_templates(self, connection: sa.Connection, retention: Retention) -> int:
        u, t = USES.c, TEMPLATES.c
        registered = sa.select(JOB_REVISIONS.c.job_sha256)
        unused = (u.kind == "job", u.used_at < self._ago(connection, retention), u.name.not_in(registered))
        old = sa.select(t.job_sha256, t.key_sha256, t.sha256).where(t.job_sha256.in_(sa.select(u.name).where(*unused)))
        count = _delete(connection, TEMPLATES, old.limit(_LARGE_ROWS))
        if count < _LARGE_ROWS:
            connection.execute(USES.delete().where(*unused))
        return count

    def _ago(self, connection: sa.Connection, retention: Retention) -> datetime:
        return self._now(connection) - timedelta(days=retention.days)


def _delete(connection: sa.Connection, table: sa.Table, which: sa.Select[Any]) -> int:
    """Delete the rows whose primary keys a query gives; how many."""
    key = sa.tuple_(*table.primary_key.columns)
    return connection.execute(table.delete().where(key.in_(which))).rowcount
