"""Whether another connection wrote to an SQLite file, and the end of looking."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from api.store import EpochFeed, Store, file_version
from api.store.file_version import FileVersion

LONG_S = 60.0
"""Seconds that no test waits for: what is awaited comes long before."""


def test_the_number_changes_with_what_others_write(tmp_path: Path) -> None:
    """It stays as long as nobody writes, and is another after somebody did."""
    with closing(sqlite3.connect(tmp_path / "file.db", isolation_level=None)) as writer:
        writer.execute("CREATE TABLE numbers (number INTEGER)")
        with closing(FileVersion(str(tmp_path / "file.db"))) as version:
            first = version.read()
            assert first is not None
            assert version.read() == first
            writer.execute("INSERT INTO numbers VALUES (1)")
            assert version.read() not in (None, first)


def test_once_closed_nothing_is_opened(tmp_path: Path) -> None:
    """A thread that begins to read only then opens no file."""
    version = FileVersion(str(tmp_path / "file.db"))
    version.close()
    assert version.read() is None
    assert list(tmp_path.iterdir()) == []


def test_a_feed_that_ends_lets_its_thread_finish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection is closed only when the thread that looks at the file is through; else the process may crash."""
    began, may_end = threading.Event(), threading.Event()
    steps: list[str] = []

    class Slow(sqlite3.Connection):
        def execute(self, *arguments: Any) -> sqlite3.Cursor:
            began.set()
            assert may_end.wait(LONG_S)
            steps.append("read")
            return super().execute(*arguments)

        def close(self) -> None:
            steps.append("closed")
            super().close()

    monkeypatch.setattr(file_version, "connect", partial(sqlite3.connect, factory=Slow))

    async def end_while_reading(store: Store) -> None:
        async with EpochFeed(store):
            assert await asyncio.to_thread(began.wait, LONG_S)
            # What would close it at once has the time to do so.
            asyncio.get_running_loop().call_later(0.2, may_end.set)

    with closing(Store(str(tmp_path / "file.db"))) as store:
        asyncio.run(end_while_reading(store))
    assert steps == ["read", "closed"]
