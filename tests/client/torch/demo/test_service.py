"""The service of the demonstration, and the process that ends it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from replan_client.client import Client
from replan_client.torch.demo.errors import DemoFailedError
from replan_client.torch.demo.service import Service

LIFELINE = [sys.executable, "-m", "replan_client.torch.demo.lifeline"]


def is_running(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until_gone(pid: int) -> None:
    """Wait until a process has ended; the test's own time limit ends a wait in vain."""
    while is_running(pid):
        time.sleep(0.02)


def test_it_serves_until_it_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a port of its own, whatever the environment says of another service."""
    monkeypatch.setenv("REPLAN_PORT", "1")
    monkeypatch.setenv("REPLAN_REQUIRE_KEYS", "true")
    command = [sys.executable, "-m", "cli.main", "serve"]
    with Service(command, tmp_path, log=tmp_path / "log") as service:
        with Client(service.wait_for_url(100)) as client, pytest.raises(Exception, match="no job"):
            client.current_epoch("none")
        assert service._process.poll() is None
    assert service._process.returncode == 0
    assert (tmp_path / "service.db").exists()


@pytest.mark.parametrize(
    "code", ["import sys; sys.exit('no disk')", "import sys, time; sys.stderr.write('no disk'); time.sleep(60)"]
)
def test_one_that_does_not_start_is_told(tmp_path: Path, code: str) -> None:
    """One that ends, and one that says no URL, with what it logged."""
    with Service([sys.executable, "-c", code], tmp_path, log=tmp_path / "log") as service:
        while "no disk" not in (tmp_path / "log").read_text():
            time.sleep(0.01)
        with pytest.raises(DemoFailedError, match="did not start: no disk"):
            service.wait_for_url(0.5)


def test_a_command_ends_with_the_input(tmp_path: Path) -> None:
    """Whoever held it is gone, and asked for nothing."""
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([*LIFELINE, sys.executable, "-c", code], text=True, **pipes) as process:
        assert process.stdin is not None and process.stdout is not None
        pid = int(process.stdout.readline())
        assert is_running(pid)
        process.stdin.close()
        wait_until_gone(pid)
        # Ended by SIGTERM.
        assert process.wait(30) != 0


@pytest.mark.slow
def test_a_command_that_does_not_heed_sigterm_is_killed() -> None:
    """After some seconds."""
    code = "import os, signal, time; signal.signal(15, signal.SIG_IGN); print(os.getpid(), flush=True); time.sleep(600)"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([*LIFELINE, sys.executable, "-c", code], text=True, **pipes) as process:
        assert process.stdin is not None and process.stdout is not None
        pid = int(process.stdout.readline())
        process.stdin.close()
        wait_until_gone(pid)


def test_the_status_is_the_commands_own() -> None:
    """Where it ends by itself, with its input open."""
    with subprocess.Popen([*LIFELINE, sys.executable, "-c", "raise SystemExit(7)"], stdin=subprocess.PIPE) as process:
        assert process.wait(60) == 7
