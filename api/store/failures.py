"""What goes wrong in a database, as errors of the store."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from psycopg.errors import ConnectionTimeout

from api.errors import CorruptStoreError, RequestError, StoreFullError, StoreReadOnlyError
from api.store.silence import DatabaseSilentError
from planner.errors import StoreError

_MAX_MESSAGE = 1000
_DISK_FULL = "53100"
_READ_ONLY = "25006"
_DAMAGED = ("XX001", "XX002")
_PASSING = ("40001", "40P01", "57P01", "57P02", "57P03", "08000", "08001", "08003", "08006")
"""SQLSTATE of serialisation failures, deadlocks, servers that stop or start, and lost connections."""


@contextmanager
def translated(name: str, verb: str) -> Iterator[None]:
    """Raise errors of the database as errors of the store.

    Parameters
    ----------
    name
        The store, as its user named it, without a password.
    verb
        What was done to it: "read" or "written".
    """
    try:
        yield
    except (sa.exc.DataError, UnicodeEncodeError, OverflowError) as error:
        raise RequestError(
            "a name or number that no stored one can be equal to: it holds what cannot be stored"
        ) from error
    except sa.exc.DBAPIError as error:
        raise store_error(name, verb, error.orig or error) from error
    except DatabaseSilentError as error:
        raise store_error(name, verb, error) from error
    except sa.exc.TimeoutError as error:
        raise StoreError(f"the store {name} cannot be {verb}: all its connections are in use") from error


def store_error(name: str, verb: str, error: BaseException) -> StoreError:
    """Error of the store for an error of the driver."""
    text = f"the store {name} cannot be {verb}: {_printable(str(error))}"
    code, state = primary_code(error), getattr(error, "sqlstate", None)
    if code == sqlite3.SQLITE_FULL or state == _DISK_FULL:
        return StoreFullError(text, hint="free disk space; nothing of what was to be written is stored")
    if code == sqlite3.SQLITE_READONLY or state == _READ_ONLY:
        return StoreReadOnlyError(
            text, hint="give the user that runs the service the right to write, on a writable disk"
        )
    if code == sqlite3.SQLITE_CORRUPT or state in _DAMAGED:
        return CorruptStoreError(text, hint="restore the store from a copy")
    if state is not None or type(error).__module__.startswith("psycopg"):
        return StoreError(text, hint="check that the PostgreSQL server runs and that the user may use the database")
    return StoreError(text, hint="check that the file is a RePlan store and that its folder exists and can be written")


def _printable(text: str) -> str:
    """A driver's message for logs and terminals: it may repeat what stands in a damaged row."""
    return "".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in text.strip()[:_MAX_MESSAGE])


def primary_code(error: BaseException | None) -> int | None:
    """Primary result code of an error of SQLite, without what its extended code adds."""
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def is_passing(error: sa.exc.DBAPIError) -> bool:
    """Whether the same work may succeed on a new connection: the server was restarted, or two transactions collided.

    Not where the server did not answer in time: whoever waits has waited long enough.
    """
    if primary_code(error.orig) is not None or isinstance(error.orig, DatabaseSilentError | ConnectionTimeout):
        return False
    state = getattr(error.orig, "sqlstate", None)
    refused = state is None and isinstance(error, sa.exc.OperationalError)
    return error.connection_invalidated or refused or state in _PASSING
