"""Run a real ``replan serve`` for a test."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import httpx2
import pytest

REPLAN = str(Path(sys.executable).with_name("replan"))


@dataclass
class Server:
    """A running server, a client of it, and its store."""

    process: subprocess.Popen[str]
    client: httpx2.Client
    store: str

    def post(self, job: object, *fail: str) -> httpx2.Response:
        """Ask for a plan of a job document with these failures."""
        return self.client.post("/v1/plans", json={"job": job, "failures": {"fail": fail}})

    def children(self) -> list[int]:
        """Process ids of the server's children."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        if not path.exists():
            pytest.skip("the kernel does not list a process's children")
        return [int(pid) for pid in path.read_text().split()]


@contextmanager
def serving(
    store: Path | str,
    *options: str,
    ready: bool = True,
    environment: Mapping[str, str] | None = None,
    log: IO[str] | None = None,
) -> Iterator[Server]:
    """Run a server on a free port, with settings from options or the environment; ``log`` takes its standard error."""
    command = [REPLAN, "serve", "--port", "0", "--store", str(store), "--json", "--log-level", "error", *options]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("REPLAN_")}
    variables = inherited | dict(environment or {})
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=variables, text=True) as process:
        try:
            assert process.stdout is not None
            # The object is printed over several lines: the URL is read as soon as it is there.
            url = next(match[1] for line in process.stdout if (match := re.search(r'"url": "([^"]+)"', line)))
            with httpx2.Client(base_url=url, timeout=120) as client:
                while ready and client.get("/readyz").status_code != 200:
                    time.sleep(0.05)
                yield Server(process, client, str(store))
        finally:
            process.kill()
