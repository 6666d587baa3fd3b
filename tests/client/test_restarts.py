"""A service that is killed in the middle of streams and requests and started again: clients go on, and nothing is done twice."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from replan_client.client import Client
from replan_client.epochs import Epoch
from replan_client.errors import AccessError, ClientError
from replan_client.jobs import Event
from replan_client.watching import EpochWatcher

from tests.client.clients import KINDS, connected
from tests.jobs import DOCUMENT
from tests.serving import REPLAN, Server, serving

LONG_S = 120.0
FEW = 3


@dataclass
class Monitor:
    """Reports that a node failed and recovered, in turn and without a pause, from a thread; each once."""

    kind: str
    url: str
    key: str
    job_id: str
    epochs: list[Epoch] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    is_over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Report until it is over."""
        try:
            with connected(self.kind, self.url, api_key=self.key) as client:
                while not self.is_over.is_set():
                    kind = "node_recovered" if len(self.epochs) % 2 else "node_failed"
                    self.epochs.append(client.report(self.job_id, Event(kind=kind, nodes=("n06",))))
        except ClientError as error:
            self.errors.append(error)

    def wait_for_more(self) -> None:
        """Wait for a few more reports; the test's own limit ends a wait in vain."""
        expected = len(self.epochs) + FEW
        while len(self.epochs) < expected and not self.errors:
            time.sleep(0.01)


def make_key(store: Path, scope: str) -> str:
    """A new API key of a store."""
    command = [REPLAN, "keys", "create", "--store", str(store), "--name", scope, "--scope", scope]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return next(line for line in done.stdout.splitlines() if line.startswith("rpk_"))


@contextmanager
def serving_with_keys(store: Path, port: int) -> Iterator[Server]:
    """A service on a port of its own that wants keys."""
    with serving(store, "--port", str(port), environment={"REPLAN_REQUIRE_KEYS": "true"}) as server:
        yield server


def test_clients_go_on_through_a_killed_service(tmp_path: Path) -> None:
    """A watcher's stream, a long poll and reports of both kinds of client are under way when it is killed.

    Every report makes one epoch, also those whose first answer was lost; the watcher and the long poll come to the newest
    epoch; programs are the same afterwards.
    """
    store = tmp_path / "replan.db"
    key, worker_key = make_key(store, "admin"), make_key(store, "read")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    monitors = [Monitor(kind, url, key, f"job-{kind}") for kind in KINDS]
    threads = [threading.Thread(target=monitor.run, daemon=True) for monitor in monitors]
    polled: list[Epoch | None] = []
    with Client(url, api_key=key) as client, Client(url, api_key=worker_key) as worker:

        def poll() -> None:
            with Client(url, api_key=worker_key) as waiting:
                polled.append(waiting.current_epoch("quiet", after=1, wait_s=LONG_S))

        with serving_with_keys(store, port) as server:
            for job_id in ("quiet", *(monitor.job_id for monitor in monitors)):
                client.register_job(job_id, DOCUMENT)
            before = worker.program("quiet", 1, "0/2")
            with pytest.raises(AccessError) as refused:
                worker.report("quiet", Event(kind="node_failed", nodes=("n06",)))
            assert refused.value.code == "scope_too_small"
            with Client(url) as stranger, pytest.raises(AccessError) as unknown:
                stranger.current_epoch("quiet")
            assert unknown.value.code == "key_missing"
            watchers = [EpochWatcher(worker, monitor.job_id) for monitor in monitors]
            threads.append(threading.Thread(target=poll, daemon=True))
            for thread in threads:
                thread.start()
            for monitor, watcher in zip(monitors, watchers, strict=True):
                monitor.wait_for_more()
                assert watcher.wait_newer(1, LONG_S) is not None
            server.process.kill()
            server.process.wait()
        try:
            with serving_with_keys(store, port):
                for monitor, thread in zip(monitors, threads, strict=False):
                    monitor.wait_for_more()
                    monitor.is_over.set()
                    thread.join(LONG_S)
                for monitor, watcher in zip(monitors, watchers, strict=True):
                    assert monitor.errors == []
                    # The first epoch came with the registration, and every report made the next one.
                    assert [epoch.epoch for epoch in monitor.epochs] == list(range(2, len(monitor.epochs) + 2))
                    newest = watcher.wait_newer(len(monitor.epochs), LONG_S)
                    assert newest == monitor.epochs[-1] == client.current_epoch(monitor.job_id)
                assert worker.program("quiet", 1, "0/2") == before
                assert polled == []
                expected = client.report("quiet", Event(kind="node_failed", nodes=("n06",)))
                threads[-1].join(LONG_S)
                assert polled == [expected]
        finally:
            for watcher in watchers:
                watcher.close()
