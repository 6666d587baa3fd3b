"""Times of messages and all-reduces between real processes."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch, the extra of replan-client, is not installed")

from replan_client.torch.emulation_processes import run_processes  # noqa: E402
from replan_client.torch.profiler_links import measure_links  # noqa: E402

SMALL, LARGE = 1000, 2**25


def measure(number: int, store: Any, argument: Any) -> Any:
    """What one of three processes measures."""
    times = measure_links(
        store, number, 3, transfer_bytes=[LARGE, SMALL, SMALL], all_reduce_bytes=[SMALL, LARGE], repeats=3, warm_up=1
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
