"""Several processes of this machine with one store."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from replan_client.torch.emulation_processes import run_processes
from replan_client.torch.profiler_errors import EmulationError

from tests.client.torch.processes import processes


@pytest.fixture(scope="module", autouse=True)
def _server() -> Iterator[None]:
    """The fork server that all tests share, which has imported what is slow to import."""
    with processes():
        yield


def tell_others(number: int, store: Any, argument: Any) -> Any:
    """Tell the store something, and read what the other one told."""
    store.set(f"from {number}", str(argument["say"]))
    return [store.get(f"from {1 - number}").decode(), os.getpid()]


def fail_second(number: int, store: Any, argument: Any) -> Any:
    """Wait in vain for another process, which fails."""
    if number == 1:
        raise RuntimeError("the second one is broken")
    return store.get("never").decode()


def die_second(number: int, store: Any, argument: Any) -> Any:
    """Wait in vain for another process, which dies."""
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return store.get("never").decode()


def wait_in_vain(number: int, store: Any, argument: Any) -> Any:
    """Wait for what nobody says."""
    return store.get("never").decode()


def test_processes_find_each_other_and_are_gone_afterwards() -> None:
    """Results come in the order of the arguments, from processes of their own that the call does not leave behind."""
    (first, one), (second, two) = run_processes(tell_others, [{"say": "a"}, {"say": "b"}], timeout_s=60)
    assert (first, second) == ("b", "a")
    assert len({one, two, os.getpid()}) == 3
    assert multiprocessing.active_children() == []
    for pid in (one, two):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize(
    ("body", "timeout_s", "expected"),
    [
        (fail_second, 60, "process 1 failed.*the second one is broken"),
        (die_second, 60, "process 1 died"),
        (wait_in_vain, 0.5, r"processes \[0, 1\] have no result in time"),
    ],
)
def test_what_goes_wrong_is_told_at_once(body: Any, timeout_s: float, expected: str) -> None:
    """By the process that it went wrong in, although the other one would wait for a minute; nothing is left behind."""
    with pytest.raises(EmulationError, match=f"(?s){expected}"):
        run_processes(body, [None, None], timeout_s=timeout_s)
    assert multiprocessing.active_children() == []
