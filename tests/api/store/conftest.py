"""A store on each kind of database, for one suite of tests that both must pass."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from api.store import Store
from tests.api.store.backends import Backend, PostgresBackend, SqliteBackend
from tests.postgres import PostgresServer


@pytest.fixture(params=["sqlite", "postgresql"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    """An empty database of each kind."""
    if request.param == "sqlite":
        return SqliteBackend(tmp_path / "replan.db")
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return PostgresBackend(server, server.make_database())


@pytest.fixture
def store(backend: Backend) -> Iterator[Store]:
    """An open store in it."""
    opened = Store(backend.url)
    yield opened
    opened.close()
