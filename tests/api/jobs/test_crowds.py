"""Many at once in one event loop: reads that are shared, acknowledgements that are written together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from api.jobs.acknowledging import Acknowledger
from api.jobs.current import CurrentEpochs
from api.store import EpochRecord, Store
from planner.errors import NotFoundError


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store with a job of one epoch."""
    opened = Store(str(tmp_path / "s.db"))
    opened.put_job("job", b"{}", "0" * 64, 1, None)
    append(opened, 0)
    yield opened
    opened.close()


def append(store: Store, base: int) -> EpochRecord:
    """The next epoch."""

    def body(number: int, created_at: datetime) -> bytes:
        assert created_at.tzinfo is UTC
        return b"%d" % number

    return store.append(
        "job",
        base_epoch=base,
        revision=1,
        cause="event",
        state=b"",
        failure_key=None,
        template_sha256=None,
        body=body,
    ).record


class Counting(Store):
    """A store that counts how often the current epoch is read and acknowledgements are written."""

    reads = writes = 0

    def current_epoch(self, job_id: str) -> EpochRecord | None:
        """Read it."""
        self.reads += 1
        return super().current_epoch(job_id)

    def acknowledge_all(self, job_id: str, epoch: int, iterations: dict[str, int | None]) -> None:  # type: ignore[override]
        """Write them."""
        self.writes += 1
        super().acknowledge_all(job_id, epoch, iterations)


def test_a_crowd_shares_reads_and_nobody_gets_an_old_epoch(store: Store, tmp_path: Path) -> None:
    """A thousand readers cost a few reads, and whoever asks after an epoch was appended gets that epoch or a later one."""
    counting = Counting(str(tmp_path / "s.db"))
    current = CurrentEpochs(counting)

    async def read(least: int) -> bool:
        record = await current.read("job")
        return record is not None and record.epoch >= least

    async def crowd() -> list[bool]:
        readers = [asyncio.create_task(read(1)) for _ in range(500)]
        await asyncio.sleep(0)
        append(store, 1)
        readers += [asyncio.create_task(read(2)) for _ in range(500)]
        return await asyncio.gather(*readers)

    assert all(asyncio.run(crowd()))
    assert counting.reads <= 3
    with pytest.raises(NotFoundError):
        asyncio.run(current.read("nobody"))
    counting.close()


def test_a_crowd_acknowledges_in_few_transactions(store: Store, tmp_path: Path) -> None:
    """A thousand acknowledgements are written in a few batches, each worker's own, and an unknown epoch is told to all."""
    counting = Counting(str(tmp_path / "s.db"))
    acknowledger = Acknowledger(counting)

    async def crowd(epoch: int) -> None:
        await asyncio.gather(*(acknowledger.add("job", epoch, f"{k}/0", k) for k in range(1000)))

    asyncio.run(crowd(1))
    assert counting.writes <= 3
    assert {record.worker: record.iteration for record in store.acknowledgements("job", 1)} == {
        f"{k}/0": k for k in range(1000)
    }
    with pytest.raises(NotFoundError):
        asyncio.run(crowd(9))
    counting.close()
