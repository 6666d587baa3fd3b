"""What the store still knows of epochs whose rows are damaged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.errors import CorruptStoreError
from api.store import DamagedEpoch, EpochRecord, Report, Store
from planner.errors import NotFoundError
from tests.api.store.backends import Backend, SqliteBackend, append, register


@pytest.fixture
def job(store: Store) -> Iterator[Store]:
    """A store with a job of five epochs: a registration, an event, an improvement and two events."""
    register(store)
    append(store, 0)
    append(store, 1, event=b'{"n":2}')
    append(store, 2, cause="improved")
    append(store, 3, event=b'{"n":4}', idempotency_key="k", request_sha256="r")
    append(store, 4, event=b'{"n":5}')
    yield store


def damage(backend: Backend, *epochs: int) -> None:
    """Change the bodies of epochs."""
    for epoch in epochs:
        backend.query("UPDATE epochs SET body = ? WHERE epoch = ?", b"{}", epoch)


def test_damaged_epochs_are_marked_in_lists(job: Store, backend: Backend) -> None:
    """A page shows a marker in the place of a damaged epoch, and the sound ones as they are."""
    assert job.epochs_behind("job", 0) == job.epochs_after("job", 0)
    damage(backend, 2, 4)
    found = job.epochs_behind("job", 0)
    assert [entry.epoch for entry in found] == [1, 2, 3, 4, 5]
    assert [entry.epoch for entry in found if isinstance(entry, DamagedEpoch)] == [2, 4]
    assert json.loads(found[1].body) == {"job": "job", "epoch": 2, "damaged": True}
    assert [entry.epoch for entry in job.epochs_behind("job", 1, limit=2)] == [2, 3]
    with pytest.raises(NotFoundError):
        job.epochs_behind("nothing", 0)


def test_the_newest_sound_epoch_is_found(job: Store, backend: Backend) -> None:
    """Damaged ones are passed over; where all are damaged there is none."""
    for damaged, expected in (((5,), 4), ((4,), 3), ((2, 3), 1), ((1,), None)):
        damage(backend, *damaged)
        found = job.newest_sound_epoch("job")
        assert (found.epoch if isinstance(found, EpochRecord) else None) == expected


def test_reports_behind_an_epoch(job: Store, backend: Backend) -> None:
    """The events come in order, improvements have none, and one that is damaged or gone is told as such."""
    assert job.reports_behind("job", 1) == (
        Report(epoch=2, event=b'{"n":2}'),
        Report(epoch=4, event=b'{"n":4}'),
        Report(epoch=5, event=b'{"n":5}'),
    )
    backend.query("UPDATE events SET event = ? WHERE epoch = 4", b'{"n":7}')
    backend.query("DELETE FROM events WHERE epoch = 5")
    assert job.reports_behind("job", 2) == (Report(epoch=4, event=None), Report(epoch=5, event=None))


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE epochs SET body = CAST(body AS TEXT) WHERE epoch = 5",
        "UPDATE epochs SET cause = CAST(x'80ff' AS TEXT) WHERE epoch = 5",
        "UPDATE epochs SET created_at = 'x' WHERE epoch = 5",
        "UPDATE epochs SET revision = 'x' WHERE epoch = 5",
        "UPDATE epochs SET epoch = x'35' WHERE epoch = 5",
        "UPDATE epochs SET epoch = 4101 WHERE epoch = 5",
        "UPDATE jobs SET current_epoch = 4101",
        "UPDATE jobs SET current_epoch = 4",
        "UPDATE jobs SET current_epoch = 0",
        "UPDATE jobs SET current_epoch = 'x', last_epoch = 'x'",
    ],
)
def test_a_current_epoch_of_another_type_is_damaged(tmp_path: Path, statement: str) -> None:
    """Damage to a value, its type or the epoch's number is told, in plain letters; the next epoch is behind all others."""
    backend = SqliteBackend(tmp_path / "replan.db")
    store = Store(backend.url)
    try:
        register(store)
        for base in range(5):
            append(store, base)
        backend.query(statement)
        with pytest.raises(CorruptStoreError) as caught:
            store.current_epoch("job")
        assert str(caught.value).isprintable()
        newest = store.newest_sound_epoch("job")
        assert newest is not None
        assert newest.epoch >= 4
        append(store, store.job("job").current_epoch, cause="recovered")
        found = store.current_epoch("job")
        assert found is not None
        assert (found.cause, found.epoch) == (
            "recovered",
            max(record.epoch for record in store.epochs_behind("job", 0)),
        )
    finally:
        store.close()
