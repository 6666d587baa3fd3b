"""A real Ray cluster on this machine, on loopback only and with token authentication."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest


@dataclass(frozen=True, slots=True, kw_only=True)
class RayCluster:
    """A running cluster: its address, what a client's environment needs, and the process that all of it belongs to."""

    address: str
    environment: Mapping[str, str]
    process: subprocess.Popen[bytes]

    def stop(self) -> None:
        """Kill the cluster and wait until it is gone; once is enough."""
        if self.process.poll() is None:
            for pid in self.members():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.wait()

    def members(self, name: bytes = b"") -> list[int]:
        """Process ids of all that belongs to the cluster and bears a name that begins so."""
        found = []
        for path in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if path.name.isdecimal() and os.getsid(int(path.name)) == self.process.pid:
                    command = (path / "cmdline").read_bytes()
                    found += [int(path.name)] if command.startswith(name) else []
        return found

    def solvers(self) -> list[int]:
        """Process ids of the actors that solve."""
        return self.members(b"ray::SolverActor")


@contextmanager
def ray_cluster(num_cpus: int = 2) -> Iterator[RayCluster]:
    """Start a cluster and stop it; skips the test where Ray is not installed."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'replan[ray]'")
    pytest.importorskip("grpc", reason="Ray's client is not installed: pip install 'replan[ray]'")
    # A short name, since sockets stand in this folder and their paths have a limit.
    with TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:
        yield from _running(Path(folder), num_cpus)


def _running(folder: Path, num_cpus: int) -> Iterator[RayCluster]:
    ports = iter(free_ports(3))
    client_port = next(ports)
    environment = os.environ | {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
        # Without this Ray takes the address of another interface for its node's.
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    }
    command = [
        str(Path(sys.executable).with_name("ray")),
        "start",
        "--head",
        "--block",
        "--node-ip-address=127.0.0.1",
        f"--port={next(ports)}",
        f"--ray-client-server-port={client_port}",
        f"--dashboard-agent-listen-port={next(ports)}",
        "--include-dashboard=false",
        f"--num-cpus={num_cpus}",
        "--object-store-memory=100000000",
        f"--temp-dir={folder}",
    ]
    log = (folder / "start.log").open("wb")
    with log, subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True) as process:
        cluster = RayCluster(address=f"ray://127.0.0.1:{client_port}", environment=environment, process=process)
        try:
            wait_for(client_port, process, Path(log.name))
            yield cluster
        finally:
            cluster.stop()


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()


def wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until somebody listens on a port of loopback; fails when the process ends first."""
    while process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    pytest.fail(f"the Ray cluster did not start: {log.read_text(errors='replace')[-2000:]}")
