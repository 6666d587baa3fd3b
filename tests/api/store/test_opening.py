"""Opening a store: made when new, upgraded when old, left alone when it is something else."""

from __future__ import annotations

import os
import pwd
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from api.errors import StoreReadOnlyError
from api.store import Retention, Store, parse_url
from api.store.schema import METADATA, SCHEMA_VERSION
from planner.errors import OptionError, StoreError
from tests.api.store.backends import JOB_SHA256, KEY, Backend, PostgresBackend, SqliteBackend, append, register
from tests.postgres import PostgresServer

PLAN_ID = "a" * 64
OLD_STORE = Path(__file__).with_name("version1.sql").read_text(encoding="utf-8")


@pytest.fixture(params=["sqlite", "postgresql"])
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    """A database of its own without any table."""
    if request.param == "sqlite":
        return SqliteBackend(tmp_path / "replan.db")
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return PostgresBackend(server, server.make_database())


def differences(url: str) -> list[object]:
    """What tells a database from the tables that the store expects."""
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        found = compare_metadata(context, METADATA)
    engine.dispose()
    return list(found)


def test_the_migrations_make_the_tables(fresh: Backend) -> None:
    """A new store has every table and column that the code names, and opening it again changes nothing."""
    for _ in range(2):
        store = Store(fresh.url)
        store.check()
        store.close()
        assert differences(fresh.url) == []
    assert fresh.query("SELECT version_num FROM alembic_version") == [(f"{SCHEMA_VERSION:04d}",)]
    assert fresh.query("SELECT version FROM replan_schema") == [(SCHEMA_VERSION,)]


def old_store(path: Path) -> SqliteBackend:
    """A store from before the migrations, with one plan."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(OLD_STORE)
    return SqliteBackend(path)


def test_upgrades_a_store_from_before_the_migrations(tmp_path: Path) -> None:
    """Its plans stay readable, it takes jobs, and the version before the migrations is told that it is too new."""
    old = old_store(tmp_path / "replan.db")
    store = Store(old.url)
    assert store.plan(PLAN_ID).content == b"plan"
    assert store.summary(PLAN_ID).content == b"summary of plan"
    assert store.plan_id_of_request("r" * 64) == PLAN_ID
    assert not store.has_programs(PLAN_ID), "its ranks had no checksums: they are made again when they are asked for"
    register(store)
    store.close()
    assert differences(old.url) == []
    assert old.query("SELECT version FROM replan_schema") == [(SCHEMA_VERSION,)]


@pytest.mark.parametrize("version", [2, 3])
def test_upgrades_a_store_of_an_earlier_version(tmp_path: Path, version: int) -> None:
    """Everything stays readable, what had no time of use is kept for as long as what is used now, programs are made again."""
    with closing(sqlite3.connect(tmp_path / "replan.db")) as connection:
        connection.executescript(Path(__file__).with_name(f"version{version}.sql").read_text(encoding="utf-8"))
    old = SqliteBackend(tmp_path / "replan.db")
    store = Store(old.url)
    assert differences(old.url) == []
    assert list(store.prune(Retention(days=1, epochs=1, acknowledged_epochs=1))) == []
    assert store.plan(PLAN_ID).content == b"plan"
    assert [record.epoch for record in store.epochs_after("job", 0)] == [1, 2]
    assert store.template(JOB_SHA256, KEY) is not None
    assert append(store, 2).record.epoch == 3
    assert not store.has_programs(PLAN_ID)
    store.add_programs(PLAN_ID, {"0/0": b"p0"}, {"17": "0/0"})
    assert store.program(PLAN_ID, store.worker_of_rank(PLAN_ID, "17")).content == b"p0"
    store.close()
    assert old.query("SELECT version FROM replan_schema") == [(SCHEMA_VERSION,)]


def test_an_upgrade_that_fails_changes_nothing(tmp_path: Path) -> None:
    """A store that cannot be upgraded, here since a table is in the way, stays what it was."""
    old = old_store(tmp_path / "replan.db")
    old.query("CREATE TABLE templates (title TEXT)")
    before = old.query("SELECT name, sql FROM sqlite_master ORDER BY name")
    with pytest.raises(StoreError, match="templates"):
        Store(old.url)
    assert old.query("SELECT name, sql FROM sqlite_master ORDER BY name") == before
    assert old.query("SELECT version FROM replan_schema") == [(1,)]


def test_many_may_open_a_new_store_at_once(fresh: Backend) -> None:
    """Of eight that find nothing one makes the tables, and all can use them."""
    stores: list[Store] = []
    threads = [threading.Thread(target=lambda: stores.append(Store(fresh.url))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(stores) == 8
    for store in stores:
        store.check()
        store.close()
    assert differences(fresh.url) == []


@pytest.mark.parametrize("statement", ["UPDATE alembic_version SET version_num = '9999'", "DROP TABLE alembic_version"])
def test_refuses_a_newer_schema(fresh: Backend, statement: str) -> None:
    """A store that a newer version wrote is not touched; both versions are named."""
    Store(fresh.url).close()
    fresh.query("UPDATE replan_schema SET version = 9999")
    fresh.query(statement)
    with pytest.raises(StoreError, match=f"schema version 9999; this RePlan reads {SCHEMA_VERSION}") as refusal:
        Store(fresh.url)
    assert refusal.value.hint is not None
    assert fresh.query("SELECT version FROM replan_schema") == [(9999,)]


@pytest.mark.parametrize("version", ["'abc'", "''"])
def test_refuses_a_version_that_is_none(fresh: Backend, version: str) -> None:
    """What another program's migrations left there is not taken for a number."""
    Store(fresh.url).close()
    fresh.query(f"UPDATE alembic_version SET version_num = {version}")
    with pytest.raises(StoreError, match="no RePlan store"):
        Store(fresh.url)


def test_refuses_other_databases(fresh: Backend) -> None:
    """Another program's database stays as it is."""
    fresh.query("CREATE TABLE songs (title TEXT)")
    with pytest.raises(StoreError, match="no RePlan store"):
        Store(fresh.url)
    fresh.query("INSERT INTO songs VALUES ('Ode')")
    with pytest.raises(sqlite3.OperationalError if isinstance(fresh, SqliteBackend) else Exception, match="plans"):
        fresh.query("SELECT * FROM plans")


def test_refuses_other_files(tmp_path: Path) -> None:
    """What is no database stays as it is."""
    text = tmp_path / "notes.txt"
    text.write_text("not a database " * 100)
    with pytest.raises(StoreError, match=r"notes\.txt"):
        Store(str(text))
    assert text.read_text().startswith("not a database")


def test_names_the_path_it_cannot_write(tmp_path: Path) -> None:
    """A folder that is not there, and one in the file's place, are told with the path and what to do."""
    for path in (tmp_path / "missing" / "replan.db", tmp_path):
        with pytest.raises(StoreError) as refusal:
            Store(str(path))
        assert str(path) in refusal.value.message
        assert refusal.value.hint is not None


@contextmanager
def without_privileges() -> Iterator[None]:
    """Go on as another user where this one is root, whom no file's mode stops."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(pwd.getpwnam("nobody").pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("folder_mode", [0o555, 0o777])
def test_a_file_that_can_only_be_read(folder_mode: int) -> None:
    """A user without the right to write is told so when the store is opened, not at the first event."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = Store(str(folder / "replan.db"))
        register(store)
        store.close()
        (folder / "replan.db").chmod(0o444)
        folder.chmod(folder_mode)
        try:
            with without_privileges(), pytest.raises(StoreReadOnlyError) as refusal:
                Store(str(folder / "replan.db"))
        finally:
            folder.chmod(0o755)
        assert str(folder) in refusal.value.message
        again = Store(str(folder / "replan.db"))
        assert again.job("job").revision == 1
        again.close()


def test_a_database_that_can_only_be_read(postgres_server: PostgresServer) -> None:
    """PostgreSQL in recovery or set to read only: an open store still reads, writes are refused with their reason."""
    backend = PostgresBackend(postgres_server, postgres_server.make_database())
    store = Store(backend.url)
    register(store)
    name = str(store.url.database)
    store.close()
    postgres_server.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    with pytest.raises(StoreReadOnlyError):
        Store(backend.url)
    postgres_server.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = off")
    again = Store(backend.url)
    postgres_server.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    postgres_server.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
    with pytest.raises(StoreReadOnlyError):
        append(again, 0)
    assert again.job("job").current_epoch == 0
    again.close()


def test_an_epoch_is_on_the_disk_before_it_is_acknowledged(tmp_path: Path) -> None:
    """Every connection to a file has a write-ahead log that is synchronised at each commit (2 = FULL) and foreign keys."""
    store = Store(str(tmp_path / "replan.db"))
    values = store._read(
        lambda connection: [
            connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys")
        ]
    )
    store.close()
    assert values == ["wal", 2, 1]


@pytest.mark.parametrize(
    ("text", "database"),
    [
        ("replan.db", "replan.db"),
        ("/srv/replan.db", "/srv/replan.db"),
        ("sqlite:////srv/replan.db", "/srv/replan.db"),
        ("sqlite:///replan.db", "replan.db"),
        ("postgresql://u:p@h/d", "d"),
        ("postgresql+psycopg://u:p@h/d", "d"),
        ("postgres://u:p@h/d", "d"),
    ],
)
def test_addresses(text: str, database: str) -> None:
    """A path is an SQLite file; both spellings of PostgreSQL's scheme are taken."""
    url = parse_url(text)
    assert url.database == database
    assert url.get_backend_name() == ("sqlite" if "post" not in text else "postgresql")


@pytest.mark.parametrize(
    "text",
    ["mysql://u:secret@h/d", "sqlite://", "sqlite:///:memory:", "postgresql+asyncpg://u:secret@h/d", "x://", "://",
     "postgresql://u:secret@h:port/d", "sqlite:///a.db?mode=ro"],
)  # fmt: skip
def test_refuses_other_addresses(text: str) -> None:
    """Other databases, and a store in memory, are refused, and a password is not repeated."""
    with pytest.raises(OptionError) as refusal:
        parse_url(text)
    assert "secret" not in str(refusal.value)


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    """It is named without the password."""
    with pytest.raises(StoreError) as refusal:
        Store(f"postgresql://me:secret@/d?host={tmp_path}")
    assert "secret" not in str(refusal.value)
    assert str(tmp_path).replace("/", "%2F") in refusal.value.message
    assert refusal.value.hint is not None
