"""What tests do to the database under a store, behind the store's back."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import psycopg

from api.store import Appended, NewEpoch, Reported, Store, TemplateRecord
from tests.postgres import PostgresServer

ROOT = Path(__file__).parents[3]
JOB_SHA256 = "a" * 64
KEY = "0,0,1,0"


class Backend(Protocol):
    """A database that a store can be opened in."""

    url: str

    def query(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run one statement, with ``?`` for each value, and keep what it changed."""


@dataclass
class SqliteBackend:
    """An SQLite file."""

    path: Path

    @property
    def url(self) -> str:
        """URL of the file."""
        return f"sqlite:///{self.path}"

    def query(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run one statement."""
        with closing(sqlite3.connect(self.path)) as connection:
            rows = connection.execute(statement, values).fetchall()
            connection.commit()
        return rows


@dataclass
class PostgresBackend:
    """A PostgreSQL database."""

    server: PostgresServer
    url: str

    def query(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run one statement."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement.replace("?", "%s").encode(), values)
            return cursor.fetchall() if cursor.description else []


def register(store: Store, job_id: str = "job") -> None:
    """Register a job that has no epoch yet."""
    store.put_job(job_id, b'{"name":"job"}', JOB_SHA256, 1, "all")


def put_template(store: Store, content: bytes = b"packed plan", **changes: Any) -> tuple[TemplateRecord, bool]:
    """Store a template with a period of 100 ns and a bound of 90 ns."""
    values: dict[str, Any] = {
        "job_sha256": JOB_SHA256,
        "failure_key": KEY,
        "period_ns": 100,
        "bound_ns": 90,
        "solver": "list_scheduling",
        "deadline_s": 1.5,
    }
    return store.put_template(content=content, **values | changes)


def body(epoch: int, created_at: datetime) -> bytes:
    """An answer that names its epoch."""
    return f'{{"epoch":{epoch}}}'.encode()


def append(store: Store, base: int, job_id: str = "job", **changes: Any) -> Appended:
    """Append an epoch without a plan, computed from epoch ``base``."""
    values: dict[str, Any] = {
        "revision": 1,
        "cause": "event" if base else "registered",
        "state": b"{}",
        "failure_key": None,
        "template_sha256": None,
        "body": body,
    }
    values |= changes
    reported = {name: values.pop(name) for name in Reported.__slots__ if name in values}
    return store.append(NewEpoch(job_id=job_id, base_epoch=base, **values), Reported(**reported))


@contextmanager
def running_appender(url: str, name: str, *, count: int) -> Iterator[subprocess.Popen[str]]:
    """Run a process that appends ``count`` events to the job "job" and prints a line for each that is acknowledged."""
    command = [sys.executable, "-m", "tests.api.store.appender", url, name, str(count)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()
