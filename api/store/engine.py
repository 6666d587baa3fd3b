"""The database under the store: connections, transactions, and what is done when one is lost."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from api.store.checksums import row_checksum
from api.store.failures import is_passing, translated
from api.store.silence import CONNECT_TIMEOUT_S, Silence, watch_for_silence
from api.store.versions import no_store, prepare
from planner.errors import OptionError

_BUSY_WAIT_S = 0.005
BUSY_TIMEOUT_S = 10.0
RETRY_WAITS_S = (0.05, 0.5)
"""Seconds before work that met a lost connection is done again."""

_POSTGRESQL_OPTIONS: Mapping[str, Any] = {
    "connect_timeout": CONNECT_TIMEOUT_S,
    "application_name": "replan",
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
    # A replica that is stopped within a transaction must not keep the others from a job.
    "options": "-c lock_timeout=10s -c statement_timeout=60s -c idle_in_transaction_session_timeout=60s",
}
_POOL_TIMEOUT_S = 10.0
"""Seconds to wait for one of the connections where all are in use."""
_T = TypeVar("_T")


class Database:
    """One open SQLite file or PostgreSQL database; safe to use from several threads.

    Parameters
    ----------
    url
        ``sqlite:///replan.db``, ``postgresql://user:password@host/database``, or the path of an SQLite file.
    must_exist
        Whether to refuse a database that holds no store yet, instead of making one in it.

    Raises
    ------
    OptionError
        If the URL is of another kind.
    StoreError
        If the database cannot be opened and written, is something else, or was written by a newer version; where it
        ``must_exist``, also if there is no store.
    """

    def __init__(self, url: str, *, must_exist: bool = False) -> None:
        self.url = parse_url(url)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        self.name = str(self.url.database) if self.is_sqlite else self.url.render_as_string(hide_password=True)
        if must_exist and self.is_sqlite and not _has_content(self.name):
            # Connecting would make the file.
            raise no_store(self.name)
        self._silence = Silence()
        self._engine = _sqlite_engine(self.url) if self.is_sqlite else _postgresql_engine(self.url, self._silence)
        # SQLite has one writer at a time. Threads of one process queue here, which is fair and wakes the next at once;
        # the file's own lock is polled with growing pauses.
        self._writer: AbstractContextManager[Any] = threading.Lock() if self.is_sqlite else nullcontext()
        try:
            self._write(lambda connection: prepare(connection, self.name, must_exist=must_exist))
        except BaseException:
            self._engine.dispose()
            raise

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def connection_options(self) -> dict[str, Any]:
        """Arguments of :func:`psycopg.connect` for a connection of one's own to a PostgreSQL database."""
        _, options = self._engine.dialect.create_connect_args(self.url)
        return {**_POSTGRESQL_OPTIONS, **options}

    def _read(self, work: Callable[[sa.Connection], _T]) -> _T:
        """Run statements that read, each for itself."""
        return self._retried("read", lambda: self._reading(work))

    def _write(self, work: Callable[[sa.Connection], _T]) -> _T:
        """Run ``work`` in one transaction, which is durable when this returns.

        A lost connection leaves unknown whether the transaction was stored, so ``work`` may run again, and must then see
        what it did before.
        """
        return self._retried("written", lambda: self._writing(work))

    def _reading(self, work: Callable[[sa.Connection], _T]) -> _T:
        with self._engine.connect() as connection:
            # SQLite's driver is in autocommit already, and setting it would leave the connection in another mode.
            return work(connection if self.is_sqlite else connection.execution_options(isolation_level="AUTOCOMMIT"))

    def _writing(self, work: Callable[[sa.Connection], _T]) -> _T:
        with self._writer, self._engine.connect() as connection:
            if self.is_sqlite:
                # The driver is left in autocommit, so the transaction is begun here, with the write lock: a deferred one
                # can fail half-way when another process writes.
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            result = work(connection)
            connection.commit()
            return result

    def _retried(self, verb: str, attempt: Callable[[], _T]) -> _T:
        with translated(self.name, verb), self._silence.asking():
            for wait_s in RETRY_WAITS_S:
                try:
                    return attempt()
                except sa.exc.DBAPIError as error:
                    if not is_passing(error):
                        raise
                time.sleep(wait_s)
            return attempt()

    def _insert(self, table: sa.Table) -> postgresql.Insert | sqlite.Insert:
        """Insertion that can say what happens to a row that is there already."""
        return sqlite.insert(table) if self.is_sqlite else postgresql.insert(table)

    def _insert_missing(self, connection: sa.Connection, table: sa.Table, **values: Any) -> bool:
        """Insert a row unless one with its key is there; whether it was not."""
        insert = self._insert(table).values(**values).on_conflict_do_nothing()
        return connection.execute(insert, execution_options={"preserve_rowcount": True}).rowcount == 1

    def _locked(self, query: sa.Select[Any], *, shared: bool = False, skip_locked: bool = False) -> sa.Select[Any]:
        """Lock the rows that a query of a transaction finds; on SQLite the transaction has the whole file.

        ``shared`` only keeps rows from being deleted, ``skip_locked`` leaves out those that others have locked.
        """
        if self.is_sqlite:
            return query
        return query.with_for_update(read=shared, key_share=shared, skip_locked=skip_locked)

    def _exclude(self, connection: sa.Connection, *names: str) -> None:
        """Let transactions that name the same thing run one after the other; on SQLite all do.

        For things without a row to lock. Several of them are to be named in the order of their names.
        """
        if not self.is_sqlite:
            number = int.from_bytes(bytes.fromhex(row_checksum(*names))[:8], "big", signed=True)
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(number)))

    def _now(self, connection: sa.Connection) -> datetime:
        """Time of the database's clock, the one that all replicas share."""
        if self.is_sqlite:
            return datetime.now(UTC)
        now: datetime = connection.execute(sa.select(sa.func.clock_timestamp())).scalar_one()
        return now.astimezone(UTC)


def parse_url(text: str) -> sa.URL:
    """Read the address of a store.

    Raises
    ------
    OptionError
        If it is neither the path of a file nor the URL of an SQLite file or a PostgreSQL database.
    """
    if "://" not in text and not text.startswith("sqlite:"):
        return sa.URL.create("sqlite", database=text)
    hint = "expected a path, sqlite:///replan.db or postgresql://user:password@host/database"
    try:
        url = sa.make_url(text)
        backend = url.get_backend_name()
    except (sa.exc.ArgumentError, ValueError) as error:
        raise OptionError("the store's URL cannot be read", hint=hint) from error
    if backend == "postgres":  # libpq takes both spellings
        url, backend = url.set(drivername="postgresql"), "postgresql"
    if url.drivername not in ("sqlite", "postgresql", "postgresql+psycopg"):
        raise OptionError(f"the store's URL names the database {backend[:80]!r}", hint=hint)
    if backend == "sqlite" and (url.database in (None, "", ":memory:") or url.query):
        raise OptionError("the store's URL names no file", hint=hint)
    return url


def _has_content(path: str) -> bool:
    """Whether a file is there and not empty; one that cannot be looked at is left to the database to complain of."""
    try:
        return Path(path).stat().st_size > 0
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _sqlite_engine(url: sa.URL) -> sa.Engine:
    engine = sa.create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S, "isolation_level": None})
    sa.event.listen(engine, "connect", _set_up)
    return engine


def _set_up(connection: Any, _record: object) -> None:
    # A damaged text is read all the same, so that its row's checksum can tell.
    connection.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
    cursor = connection.cursor()
    _use_write_ahead_log(cursor)
    for pragma in ("synchronous=FULL", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _use_write_ahead_log(cursor: Any) -> None:
    """Change a new file to WAL. Where others do so too, SQLite says at once that it is busy, whatever its time-out."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            # The low byte is the error, the others say more of it.
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(_BUSY_WAIT_S)
        else:
            return


def _postgresql_engine(url: sa.URL, silence: Silence) -> sa.Engine:
    given = dict(url.query)
    options = {name: value for name, value in _POSTGRESQL_OPTIONS.items() if name not in given}
    engine = sa.create_engine(url, pool_pre_ping=True, pool_timeout=_POOL_TIMEOUT_S, connect_args=options)
    watch_for_silence(engine, silence)
    return engine
