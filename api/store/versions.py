"""Versions of the schema: make a new store, upgrade an old one, leave alone what is neither."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

from api.store.schema import SCHEMA, SCHEMA_VERSION
from planner.errors import StoreError

VERSION_TABLE = "alembic_version"
_MIGRATIONS = Path(__file__).with_name("migrations")
_FIRST_WITH_MIGRATIONS = 1
_LOCK = 0x7265706C616E
"""Number of PostgreSQL's advisory lock for migrations: "replan" in ASCII."""


def prepare(connection: sa.Connection, name: str, *, must_exist: bool = False) -> None:
    """Bring the store of a transaction to the newest schema; an empty database becomes one unless it ``must_exist``.

    Raises
    ------
    StoreError
        If the database is no store, or one of a newer version.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
    found = _found_version(connection, name)
    if found is None and must_exist:
        raise no_store(name)
    if found is not None and found > SCHEMA_VERSION:
        raise StoreError(
            f"the store {name} has schema version {found}; this RePlan reads {SCHEMA_VERSION}",
            hint="use the version of RePlan that wrote it, or name another store",
        )
    if found != SCHEMA_VERSION:
        _upgrade(connection, found)
    # A write that changes nothing: a store that can only be read is found out now, not at the first plan.
    connection.execute(SCHEMA.update().values(version=SCHEMA.c.version))


def no_store(name: str) -> StoreError:
    """Error of a database that should hold a store and is empty or not there."""
    return StoreError(
        f"there is no store {name}",
        hint="name the one that is meant; `replan serve`, `replan precompute` and `replan keys create` make a new one",
    )


def schema_version(connection: sa.Connection) -> int | None:
    """Version of a store's schema; ``None`` where the migrations' own table does not hold one."""
    text = connection.execute(sa.text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
    return int(text) if text is not None and text.isdecimal() else None


def _found_version(connection: sa.Connection, name: str) -> int | None:
    """Version of the schema; ``None`` for a database with nothing in it."""
    tables = set(sa.inspect(connection).get_table_names())
    if not tables:
        return None
    version = None
    if SCHEMA.name in tables:
        version = schema_version(connection) if VERSION_TABLE in tables else _version_before_migrations(connection)
    if version is None:
        raise StoreError(f"{name} is a database, but no RePlan store", hint="name another one")
    return version


def _version_before_migrations(connection: sa.Connection) -> int | None:
    return connection.execute(sa.select(SCHEMA.c.version)).scalar()


def _upgrade(connection: sa.Connection, found: int | None) -> None:
    # Loaded only where there is something to do: it takes longer than opening the store.
    from alembic.migration import MigrationContext  # noqa: PLC0415
    from alembic.operations import Operations  # noqa: PLC0415
    from alembic.script import ScriptDirectory  # noqa: PLC0415

    scripts = ScriptDirectory(str(_MIGRATIONS))

    def steps(revision: object, _context: object) -> list[object]:
        return list(scripts._upgrade_revs("head", revision))  # type: ignore[arg-type]

    context = MigrationContext.configure(
        connection, opts={"fn": steps, "version_table": VERSION_TABLE, "transaction_per_migration": False}
    )
    if found == _FIRST_WITH_MIGRATIONS and context.get_current_revision() is None:
        context.stamp(scripts, f"{_FIRST_WITH_MIGRATIONS:04d}")
    with Operations.context(context):
        context.run_migrations()
