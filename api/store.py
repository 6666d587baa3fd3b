"""The store of plans: SQLite through SQLAlchemy, content-addressed and append-only.

What is stored is never changed. A plan is durable before :meth:`PlanStore.add_plan` returns (WAL with
``synchronous=FULL``). Each document carries a checksum that binds it to the key it stands under; reading compares.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from api.errors import CorruptStoreError
from planner.errors import NotFoundError, StoreError

SCHEMA_VERSION = 1
BUSY_TIMEOUT_MS = 10_000

_METADATA = sa.MetaData()
_SCHEMA = sa.Table("replan_schema", _METADATA, sa.Column("version", sa.Integer, nullable=False))
_PLANS = sa.Table(
    "plans",
    _METADATA,
    sa.Column("plan_id", sa.String(64), primary_key=True),
    sa.Column("content", sa.LargeBinary, nullable=False),
    sa.Column("content_sha256", sa.String(64), nullable=False),
    sa.Column("summary", sa.LargeBinary, nullable=False),
    sa.Column("summary_sha256", sa.String(64), nullable=False),
)
_REQUESTS = sa.Table(
    "requests",
    _METADATA,
    sa.Column("request_sha256", sa.String(64), primary_key=True),
    sa.Column("plan_id", sa.String(64), sa.ForeignKey("plans.plan_id"), nullable=False),
)
_PROGRAMS = sa.Table(
    "programs",
    _METADATA,
    sa.Column("plan_id", sa.String(64), sa.ForeignKey("plans.plan_id"), primary_key=True),
    sa.Column("worker", sa.String(24), primary_key=True),
    sa.Column("content", sa.LargeBinary, nullable=False),
    sa.Column("content_sha256", sa.String(64), nullable=False),
)
_RANKS = sa.Table(
    "ranks",
    _METADATA,
    sa.Column("plan_id", sa.String(64), sa.ForeignKey("plans.plan_id"), primary_key=True),
    sa.Column("rank", sa.String(12), primary_key=True),
    sa.Column("worker", sa.String(24), nullable=False),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """Stored bytes and the checksum they were stored with, 64 hexadecimal digits."""

    content: bytes
    sha256: str


class PlanStore:
    """Plans, which request led to which plan, and the programs lowered from plans.

    Safe to use from several threads, and by several servers on one file.

    Parameters
    ----------
    path
        The SQLite file; made when missing.

    Raises
    ------
    StoreError
        If the file cannot be opened and written, is something else, or was written by a newer version.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._engine = sa.create_engine(
            sa.URL.create("sqlite", database=str(path)),
            connect_args={"timeout": BUSY_TIMEOUT_MS / 1000, "isolation_level": None},
        )
        sa.event.listen(self._engine, "connect", _set_pragmas)
        try:
            self._prepare()
        except BaseException:
            self._engine.dispose()
            raise

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def check(self) -> None:
        """Read the schema version, to see that the store answers.

        Raises
        ------
        StoreError
            If it does not.
        """
        with self._reading() as connection:
            connection.execute(sa.select(_SCHEMA.c.version)).scalar_one()

    def add_plan(self, plan_id: str, *, content: bytes, summary: bytes, request_sha256: str) -> bool:
        """Store a plan, and that this request led to it.

        Returns
        -------
        bool
            Whether the plan is new; where it is not, the stored bytes stay.

        Raises
        ------
        StoreError
            If it cannot be written; nothing of it is stored then.
        """
        with self._writing() as connection:
            is_new = _insert_missing(
                connection,
                _PLANS,
                plan_id=plan_id,
                content=content,
                content_sha256=_checksum(content, plan_id, "plan"),
                summary=summary,
                summary_sha256=_checksum(summary, plan_id, "summary"),
            )
            _insert_missing(connection, _REQUESTS, request_sha256=request_sha256, plan_id=plan_id)
        return is_new

    def add_programs(self, plan_id: str, programs: Mapping[str, bytes], ranks: Mapping[str, str]) -> None:
        """Store the programs of all workers of a stored plan and the worker of each rank; those there already stay.

        Raises
        ------
        StoreError
            If they cannot be written; none is stored then.
        """
        rows = [
            {
                "plan_id": plan_id,
                "worker": worker,
                "content": content,
                "content_sha256": _checksum(content, plan_id, f"program {worker}"),
            }
            for worker, content in programs.items()
        ]
        rank_rows = [{"plan_id": plan_id, "rank": rank, "worker": worker} for rank, worker in ranks.items()]
        with self._writing() as connection:
            for table, values in ((_PROGRAMS, rows), (_RANKS, rank_rows)):
                if values:
                    connection.execute(table.insert().prefix_with("OR IGNORE"), values)

    def plan_id_of_request(self, request_sha256: str) -> str | None:
        """Id of the plan that a request led to before; ``None`` where there is none."""
        query = sa.select(_REQUESTS.c.plan_id).where(_REQUESTS.c.request_sha256 == request_sha256)
        with self._reading() as connection:
            plan_id: str | None = connection.execute(query).scalar_one_or_none()
        return plan_id

    def plan(self, plan_id: str) -> Document:
        """Bytes of a plan file.

        Raises
        ------
        NotFoundError
            If no plan has this id.
        CorruptStoreError
            If the stored bytes are damaged.
        """
        query = sa.select(_PLANS.c.content, _PLANS.c.content_sha256).where(_PLANS.c.plan_id == plan_id)
        return self._document(query, plan_id, "plan")

    def summary(self, plan_id: str) -> Document:
        """Bytes of a plan's summary; raises as :meth:`plan` does."""
        query = sa.select(_PLANS.c.summary, _PLANS.c.summary_sha256).where(_PLANS.c.plan_id == plan_id)
        return self._document(query, plan_id, "summary")

    def program(self, plan_id: str, worker: str) -> Document:
        """Bytes of one worker's program; raises as :meth:`plan` does, also where it is not lowered yet."""
        query = sa.select(_PROGRAMS.c.content, _PROGRAMS.c.content_sha256).where(
            _PROGRAMS.c.plan_id == plan_id, _PROGRAMS.c.worker == worker
        )
        return self._document(query, plan_id, f"program {worker}")

    def worker_of_rank(self, plan_id: str, rank: str) -> str:
        """Worker, as ``pipeline/slot``, that a global rank belongs to.

        Raises
        ------
        NotFoundError
            If the plan's programs are not lowered yet, or it does not know the rank.
        """
        query = sa.select(_RANKS.c.worker).where(_RANKS.c.plan_id == plan_id, _RANKS.c.rank == rank)
        with self._reading() as connection:
            worker: str | None = connection.execute(query).scalar_one_or_none()
        if worker is None:
            raise NotFoundError(f"plan {plan_id[:80]!r} knows no rank {rank[:20]!r}")
        return worker

    def has_programs(self, plan_id: str) -> bool:
        """Whether the programs of a plan are stored."""
        query = sa.select(sa.literal(1)).where(_PROGRAMS.c.plan_id == plan_id).limit(1)
        with self._reading() as connection:
            return connection.execute(query).scalar_one_or_none() is not None

    def _document(self, query: sa.Select[Any], plan_id: str, kind: str) -> Document:
        with self._reading() as connection:
            row = connection.execute(query).one_or_none()
        if row is None:
            raise NotFoundError(f"there is no {kind} of plan {plan_id[:80]!r}" if kind != "plan" else _no_plan(plan_id))
        content, checksum = row
        if not isinstance(content, bytes) or _checksum(content, plan_id, kind) != checksum:
            raise CorruptStoreError(
                f"{self.path}: the stored {kind} of plan {plan_id} does not match its checksum",
                hint="restore the store from a copy, or delete the row and plan again",
            )
        return Document(content=content, sha256=checksum)

    def _prepare(self) -> None:
        with self._writing() as connection:
            tables = set(sa.inspect(connection).get_table_names())
            if not tables:
                _METADATA.create_all(connection)
                connection.execute(_SCHEMA.insert().values(version=SCHEMA_VERSION))
                return
            version = connection.execute(sa.select(_SCHEMA.c.version)).scalar() if _SCHEMA.name in tables else None
            if version is None:
                raise StoreError(f"{self.path} is a database, but no RePlan store", hint="name another file")
            if version != SCHEMA_VERSION:
                raise StoreError(
                    f"the store {self.path} has schema version {version}; this RePlan reads {SCHEMA_VERSION}",
                    hint="use the version of RePlan that wrote it, or name another file",
                )
            # A write that changes nothing: a store that can only be read is found out now, not at the first plan.
            connection.execute(_SCHEMA.update().values(version=version))

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        with self._translated("read"), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        # The driver is left in autocommit, so the transaction is begun here, with the write lock: a deferred one can
        # fail half-way when another server writes.
        with self._translated("written"), self._engine.connect() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.exec_driver_sql("ROLLBACK")
                raise
            connection.exec_driver_sql("COMMIT")

    @contextmanager
    def _translated(self, verb: str) -> Iterator[None]:
        try:
            yield
        except sa.exc.DBAPIError as error:
            raise StoreError(
                f"the store {self.path} cannot be {verb}: {error.orig}",
                hint="check that the file is a RePlan store and that its folder exists and can be written",
            ) from error


def _set_pragmas(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _insert_missing(connection: sa.Connection, table: sa.Table, **values: Any) -> bool:
    return connection.execute(table.insert().prefix_with("OR IGNORE").values(**values)).rowcount == 1


def _no_plan(plan_id: str) -> str:
    return f"there is no plan {plan_id[:80]!r}; plan ids are the 64 hexadecimal digits that POST /v1/plans answers"


def _checksum(content: bytes, plan_id: str, kind: str) -> str:
    """sha256 of a document and of what it stands for, so that swapped rows are found too."""
    return hashlib.sha256(b"\0".join((plan_id.encode(), kind.encode(), content))).hexdigest()
