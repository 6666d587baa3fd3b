"""API keys: what is stored can check a key, but not make one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from api.store.engine import Database
from api.store.schema import API_KEYS
from planner.errors import NotFoundError


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKeyRecord:
    """One API key.

    Parameters
    ----------
    key_id
        The public part of the key.
    name
        What it is for, in its maker's words.
    scopes
        What it allows.
    digest
        sha256 of the secret part, 64 hexadecimal digits.
    created_at, revoked_at
        When it was made, and when it ceased to hold.
    """

    key_id: str
    name: str
    scopes: tuple[str, ...]
    digest: str
    created_at: datetime
    revoked_at: datetime | None


class KeyRows(Database):
    """API keys, revoked ones too."""

    def add_key(self, *, key_id: str, name: str, scopes: tuple[str, ...], digest: str) -> ApiKeyRecord:
        """Store a new key; ``scopes`` are words without spaces."""

        def work(connection: sa.Connection) -> ApiKeyRecord:
            values = {"key_id": key_id, "name": name, "scopes": " ".join(scopes), "digest": digest}
            self._insert_missing(connection, API_KEYS, created_at=self._now(connection), **values)
            return _record(connection.execute(_with_id(key_id)).one())

        return self._write(work)

    def api_key(self, key_id: str) -> ApiKeyRecord | None:
        """A key, revoked or not; ``None`` where there is none with this id."""
        row = self._read(lambda connection: connection.execute(_with_id(key_id)).one_or_none())
        return None if row is None else _record(row)

    def list_keys(self) -> tuple[ApiKeyRecord, ...]:
        """All keys, oldest first."""
        query = sa.select(API_KEYS).order_by(API_KEYS.c.created_at, API_KEYS.c.key_id)
        return tuple(_record(row) for row in self._read(lambda connection: connection.execute(query).all()))

    def revoke_key(self, key_id: str) -> ApiKeyRecord:
        """Make a key cease to hold; one revoked before stays as it is.

        Raises
        ------
        NotFoundError
            If there is none with this id.
        """

        def work(connection: sa.Connection) -> ApiKeyRecord | None:
            held = API_KEYS.update().where(API_KEYS.c.key_id == key_id, API_KEYS.c.revoked_at.is_(None))
            connection.execute(held.values(revoked_at=self._now(connection)))
            row = connection.execute(_with_id(key_id)).one_or_none()
            return None if row is None else _record(row)

        revoked = self._write(work)
        if revoked is None:
            raise NotFoundError(f"there is no API key {key_id[:80]!r}")
        return revoked


def _with_id(key_id: str) -> sa.Select[Any]:
    return sa.select(API_KEYS).where(API_KEYS.c.key_id == key_id)


def _record(row: sa.Row[Any]) -> ApiKeyRecord:
    return ApiKeyRecord(
        key_id=row.key_id,
        name=row.name,
        scopes=tuple(row.scopes.split()),
        digest=str(row.digest),  # on a damaged disk it may be no text
        created_at=row.created_at,
        revoked_at=row.revoked_at,
    )
