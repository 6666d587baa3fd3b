"""A full disk: told as such, nothing half-written, and all is well once there is room."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from api.errors import StoreFullError
from api.store import Store
from tests.api.store.backends import JOB_SHA256, append, put_template, register
from tests.postgres import PostgresServer

SIZE = 24 * 2**20


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of 24 MiB; skips where this user may not mount one."""
    folder = Path(tempfile.mkdtemp())
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=755", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        folder.rmdir()
        pytest.skip("a small file system can only be mounted by root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        folder.rmdir()


@pytest.fixture(params=["sqlite", "postgresql"])
def small_url(request: pytest.FixtureRequest, small_disk: Path) -> Iterator[str]:
    """A database on the small file system."""
    if request.param == "sqlite":
        yield str(small_disk / "replan.db")
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    if server.user is not None:
        os.chown(small_disk, pwd.getpwnam(server.user).pw_uid, -1)
    server.execute(f"CREATE TABLESPACE small LOCATION '{small_disk}'")
    url = server.make_database("TABLESPACE small")
    yield url
    server.execute(f"DROP DATABASE {url.partition('?')[0].rpartition('/')[2]} WITH (FORCE)", "DROP TABLESPACE small")


def fill(folder: Path, *, leave: int) -> Path:
    """Fill a file system with a file, up to ``leave`` bytes."""
    path = folder / "ballast"
    with path.open("wb") as file:
        file.truncate(0)
        room = shutil.disk_usage(folder).free - leave
        with suppress(OSError):
            file.write(b"x" * room)
    return path


def test_a_full_disk(small_url: str, small_disk: Path) -> None:
    """What does not fit is refused whole; what was acknowledged stays; with room again all goes on."""
    store = Store(small_url)
    register(store)
    append(store, 0)
    ballast = fill(small_disk, leave=2 * 2**20)
    stored = 0
    with pytest.raises(StoreFullError) as refusal:
        for stored in range(1000):
            put_template(store, os.urandom(100_000), failure_key=str(stored))
    assert refusal.value.hint is not None
    assert "secret" not in refusal.value.message
    assert len(store.template_keys(JOB_SHA256)) == stored < 100
    base = 1
    with pytest.raises(StoreFullError):
        for base in range(1, 100):
            append(store, base, state=os.urandom(200_000))
    assert [record.epoch for record in store.epochs_after("job", 0)] == list(range(1, base + 1))
    ballast.unlink()
    assert append(store, base).record.epoch == base + 1
    assert put_template(store, os.urandom(100_000), failure_key="again")[1]
    store.close()
    again = Store(small_url)
    assert len(again.template_keys(JOB_SHA256)) == stored + 1
    again.close()
