"""A database that does not answer, though its connections stay open: a server that was stopped, a network that loses all.

The driver would wait for ever, and the operating system sees nothing wrong while the other side's kernel takes what is sent.
So every wait for the database ends here after some seconds of silence, and while it lasts one thread at a time asks again; the
others are told at once, and no thread is kept from what needs no database.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
import sqlalchemy as sa
from psycopg.errors import ConnectionTimeout

from planner.errors import ReplanError

CONNECT_TIMEOUT_S = 3
PING_TIMEOUT_S = 2.0
"""Seconds of silence after which a connection that was not in use is given up."""
STATEMENT_TIMEOUT_S = 75.0
"""Seconds of silence after which one in use is given up: the server itself ends statements after 60 s."""
STATEMENT_TIMEOUT_IN_SILENCE_S = 5.0
"""The same where the database does not answer others either."""
_INTERVAL_S = 0.1
_T = TypeVar("_T")


class DatabaseSilentError(psycopg.OperationalError):
    """The database did not answer in time."""


class Silence:
    """Whether a database answers; safe to use from several threads."""

    def __init__(self) -> None:
        self._lasts = False
        self._probe = threading.Lock()
        self._prober: int | None = None

    @property
    def lasts(self) -> bool:
        """Whether the database did not answer when it was last asked."""
        return self._lasts

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Ask the database something within the block.

        Raises
        ------
        DatabaseSilentError
            If it does not answer, and another thread is asking it already.
        """
        if not self._lasts:
            with self._heeded():
                yield
            return
        if not self._probe.acquire(blocking=False):
            raise _silent()
        self._prober = threading.get_ident()
        try:
            with self._heeded():
                yield
        finally:
            self._prober = None
            self._probe.release()

    def require_leave(self) -> None:
        """Raise :class:`DatabaseSilentError` in a thread that began to ask before it was known that no answer comes."""
        if self._lasts and self._prober != threading.get_ident():
            raise _silent()

    @contextmanager
    def _heeded(self) -> Iterator[None]:
        try:
            yield
        except sa.exc.DBAPIError as error:
            if isinstance(error.orig, DatabaseSilentError | ConnectionTimeout):
                self._lasts = True
                raise
            self._lasts = False
            raise
        except ReplanError:
            # It was asked in vain, but it did answer.
            self._lasts = False
            raise
        self._lasts = False


class PatientConnection(psycopg.Connection[Any]):
    """A connection that waits for its server, but not for ever.

    Attributes
    ----------
    silence
        Whether the server answers others.
    is_in_use
        Whether somebody does something with it; if not, it is only asked whether it is still good.
    """

    silence: Silence | None = None
    is_in_use = False

    def wait(self, gen: Generator[Any, Any, _T], interval: float = _INTERVAL_S, timeout: float | None = None) -> _T:
        """Wait for what the server answers, as the driver does; a connection that stays silent is closed.

        Raises
        ------
        DatabaseSilentError
            If nothing comes for too long.
        """
        return super().wait(self._heard(gen), interval, timeout)

    def _heard(self, gen: Generator[Any, Any, _T]) -> Generator[Any, Any, _T]:
        heard_at = time.monotonic()
        try:
            wanted = next(gen)
            while True:
                # The driver comes by after each interval, with nothing where nothing came.
                ready = yield wanted
                if ready:
                    heard_at = time.monotonic()
                elif time.monotonic() - heard_at > self._patience_s():
                    self.pgconn.finish()
                    raise _silent()
                wanted = gen.send(ready)
        except StopIteration as end:
            result: _T = end.value
            return result

    def _patience_s(self) -> float:
        if not self.is_in_use:
            return PING_TIMEOUT_S
        is_silent = self.silence is not None and self.silence.lasts
        return STATEMENT_TIMEOUT_IN_SILENCE_S if is_silent else STATEMENT_TIMEOUT_S


def watch_for_silence(engine: sa.Engine, silence: Silence) -> None:
    """Have an engine's connections give up a PostgreSQL server that does not answer."""

    @sa.event.listens_for(engine, "do_connect")
    def connect(_dialect: object, _record: object, arguments: Any, options: Any) -> PatientConnection:
        silence.require_leave()
        connection = PatientConnection.connect(*arguments, **options)
        connection.silence = silence
        return connection

    # Between a check-in and a check-out the pool itself asks whether a connection is good.
    @sa.event.listens_for(engine, "checkout")
    def take(connection: PatientConnection, _record: object, _proxy: object) -> None:
        connection.is_in_use = True

    @sa.event.listens_for(engine, "checkin")
    def put_back(connection: PatientConnection | None, _record: object) -> None:
        if connection is not None:
            connection.is_in_use = False


def _silent() -> DatabaseSilentError:
    return DatabaseSilentError("the PostgreSQL server does not answer")
