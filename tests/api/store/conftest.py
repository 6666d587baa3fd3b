"""A store on each kind of database, for one suite of tests that both must pass."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from api.store import Store
from api.store.schema import METADATA, SCHEMA
from tests.api.store.backends import Backend, PostgresBackend, SqliteBackend
from tests.postgres import PostgresServer


@pytest.fixture(scope="session")
def shared_database(postgres_server: PostgresServer) -> PostgresBackend:
    """A PostgreSQL database with the newest schema; tests that change the schema make one of their own."""
    # Sorted as a language sorts, since a store must not depend on that.
    options = "TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en-US'" if postgres_server.version() >= 15 else ""
    backend = PostgresBackend(postgres_server, postgres_server.make_database(options))
    Store(backend.url).close()
    return backend


@pytest.fixture
def postgres_backend(shared_database: PostgresBackend) -> PostgresBackend:
    """That database with nothing in it."""
    tables = [table.name for table in reversed(METADATA.sorted_tables) if table is not SCHEMA]
    shared_database.server.execute(*(f"DELETE FROM {name}" for name in tables), url=shared_database.url)
    return shared_database


@pytest.fixture
def postgres_store(postgres_backend: PostgresBackend) -> Iterator[Store]:
    """An open store in it."""
    opened = Store(postgres_backend.url)
    yield opened
    opened.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    """A database of each kind with nothing in it."""
    if request.param == "sqlite":
        return SqliteBackend(tmp_path / "replan.db")
    found: PostgresBackend = request.getfixturevalue("postgres_backend")
    return found


@pytest.fixture
def store(backend: Backend) -> Iterator[Store]:
    """An open store in it."""
    opened = Store(backend.url)
    yield opened
    opened.close()
