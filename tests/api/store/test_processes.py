"""Several processes on one store: every event once, whoever dies and when."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Iterable

import pytest

from api.store import Store
from tests.api.store.backends import Backend, register, running_appender


def acknowledged(output: Iterable[str] | None) -> dict[str, int]:
    """Epoch of each event that a process printed a whole line for."""
    assert output is not None
    lines = [line.split() for line in output if line.endswith("\n")]
    return {words[0]: int(words[1]) for words in lines if len(words) == 2}


def wait_until_ready(process: subprocess.Popen[str]) -> None:
    """Wait for the first line of a process."""
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"


def check_history(store: Store, backend: Backend, told: dict[str, int]) -> None:
    """Epochs count up without a gap, no event led to two, and each that was acknowledged has the epoch it was told."""
    # One statement, one state: a server may still end what a killed process had sent.
    ((last, *epochs),) = backend.query(
        "SELECT (SELECT current_epoch FROM jobs WHERE job_id = 'job'), count(*), min(epoch), max(epoch) FROM epochs"
    )
    assert epochs == [last, 1, last]
    stored = backend.query("SELECT idempotency_key, epoch FROM events")
    assert last <= len(stored) == len(dict(stored)) <= store.job("job").current_epoch
    assert told.items() <= dict(stored).items()


def test_two_processes_at_once(store: Store, backend: Backend) -> None:
    """Two processes that append 60 events each make 120 epochs, none lost, none twice."""
    register(store)
    with running_appender(backend.url, "a", count=60) as one, running_appender(backend.url, "b", count=60) as other:
        wait_until_ready(one)
        wait_until_ready(other)
        told = acknowledged(one.stdout) | acknowledged(other.stdout)
        assert (one.wait(), other.wait()) == (0, 0)
    assert len(told) == 120
    assert sorted(told.values()) == list(range(1, 121))
    check_history(store, backend, told)


@pytest.mark.parametrize("kills", [3, pytest.param(60, marks=pytest.mark.slow)])
def test_killed_in_the_middle(store: Store, backend: Backend, kills: int) -> None:
    """A process that is killed at any moment has lost none of what it said, and its successor goes on."""
    register(store)
    moments = random.Random(7)
    told: dict[str, int] = {}
    for i in range(kills):
        with running_appender(backend.url, f"run{i}", count=10**6) as process:
            wait_until_ready(process)
            assert process.stdout is not None
            # From its first acknowledgement on there is something to lose, however slow the machine.
            told |= acknowledged([process.stdout.readline()])
            time.sleep(moments.uniform(0.0, 0.3))
            process.kill()
            told |= acknowledged(process.stdout)
        reopened = Store(backend.url)
        check_history(reopened, backend, told)
        reopened.close()
    assert told
