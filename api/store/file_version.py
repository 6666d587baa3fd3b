"""Whether another connection wrote to an SQLite file."""

from __future__ import annotations

import threading
from sqlite3 import Connection, connect

from api.store.engine import BUSY_TIMEOUT_S


class FileVersion:
    """A number that changes whenever another connection has written to an SQLite file; safe to use from several threads.

    A task that is cancelled while it waits for a thread leaves the thread to work on. Closing therefore waits for whoever
    reads: SQLite's driver crashes where a connection is closed under it.

    Parameters
    ----------
    path
        The file; it is opened by the first :meth:`read`.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._is_closed = False

    def read(self) -> int | None:
        """The number now; ``None`` once this is closed.

        Raises
        ------
        sqlite3.Error
            If the file cannot be read.
        """
        with self._lock:
            if self._is_closed:
                return None
            if self._connection is None:
                # The number is one of the connection, so the same one asks each time.
                self._connection = connect(self._path, timeout=BUSY_TIMEOUT_S, check_same_thread=False)
            version: int = self._connection.execute("PRAGMA data_version").fetchone()[0]
            return version

    def close(self) -> None:
        """Close the connection, when nobody reads any more, and open none from now on."""
        with self._lock:
            self._is_closed = True
            if self._connection is not None:
                self._connection.close()
