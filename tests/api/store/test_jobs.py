"""Jobs in the store: registered once, revised, listed, deleted with all that is theirs."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from api.errors import CorruptStoreError
from api.store import DamagedJob, JobEntry, Store
from planner.errors import NotFoundError
from tests.api.store.backends import JOB_SHA256, Backend, SqliteBackend, append, put_template, register


def test_the_same_job_again_changes_nothing(store: Store) -> None:
    """Another document makes a revision, another tolerance or mode only changes the newest; old ones stay readable."""
    first, is_new = store.put_job("job", b"{}", JOB_SHA256, 1, None)
    assert (first.revision, first.document, first.tolerance, first.mode, is_new) == (1, b"{}", 1, None, True)
    assert first.current_epoch == 0
    assert store.put_job("job", b"{}", JOB_SHA256, 1, None) == (first, False)
    record, is_new = store.put_job("job", b"[]", JOB_SHA256, 1, None)
    assert (record.revision, is_new) == (2, True)
    for tolerance, mode in ((2, None), (2, "all"), (1, "all"), (2, None)):
        record, is_new = store.put_job("job", b"[]", JOB_SHA256, tolerance, mode)  # type: ignore[arg-type]
        assert (record.revision, record.tolerance, record.mode, is_new) == (2, tolerance, mode, False)
        assert store.job("job") == record
    assert store.job_revision("job", 1) == first
    assert store.job("job").created_at == first.created_at <= store.job("job").updated_at
    with pytest.raises(NotFoundError, match="no revision 3"):
        store.job_revision("job", 3)


def test_unknown_jobs_are_not_found(store: Store) -> None:
    """Every question about a job that is not there says so."""
    for ask in (store.job, store.current_epoch, store.delete_job):
        with pytest.raises(NotFoundError, match="no job 'nothing'"):
            ask("nothing")
    with pytest.raises(NotFoundError, match="no job 'nothing'"):
        store.epochs_after("nothing", 0)
    with pytest.raises(NotFoundError, match="no job 'nothing'"):
        append(store, 0, job_id="nothing")
    assert store.list_jobs() == ()


def test_lists_jobs_in_pages(store: Store) -> None:
    """Pages follow each other by id, in one order on every database, and show the newest revision."""
    names = ["B", "a-1", "a.2", "a_3", "b"]
    for name in reversed(names):
        register(store, name)
    store.put_job("b", b"[]", "c" * 64, 3, "normalized")
    append(store, 0, job_id="b", revision=2)
    listed = store.list_jobs(limit=2) + store.list_jobs(after="a-1", limit=2) + store.list_jobs(after="a_3", limit=2)
    assert [entry.job_id for entry in listed] == names
    newest = listed[-1]
    assert newest.current_epoch == 1
    assert (newest.revision, newest.tolerance, newest.mode, newest.job_sha256) == (2, 3, "normalized", "c" * 64)


def test_deleting_takes_what_is_the_jobs_and_leaves_templates(store: Store, backend: Backend) -> None:
    """Revisions, epochs, events, acknowledgements and operations go; templates are others' too."""
    register(store)
    template, _ = put_template(store)
    append(store, 0, failure_key=template.failure_key, template_sha256=template.sha256)
    append(store, 1, idempotency_key="k", request_sha256="r", event=b"{}")
    store.acknowledge("job", 2, "0/0", 7)
    store.create_operation(job_id="job", job_sha256=JOB_SHA256, mode="all", tolerance=1, options=b"{}")
    store.delete_job("job")
    for table in ("jobs", "job_revisions", "epochs", "events", "acknowledgements", "operations"):
        assert backend.query(f"SELECT count(*) FROM {table}") == [(0,)], table
    assert store.template(template.job_sha256, template.failure_key) == template


def test_a_job_registered_again_counts_on(store: Store) -> None:
    """The epochs of a new job under an old id follow the old ones, so nobody waits for a number that was there before."""
    register(store)
    append(store, 0)
    append(store, 1)
    store.delete_job("job")
    register(store)
    assert store.current_epoch("job") is None
    assert store.job("job").current_epoch == 0
    again = append(store, 0).record
    assert (again.epoch, again.body) == (3, b'{"epoch":3}')
    assert append(store, 3).record.epoch == 4
    assert [record.epoch for record in store.epochs_after("job", 0)] == [3, 4]


@pytest.mark.parametrize("column", ["document", "tolerance", "job_sha256"])
def test_finds_a_damaged_job(store: Store, backend: Backend, column: str) -> None:
    """Whatever changed, a revision is told from the one that was stored."""
    register(store)
    backend.query(
        f"UPDATE job_revisions SET {column} = ?", {"document": b"x", "tolerance": 2, "job_sha256": "c"}[column]
    )
    with pytest.raises(CorruptStoreError, match="revision 1 of job 'job'"):
        store.job("job")


def test_one_of_many_at_once_registers(store: Store) -> None:
    """Eight threads that put the same job make one revision; eight that put different ones make eight."""
    made: list[bool] = []

    def put(number: int) -> None:
        made.append(store.put_job("same", b"{}", JOB_SHA256, 1, "all")[1])
        store.put_job("different", b"%d" % number, JOB_SHA256, 1, "all")

    threads = [threading.Thread(target=put, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == [False] * 7 + [True]
    assert store.job("same").revision == 1
    assert {store.job_revision("different", n).document for n in range(1, 9)} == {b"%d" % n for n in range(8)}


def test_a_damaged_document_is_mended_by_the_same(store: Store, backend: Backend) -> None:
    """The same document puts a damaged row right, with the tolerance it had; another one does not."""
    store.put_job("job", b'{"name":"job"}', JOB_SHA256, 3, "all")
    backend.query("UPDATE job_revisions SET document = ?, job_sha256 = ?", b"x", "c")
    assert not store.mend_job("job", b'{"name":"other"}', JOB_SHA256, tolerance=1, mode=None)
    assert store.mend_job("job", b'{"name":"job"}', JOB_SHA256, tolerance=1, mode=None)
    mended = store.job("job")
    assert (mended.document, mended.revision, mended.tolerance, mended.mode) == (b'{"name":"job"}', 1, 3, "all")
    # Where the document is there, what stands beside it is given anew.
    backend.query("UPDATE job_revisions SET tolerance = 4, checksum = 'x'")
    assert store.mend_job("job", b'{"name":"job"}', JOB_SHA256, tolerance=1, mode=None)
    assert (store.job("job").tolerance, store.job("job").mode) == (1, None)
    assert not store.mend_job("nothing", b"{}", JOB_SHA256, tolerance=1, mode=None)


def test_a_job_without_its_revision_is_damaged(store: Store, backend: Backend) -> None:
    """A job whose number of the newest revision is wrong is there all the same: it is damaged, and is listed as such."""
    register(store)
    register(store, "other")
    backend.query("UPDATE jobs SET revision = 4097 WHERE job_id = 'job'")
    with pytest.raises(CorruptStoreError, match="the newest revision of job 'job'"):
        store.job("job")
    listed = store.jobs_behind()
    assert store.list_jobs() == listed[1:]
    assert listed[0] == DamagedJob(job_id="job")
    assert isinstance(listed[1], JobEntry)
    store.delete_job("job")


@pytest.mark.parametrize("value", ["x", b"x"])
def test_numbers_that_are_none_any_more(tmp_path: Path, value: object) -> None:
    """Damage to the type of one job's numbers leaves the lists of all jobs, and of their epochs, readable."""
    backend = SqliteBackend(tmp_path / "s.db")
    store = Store(backend.url)
    for job_id in ("a", "b", "c"):
        register(store, job_id)
        append(store, 0, job_id)
    backend.query("UPDATE jobs SET current_epoch = ? WHERE job_id = 'a'", value)
    backend.query("UPDATE job_revisions SET tolerance = ? WHERE job_id = 'b'", value)
    assert [isinstance(job, DamagedJob) for job in store.jobs_behind()] == [True, True, False]
    assert store.epoch_ranges() == {"a": (1, 0), "b": (1, 1), "c": (1, 1)}
    assert store.job("a").current_epoch == 0
    store.close()
