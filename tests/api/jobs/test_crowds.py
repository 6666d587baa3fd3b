"""Many at once in one event loop: reads that are shared, acknowledgements that are written together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from api.jobs.acknowledging import Acknowledger
from api.jobs.current import CurrentEpochs
from api.jobs.epoch_body import EpochBody
from api.jobs.loaded import JobCache
from api.store import EpochRecord, NewEpoch, Store
from planner.errors import NotFoundError
from planner.failure_state import FailureState
from planner.formats.failure_state_file import dump_state
from planner.plan_content import canonical_json
from tests.jobs import DOCUMENT


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store with a job of one epoch."""
    opened = Store(str(tmp_path / "s.db"))
    opened.put_job("job", b"{}", "0" * 64, 1, None)
    append(opened, 0)
    yield opened
    opened.close()


TOPOLOGY = {"nodes": "n[0000-3999]", "gpus_per_node": 1}
LAYOUT = {"pipeline_parallel": 4, "data_parallel": 1000, "rank_order": "pp-dp"}


def number_of(number: int, created_at: datetime) -> bytes:
    """A body that nobody reads."""
    assert created_at.tzinfo is UTC
    return b"%d" % number


def body_of(changes: dict[str, object]) -> Callable[[int, datetime], bytes]:
    """Makes the body of an epoch without a plan."""
    empty: dict[str, object] = {
        name: [] for name in ("failed_workers", "dropped", "ladder", "migrations", "moved", "new_pairs")
    }
    nothing = dict.fromkeys(("plan", "problem", "source", "chosen", "from_iteration"))
    failures = {"nodes": "", "ranks": [], "workers": [], "degraded": {}}
    known = {"job": "wide", "revision": 1, "cause": "event", "failures": failures, "num_new_pairs": 0}

    def body(number: int, created_at: datetime) -> bytes:
        numbered = {"epoch": number, "created_at": str(created_at), "shards_restored": False}
        return EpochBody.model_validate(empty | nothing | known | numbered | changes).to_bytes()

    return body


def append(
    store: Store, base: int, job_id: str = "job", body: Callable[[int, datetime], bytes] = number_of
) -> EpochRecord:
    """The next epoch."""
    new = NewEpoch(
        job_id=job_id,
        base_epoch=base,
        revision=1,
        cause="event",
        state=dump_state(FailureState()),
        failure_key=None,
        template_sha256=None,
        body=body,
    )
    return store.append(new).record


class Counting(Store):
    """A store that counts how often epochs are read and acknowledgements are written."""

    reads = writes = looks = 0

    def epoch(self, job_id: str, n: int) -> EpochRecord:
        """Read one."""
        self.looks += 1
        return super().epoch(job_id, n)

    def current_epoch(self, job_id: str) -> EpochRecord | None:
        """Read it."""
        self.reads += 1
        return super().current_epoch(job_id)

    def acknowledge_all(self, job_id: str, epoch: int, iterations: dict[str, int | None]) -> None:  # type: ignore[override]
        """Write them."""
        self.writes += 1
        super().acknowledge_all(job_id, epoch, iterations)


async def never(_job_id: str) -> EpochRecord:
    """Nothing is damaged."""
    raise AssertionError


def test_a_crowd_shares_reads_and_nobody_gets_an_old_epoch(store: Store, tmp_path: Path) -> None:
    """A thousand readers cost a few reads, and whoever asks after an epoch was appended gets that epoch or a later one."""
    counting = Counting(str(tmp_path / "s.db"))
    current = CurrentEpochs(counting, mend=never)

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
    """A thousand acknowledgements are written in a few batches after one look at the epoch; an unknown one is told to all."""
    counting = Counting(str(tmp_path / "s.db"))
    document = canonical_json(DOCUMENT | {"topology": TOPOLOGY, "layout": LAYOUT})
    store.put_job("wide", document, "0" * 64, 1, None)
    append(store, 0, "wide", body_of({"failed_workers": ["7/0"]}))
    acknowledger = Acknowledger(counting, JobCache())

    async def crowd(epoch: int) -> None:
        names = (f"{k}/0" for k in range(1000) if k != 7)
        await asyncio.gather(*(acknowledger.add("wide", epoch, name, 3) for name in names))

    asyncio.run(crowd(1))
    asyncio.run(crowd(1))
    assert counting.writes <= 6
    assert counting.looks == 1
    assert {record.worker for record in store.acknowledgements("wide", 1)} == {f"{k}/0" for k in range(1000)} - {"7/0"}
    with pytest.raises(NotFoundError, match="no live worker '7/0'"):
        asyncio.run(acknowledger.add("wide", 1, "7/0", 3))
    with pytest.raises(NotFoundError, match="no epoch 9"):
        asyncio.run(crowd(9))
    store.delete_job("wide")
    with pytest.raises(NotFoundError, match="no epoch 1"):
        asyncio.run(crowd(1))
    counting.close()
