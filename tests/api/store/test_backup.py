"""The commands of the operations page that back a store up and restore it."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from api.store import Store
from tests.postgres import PostgresServer


def add_keys(store: Store, names: list[str]) -> None:
    """Store a key of each name."""
    for name in names:
        store.add_key(key_id=name, name=name, scopes=("read",), digest=name * 2)


def names_in(url: str) -> list[str]:
    """Names of the keys in a store."""
    store = Store(url)
    try:
        return [record.name for record in store.list_keys()]
    finally:
        store.close()


@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="the sqlite3 command is not installed")
def test_a_copy_of_an_sqlite_store_in_use_is_whole(tmp_path: Path) -> None:
    """A copy made while a server writes opens, and holds a beginning of what was written with nothing missing in it."""
    store = Store(str(tmp_path / "replan.db"))
    add_keys(store, ["before"])
    names = [f"key{number:04}" for number in range(300)]
    writing = threading.Thread(target=add_keys, args=(store, names))
    writing.start()
    command = ["sqlite3", tmp_path / "replan.db", ".timeout 10000", f".backup {tmp_path / 'copy.db'}"]
    subprocess.run(command, check=True)
    writing.join()
    store.close()
    copied = names_in(str(tmp_path / "copy.db"))
    assert copied == ["before", *names][: len(copied)]
    assert copied


def test_a_dump_of_postgresql_restores(postgres_server: PostgresServer, tmp_path: Path) -> None:
    """What pg_dump wrote, pg_restore brings back into an empty database, which is a store again."""
    source, target = postgres_server.make_database(), postgres_server.make_database()
    store = Store(source)
    add_keys(store, ["first", "second"])
    store.close()
    environment = {"PATH": os.environ["PATH"]}
    dump = postgres_server.programs / "pg_dump"
    restore = postgres_server.programs / "pg_restore"
    if not (dump.exists() and restore.exists()):
        pytest.skip("PostgreSQL's client programs are not installed")
    file = tmp_path / "replan.dump"
    subprocess.run([dump, "--format=custom", f"--file={file}", source], check=True, env=environment)
    subprocess.run([restore, f"--dbname={target}", file], check=True, env=environment)
    assert names_in(target) == ["first", "second"]
