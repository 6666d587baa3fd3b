"""Epochs in the store: each number once, each event once, nothing on a stale base."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest

from api.errors import CorruptStoreError, EpochConflictError, IdempotencyConflictError, StaleBaseError
from api.store import Store
from planner.errors import NotFoundError
from tests.api.store.backends import JOB_SHA256, KEY, Backend, append, put_template, register


@pytest.fixture
def job(store: Store) -> Store:
    """A store with the job "job", which has its first epoch."""
    register(store)
    append(store, 0)
    return store


def test_epochs_follow_each_other(store: Store) -> None:
    """A job has no epoch until the first is appended; then they count up, and each can be read."""
    register(store)
    assert store.current_epoch("job") is None
    first = append(store, 0, state=b"[]").record
    assert (first.epoch, first.cause, first.body, first.state) == (1, "registered", b'{"epoch":1}', b"[]")
    assert abs(first.created_at - datetime.now(UTC)) < timedelta(minutes=1)
    second = append(store, 1).record
    assert store.current_epoch("job") == second == store.epoch("job", 2)
    assert store.epochs_after("job", 0) == (first, second)
    assert store.epochs_after("job", 0, limit=1) == (first,)
    assert store.epochs_after("job", 2) == ()
    assert store.current_epochs() == {"job": 2}
    assert store.job("job").current_epoch == 2
    with pytest.raises(NotFoundError, match="no epoch 3"):
        store.epoch("job", 3)


def test_the_body_is_told_number_and_time(job: Store) -> None:
    """What clients are answered can name the epoch's number and time, which are stored beside it."""
    record = append(job, 1, body=lambda epoch, at: f"{epoch} {at.isoformat()}".encode()).record
    assert record.body == f"2 {record.created_at.isoformat()}".encode()
    assert job.epoch("job", 2) == record


def test_nothing_is_appended_to_a_stale_base(job: Store) -> None:
    """An epoch computed from an older or newer epoch, or with another revision, is refused and leaves no trace."""
    append(job, 1)
    for base in (1, 3):
        with pytest.raises(StaleBaseError, match=f"computed from epoch {base}"):
            append(job, base, idempotency_key="k", request_sha256="r")
    job.put_job("job", b"[]", JOB_SHA256, 1, "all")
    with pytest.raises(StaleBaseError, match="revision 2"):
        append(job, 2)
    assert job.find_event("job", "k") is None
    assert append(job, 2, revision=2).record.epoch == 3


def test_compare_and_set(job: Store) -> None:
    """An expected epoch that is not the current one is refused with the current one, whatever the base."""
    append(job, 1, expected_epoch=1)
    with pytest.raises(EpochConflictError, match="is at epoch 2; the request expected 1") as refusal:
        append(job, 1, expected_epoch=1)
    assert refusal.value.current == 2
    assert len(job.epochs_after("job", 0)) == 2


def test_a_request_that_comes_again_gets_its_epoch(job: Store) -> None:
    """The same key and body get the old epoch, also when the job has moved on and the expected epoch is long past."""
    done = append(job, 1, idempotency_key="k", request_sha256="r", event=b'{"kind":"node_failed"}', expected_epoch=1)
    append(job, 2)
    again = append(job, 3, idempotency_key="k", request_sha256="r", event=b"{}", expected_epoch=1)
    assert (done.is_replay, again.is_replay) == (False, True)
    assert again.record == done.record
    event = job.find_event("job", "k")
    assert event is not None
    assert (event.epoch, event.request_sha256, event.event) == (2, "r", b'{"kind":"node_failed"}')
    assert len(job.epochs_after("job", 0)) == 3


def test_a_key_belongs_to_one_request_of_one_job(job: Store) -> None:
    """Another body under a used key is refused; another job may use the same key."""
    append(job, 1, idempotency_key="k", request_sha256="r")
    with pytest.raises(IdempotencyConflictError, match="led to epoch 2"):
        append(job, 2, idempotency_key="k", request_sha256="other")
    register(job, "job2")
    assert not append(job, 0, job_id="job2", idempotency_key="k", request_sha256="other").is_replay


def test_an_epoch_holds_its_template(job: Store, backend: Backend) -> None:
    """An epoch's template stays when a better one comes, and goes with the next once no epoch names it."""
    old, _ = put_template(job, b"old")
    append(job, 1, failure_key=KEY, template_sha256=old.sha256)
    middle, _ = put_template(job, b"middle", period_ns=95)
    new, _ = put_template(job, b"new", period_ns=91)
    assert job.template(JOB_SHA256, KEY) == new
    assert job.template_version(JOB_SHA256, KEY, old.sha256) == old
    with pytest.raises(NotFoundError):
        job.template_version(JOB_SHA256, KEY, middle.sha256)
    with pytest.raises(StaleBaseError, match="no template"):
        append(job, 2, failure_key=KEY, template_sha256=middle.sha256)
    with pytest.raises(StaleBaseError, match="no template"):
        append(job, 2, failure_key="0,0,0,0", template_sha256=new.sha256)
    assert append(job, 2, failure_key=KEY, template_sha256=new.sha256).record.epoch == 3


def test_acknowledgements(job: Store) -> None:
    """Workers acknowledge one by one or together; the last iteration of each holds, and each belongs to one epoch."""
    append(job, 1)
    job.acknowledge("job", 2, "0/1", None)
    job.acknowledge_all("job", 2, {"0/1": 8, "0/0": 2**40})
    job.acknowledge_all("job", 2, {})
    acks = job.acknowledgements("job", 2)
    assert [(ack.worker, ack.iteration) for ack in acks] == [("0/0", 2**40), ("0/1", 8)]
    assert job.acknowledgements("job", 1) == ()
    for job_id, epoch in (("job", 3), ("nothing", 1)):
        with pytest.raises(NotFoundError):
            job.acknowledge(job_id, epoch, "0/0", None)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("body", b"{}"),
        ("state", b"[]"),
        ("failure_key", KEY),
        ("revision", 2),
        ("cause", "improved"),
        ("created_at", 1),
    ],
)
def test_finds_a_damaged_epoch(job: Store, backend: Backend, column: str, value: object) -> None:
    """Whatever changed, an epoch is told from the one that was stored."""
    backend.query(f"UPDATE epochs SET {column} = ?", value)
    for read in (lambda: job.epoch("job", 1), lambda: job.current_epoch("job"), lambda: job.epochs_after("job", 0)):
        with pytest.raises(CorruptStoreError, match="epoch 1 of job 'job'"):
            read()


def test_finds_a_damaged_event(job: Store, backend: Backend) -> None:
    """A changed event is not taken for what was reported."""
    append(job, 1, idempotency_key="k", request_sha256="r", event=b"{}")
    backend.query("UPDATE events SET request_sha256 = ?", "s")
    with pytest.raises(CorruptStoreError, match="event of epoch 2"):
        append(job, 2, idempotency_key="k", request_sha256="s")


def test_threads_serialise(store: Store, backend: Backend) -> None:
    """Of eight threads over two stores that append to one base at a time, one wins each time; no number is missing."""
    register(store)
    other = Store(backend.url)
    appended: list[int] = []

    def work(number: int) -> None:
        mine = (store, other)[number % 2]
        for _ in range(5):
            while True:
                current = mine.current_epoch("job")
                try:
                    appended.append(append(mine, 0 if current is None else current.epoch).record.epoch)
                except StaleBaseError:
                    continue
                break

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    other.close()
    assert sorted(appended) == list(range(1, 41))
    assert [record.epoch for record in store.epochs_after("job", 0)] == list(range(1, 41))
