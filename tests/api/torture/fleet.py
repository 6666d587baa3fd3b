"""Server processes that are killed and started again on one store while clients go on."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cli.errors import ExitCode
from tests.serving import REPLAN

SETTINGS = {
    # What a dead server left is taken up before the next kill.
    "REPLAN_OPERATION_LEASE_S": "2",
    "REPLAN_READ_RATE": "0",
    "REPLAN_CHANGE_RATE": "0",
}

MAX_REFUSALS = 10


@dataclass(slots=True)
class Replica:
    """One server process; each start listens on another port, ``url`` is ``None`` while it does not listen."""

    store: str
    log: Path
    url: str | None = None
    process: subprocess.Popen[str] | None = None
    num_starts: int = 0
    num_refusals: int = 0
    """Starts in a row that ended since the database was away."""

    def start(self) -> None:
        """Start it; returns at once."""
        command = [REPLAN, "serve", "--port", "0", "--store", self.store, "--json", "--processes", "1"]
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("REPLAN_")}
        variables = inherited | SETTINGS | {"REPLAN_LOG_LEVEL": "error"}
        with self.log.open("a") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=variables, text=True)
        self.num_starts += 1
        threading.Thread(target=self._read, args=(self.process,), daemon=True).start()

    def wait_until_listening(self) -> str:
        """Wait until it answers; where. One that found no database is started again, as whatever supervises servers does."""
        while (url := self.url) is None:
            assert self.process is not None
            status = self.process.poll()
            if status == ExitCode.SERVICE and self.num_refusals < MAX_REFUSALS:
                self.num_refusals += 1
                time.sleep(0.5)
                self.start()
            else:
                assert status is None, self.log.read_text()
            time.sleep(0.01)
        self.num_refusals = 0
        return url

    def wait_until_ready(self) -> None:
        """Wait until its store answers and its solver process is warm; half a minute at most, since a database may be away."""
        url, until = self.wait_until_listening(), time.monotonic() + 30
        while time.monotonic() < until:
            try:
                with urllib.request.urlopen(f"{url}/readyz", timeout=10):
                    return
            except OSError:
                time.sleep(0.05)

    def kill(self) -> None:
        """Kill it in the middle of whatever it does."""
        process, self.process, self.url = self.process, None, None
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            match = re.search(r'"url": "([^"]+)"', line)
            if match is not None and self.process is process:
                self.url = match[1]
        process.stdout.close()


@dataclass(slots=True)
class Fleet:
    """Replicas on one store."""

    replicas: list[Replica]
    is_lost: bool = False
    """Set where a server cannot start any more, so that nobody waits for one."""

    @property
    def num_starts(self) -> int:
        """How often a server was started."""
        return sum(replica.num_starts for replica in self.replicas)

    def any_url(self, draw: random.Random) -> str | None:
        """Address of some replica that listens; ``None`` where none does."""
        urls = [url for replica in self.replicas if (url := replica.url) is not None]
        return draw.choice(urls) if urls else None


@contextmanager
def running_fleet(store: str, folder: Path, *, replicas: int) -> Iterator[Fleet]:
    """Run replicas on a store; at the end all are killed."""
    fleet = Fleet([Replica(store, folder / f"log{i}") for i in range(replicas)])
    try:
        for replica in fleet.replicas:
            replica.start()
        yield fleet
    finally:
        for replica in fleet.replicas:
            replica.kill()
