"""What people look at, beside what workers and reporters need."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any

import sqlalchemy as sa

from api.store.checksums import sha256_hex
from api.store.engine import Database
from api.store.schema import EPOCHS, TEMPLATES

_AT_ONCE = 500


class LookingRows(Database):
    """Reads over epochs and templates that need none of their contents."""

    def last_report_at(self, job_id: str) -> datetime | None:
        """When the newest epoch of a job that a report led to was made; ``None`` where there is none, or no such job."""
        query = sa.select(EPOCHS.c.created_at).where(EPOCHS.c.job_id == job_id, EPOCHS.c.cause == "event")
        query = query.order_by(EPOCHS.c.epoch.desc()).limit(1)
        found: datetime | None = self._read(lambda connection: connection.execute(query).scalar())
        return found

    def template_periods(self, job_sha256: str, keys: Sequence[str]) -> dict[str, int]:
        """Period of the best template of each of these failure keys that has one, nanoseconds.

        Contents are not read, so that one may prove to be damaged later.
        """
        by_hash = {sha256_hex(key.encode()): key for key in keys}
        hashes, t = list(by_hash), TEMPLATES.c
        found: dict[str, int] = {}
        for begin in range(0, len(hashes), _AT_ONCE):
            query = sa.select(t.key_sha256, sa.func.min(t.period_ns)).group_by(t.key_sha256)
            query = query.where(t.job_sha256 == job_sha256, t.key_sha256.in_(hashes[begin : begin + _AT_ONCE]))
            for key_sha256, period_ns in self._read(partial(_rows_of, query)):
                found[by_hash[key_sha256]] = int(period_ns)
        return found


def _rows_of(query: sa.Select[Any], connection: sa.Connection) -> list[Any]:
    return list(connection.execute(query).all())
