"""Links under way that are given up, and processes that end meanwhile."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

torch = pytest.importorskip("torch", reason="torch, the extra of replan-client, is not installed")

from replan_client.torch.abandonable import AbandonableStore  # noqa: E402
from torch.distributed import DistStoreError, TCPStore  # noqa: E402

LONG_S = 600.0
"""Seconds that no test waits for: what is awaited comes long before."""

_ENDING = """
import sys
import torch
from replan_client.operation import Worker
from replan_client.torch.linking import Linking

port, timeout_s, abandons = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3] == "abandon"
linking = Linking(
    torch.distributed.TCPStore("127.0.0.1", port, is_master=False),
    [Worker(0, 0), Worker(1, 0)],
    Worker(0, 0),
    backend="gloo",
    device=torch.device("cpu"),
    timeout_s=timeout_s,
    pause_s=0.02,
)
assert not linking.is_done(0.2)
if abandons:
    linking.abandon()
sys.exit(3)
"""


@pytest.fixture
def hosted() -> Iterator[TCPStore]:
    """A store that others can connect to."""
    yield TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


@pytest.mark.parametrize(("timeout_s", "how"), [(LONG_S, "abandon"), (1.0, "leave")])
def test_a_process_ends_with_its_own_status_while_links_are_under_way(
    hosted: TCPStore, timeout_s: float, how: str
) -> None:
    """At once where they were given up, else at their time-out: an abort by torch would look like a crash."""
    command = [sys.executable, "-c", _ENDING, str(hosted.port), str(timeout_s), how]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stderr) == (3, "")


def test_waits_end_with_the_key_or_the_time_limit(hosted: TCPStore) -> None:
    """What another sets is found, and what nobody sets is missed."""
    store = AbandonableStore(hosted.clone(), pause_s=0.01)
    setting = threading.Timer(0.1, hosted.set, ("late", "1"))
    setting.start()
    assert store.get("late") == b"1"
    setting.join()
    store.set("own", "2")
    store.wait(["late", "own"], timedelta(seconds=LONG_S))
    with pytest.raises(DistStoreError, match=r"in vain for late, never for 0\.05 s"):
        store.wait(["late", "never"], timedelta(seconds=0.05))


def test_waits_under_way_and_later_ones_end_when_given_up(hosted: TCPStore) -> None:
    """Another thread gives up what this one waits for."""
    store = AbandonableStore(hosted.clone(), pause_s=LONG_S)
    giving_up = threading.Timer(0.1, store.abandon)
    giving_up.start()
    for _ in range(2):
        with pytest.raises(DistStoreError, match="given up while waiting for never"):
            store.wait(["never"], timedelta(seconds=LONG_S))
    giving_up.join()
