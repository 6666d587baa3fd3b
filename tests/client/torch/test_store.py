"""The command that hosts a job's store."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="torch, the extra of replan-client, is not installed")

from replan_client.torch.store import main  # noqa: E402


def test_it_holds_what_others_write_until_it_is_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    """On a free port that it prints; a second one cannot have it."""
    command = [sys.executable, "-m", "replan_client.torch.store", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            words = process.stdout.readline().split()
            assert words[:-1] == ["store", "on", "port"]
            first, second = (torch.distributed.TCPStore("127.0.0.1", int(words[-1]), is_master=False) for _ in range(2))
            first.set("key", "value")
            del first
            assert second.get("key") == b"value"
            assert main(["--port", words[-1]]) == 2
            assert f"cannot listen on port {words[-1]}" in capsys.readouterr().err
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()


def test_a_port_has_to_be_one(capsys: pytest.CaptureFixture[str]) -> None:
    """Refused before anything is begun."""
    with pytest.raises(SystemExit) as stopped:
        main(["--port", "65536"])
    assert stopped.value.code == 2
    assert "expected 0 to 65535" in capsys.readouterr().err
