"""The probe that containers run."""

from __future__ import annotations

import http.server
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from api.probe import probe


class Handler(http.server.BaseHTTPRequestHandler):
    """Well at one path, not at others."""

    def do_GET(self) -> None:
        """Answer."""
        self.send_response(200 if self.path == "/readyz" else 503)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def port() -> Iterator[int]:
    """Port of a server."""
    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_only_status_200_is_well(port: int) -> None:
    """Another status, a closed port and a port that is none are not; a proxy in the environment is not asked."""
    environment = {"REPLAN_PORT": str(port), "http_proxy": "http://127.0.0.1:1"}
    assert probe("/readyz", environment)
    assert not probe("/healthz", environment)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        assert not probe("/readyz", {"REPLAN_PORT": str(closed.getsockname()[1])})
    assert not probe("/readyz", {"REPLAN_PORT": "tcp://10.0.0.1"})


@pytest.mark.parametrize(("path", "status"), [("/readyz", 0), ("/healthz", 1)])
def test_the_exit_status_says_it(port: int, path: str, status: int) -> None:
    """As a command it ends with 0 or 1 and prints nothing."""
    command = [sys.executable, "-P", "-m", "api.probe", path]
    done = subprocess.run(command, env={"REPLAN_PORT": str(port)}, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (status, b"", b"")
