"""A real PostgreSQL server for tests: Debian's, in a folder of its own, reached over a socket in that folder only."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest

MISSING = "PostgreSQL's server is not installed: apt-get install postgresql"
_UNPRIVILEGED = "nobody"


def find_programs() -> Path | None:
    """Folder of the newest installed server's programs."""
    folders = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/postgres")]
    on_path = shutil.which("postgres")
    if on_path is not None:
        folders.append(Path(on_path).resolve().parent)
    return max(folders, key=lambda folder: [int(part) for part in folder.parts if part.isdigit()], default=None)


@dataclass
class PostgresServer:
    """A server that tests may stop and start; it refuses to run as root, so that one runs it as another user."""

    programs: Path
    folder: Path
    user: str | None
    process: subprocess.Popen[bytes] | None = None
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def initialise(self) -> None:
        """Make the data folder."""
        options = ("--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-sync")
        command = [self.programs / "initdb", "--pgdata", self.folder / "data", *options]
        subprocess.run(command, check=True, capture_output=True, **self._identity())

    def start(self) -> None:
        """Start the server and wait until it answers."""
        # What is written survives every end of the server that a test can bring about without reaching the disk.
        settings = ("listen_addresses=", f"unix_socket_directories={self.folder}", "fsync=off")
        options = [word for setting in settings for word in ("-c", setting)]
        command = [self.programs / "postgres", "-D", self.folder / "data", *options]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, **self._identity())
        for _ in range(600):
            try:
                psycopg.connect(self.url("postgres")).close()
            except psycopg.OperationalError:
                assert self.process.poll() is None, (self.folder / "log").read_text()
                time.sleep(0.05)
            else:
                return
        pytest.fail("PostgreSQL does not answer: " + (self.folder / "log").read_text())

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server: SIGINT ends sessions and closes, SIGQUIT leaves everything as a power cut does."""
        assert self.process is not None
        self.process.send_signal(how)
        self.process.wait(timeout=60)
        self.process = None

    def freeze(self) -> None:
        """Stop all of its processes where they are: connections stay open, and nothing answers."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Have its processes go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, how: signal.Signals) -> None:
        assert self.process is not None
        pid = self.process.pid
        os.kill(pid, how)
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(child), how)

    def url(self, database: str) -> str:
        """URL of a database."""
        return f"postgresql://postgres@/{database}?host={self.folder}"

    def make_database(self, options: str = "") -> str:
        """Make an empty database; its URL."""
        name = f"test{next(self.numbers)}"
        self.execute(f"CREATE DATABASE {name} {options}")
        return self.url(name)

    def version(self) -> int:
        """Major version of the server."""
        with psycopg.connect(self.url("postgres")) as connection:
            return connection.info.server_version // 10_000

    def execute(self, *statements: str, url: str | None = None) -> None:
        """Run statements, each for itself."""
        with psycopg.connect(url or self.url("postgres"), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def _identity(self) -> dict[str, object]:
        # Nothing of this process goes along: neither its working folder, which the user may not enter, nor its language.
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "TZ": "UTC"}
        return {"user": self.user, "cwd": self.folder, "env": environment, "stdin": subprocess.DEVNULL}


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One server for all tests; skips where none is installed."""
    programs = find_programs()
    if programs is None:
        pytest.skip(MISSING)
    folder = Path(tempfile.mkdtemp(prefix="replan-postgres-"))
    user = _UNPRIVILEGED if os.geteuid() == 0 else None
    if user is not None:
        os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
    server = PostgresServer(programs, folder, user)
    try:
        server.initialise()
        server.start()
        yield server
    finally:
        if server.process is not None:
            server.stop(signal.SIGQUIT)
        shutil.rmtree(folder)


@pytest.fixture
def postgres(postgres_server: PostgresServer) -> str:
    """URL of an empty database."""
    return postgres_server.make_database()
