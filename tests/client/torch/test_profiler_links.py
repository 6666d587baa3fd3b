"""Times of messages and all-reduces between real processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from replan_client.torch.emulation_processes import run_processes
from replan_client.torch.profiler_errors import EmulationError
from replan_client.torch.profiler_links import measure_links, measure_local_links

from tests.client.torch.processes import processes

SMALL, LARGE = 1000, 2**25


@pytest.fixture(scope="module", autouse=True)
def _server() -> Iterator[None]:
    """The fork server that all tests share, which has imported what is slow to import."""
    with processes():
        yield


def measure(number: int, store: Any, argument: Any) -> Any:
    """What one of three processes measures."""
    times = measure_links(
        store, number, 3, transfer_bytes=[LARGE, SMALL, SMALL], all_reduce_bytes=[SMALL, LARGE], repeats=7, warm_up=1
    )
    return [list(times.transfer_us.items()), list(times.all_reduce_us.items())]


def test_large_messages_take_longer_than_small_ones() -> None:
    """Each size is measured once; the first process's times of messages are those of a whole round trip."""
    results = run_processes(measure, [None] * 3, timeout_s=120)
    for transfer, all_reduce in results:
        assert [size for size, _ in transfer] == [size for size, _ in all_reduce] == [SMALL, LARGE]
        # 32 MiB in three processes: copying them takes milliseconds, a message some tens of microseconds.
        assert all_reduce[1][1] > all_reduce[0][1] > 0
    assert results[0][0][1][1] > results[0][0][0][1] > 0


def test_processes_of_this_machine_measure_what_was_asked() -> None:
    """Each size once, whatever the order; one process has no link."""
    times = measure_local_links(2, transfer_bytes=[100, 0, 100], all_reduce_bytes=[10])
    assert (list(times.transfer_us), list(times.all_reduce_us)) == ([0, 100], [10])
    assert min(*times.transfer_us.values(), *times.all_reduce_us.values()) > 0
    with pytest.raises(EmulationError, match="between 1 processes"):
        measure_local_links(1, transfer_bytes=[100])
