"""The command that serves: where it listens, how it ends, and what it refuses."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_says_where_answers_and_ends(number: signal.Signals, tmp_path: Path) -> None:
    """The URL is printed first, health is served there, and being told to stop is success."""
    store = tmp_path / "plans.db"
    arguments = ["serve", "--port", "0", "--store", str(store), "--processes", "1", "--log-level", "error", "--json"]
    with subprocess.Popen(
        [sys.executable, "-m", "cli.main", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(5)]
        document = json.loads("".join(lines))
        assert document["store"] == str(store)
        with urllib.request.urlopen(f"{document['url']}/healthz", timeout=30) as answer:
            assert answer.status == 200
        process.send_signal(number)
        error = process.communicate(timeout=60)[1]
    assert (process.returncode, error) == (0, "")
    assert store.exists()


def test_serve_refuses_a_port_in_use(tmp_path: Path) -> None:
    """Status 7 with the address, before anything starts."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [sys.executable, "-m", "cli.main", "serve", "--port", port, "--store", str(tmp_path / "p.db"), "--json"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert done.returncode == 7
    assert done.stdout == ""
    assert json.loads(done.stderr)["code"] == "listen_failed"


def test_serve_refuses_a_store_that_is_no_store(tmp_path: Path) -> None:
    """Status 7 where the store cannot be opened."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "cli.main",
            "serve",
            "--port",
            "0",
            "--store",
            str(tmp_path / "none" / "p.db"),
            "--json",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 7
    assert json.loads(done.stderr)["code"] == "store_failed"
