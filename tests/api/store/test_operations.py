"""Operations in the store: one owner at a time, and another one goes on when that one is gone."""

from __future__ import annotations

import threading

import pytest

from api.store import OperationRecord, Store
from planner.errors import NotFoundError, StoreError
from tests.api.store.backends import JOB_SHA256, Backend, register


def create(store: Store, job_id: str | None = "job") -> OperationRecord:
    """Queue an operation."""
    return store.create_operation(job_id=job_id, job_sha256=JOB_SHA256, mode="all", tolerance=2, options=b'{"a":1}')


@pytest.fixture
def job(store: Store) -> Store:
    """A store with the job "job"."""
    register(store)
    return store


def let_leases_run_out(backend: Backend) -> None:
    """Make every lease one of long ago."""
    backend.query("UPDATE operations SET lease_until = ? WHERE state = 'running'", 0)


def test_an_operation_from_start_to_end(job: Store) -> None:
    """It is queued, claimed, reports, and ends; counts that are not told stay."""
    made = create(job)
    assert (made.state, made.kind, made.total, made.done, made.options) == ("queued", "precompute", None, 0, b'{"a":1}')
    claimed = job.claim_operation("me", 60)
    assert claimed is not None
    assert (claimed.operation_id, claimed.state, claimed.owner) == (made.operation_id, "running", "me")
    assert claimed.lease_until is not None
    assert claimed.lease_until > claimed.updated_at
    assert not job.report_progress(made.operation_id, "me", lease_s=60, total=153, done=3, failed=1)
    assert not job.report_progress(made.operation_id, "me", lease_s=60, skipped=2)
    now = job.operation(made.operation_id)
    assert (now.total, now.done, now.failed, now.skipped) == (153, 3, 1, 2)
    assert job.finish_operation(made.operation_id, "me", "failed", "no disk")
    ended = job.operation(made.operation_id)
    assert (ended.state, ended.error, ended.lease_until) == ("failed", "no disk", None)
    assert not job.finish_operation(made.operation_id, "me", "done")
    assert job.claim_operation("me", 60) is None


def test_the_oldest_is_claimed_once(job: Store) -> None:
    """Claims go by age, and of many claims at once each operation goes to one."""
    made = [create(job).operation_id for _ in range(6)]
    first = job.claim_operation("me", 60)
    assert first is not None
    assert first.operation_id == made[0]
    claimed: list[OperationRecord | None] = []
    threads = [
        threading.Thread(target=lambda n=n: claimed.append(job.claim_operation(f"owner {n}", 60))) for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(operation.operation_id for operation in claimed if operation is not None) == sorted(made[1:])


def test_another_goes_on_when_the_lease_runs_out(job: Store, backend: Backend) -> None:
    """A crashed owner's operation is claimed with its counts; the old owner is told to stop and changes nothing."""
    made = create(job)
    job.claim_operation("old", 60)
    job.report_progress(made.operation_id, "old", lease_s=60, done=5)
    assert job.claim_operation("new", 60) is None
    let_leases_run_out(backend)
    claimed = job.claim_operation("new", 60)
    assert claimed is not None
    assert (claimed.owner, claimed.done) == ("new", 5)
    assert job.report_progress(made.operation_id, "old", lease_s=60, done=1)
    assert not job.finish_operation(made.operation_id, "old", "failed")
    assert not job.release_operation(made.operation_id, "old")
    assert (job.operation(made.operation_id).done, job.operation(made.operation_id).owner) == (5, "new")


def test_progress_renews_the_lease(job: Store, backend: Backend) -> None:
    """An owner that reports in time keeps its operation."""
    made = create(job)
    job.claim_operation("me", 60)
    let_leases_run_out(backend)
    job.report_progress(made.operation_id, "me", lease_s=60)
    assert job.claim_operation("other", 60) is None


def test_releasing_lets_another_go_on_at_once(job: Store) -> None:
    """A server that stops puts its operation back into the queue."""
    made = create(job)
    job.claim_operation("me", 60)
    assert job.release_operation(made.operation_id, "me")
    claimed = job.claim_operation("other", 60)
    assert claimed is not None
    assert claimed.operation_id == made.operation_id


def test_cancelling(job: Store, backend: Backend) -> None:
    """A queued one ends at once, a running one with its next report, an ended one stays, a deleted one stops too."""
    queued = create(job)
    assert job.cancel_operation(queued.operation_id).state == "cancelled"
    running = create(job)
    job.claim_operation("me", 60)
    cancelled = job.cancel_operation(running.operation_id)
    assert (cancelled.state, cancelled.cancel_requested) == ("running", True)
    assert job.report_progress(running.operation_id, "me", lease_s=60, done=1)
    job.finish_operation(running.operation_id, "me", "cancelled")
    before = job.operation(running.operation_id)
    assert job.cancel_operation(running.operation_id) == before
    deleted = create(job)
    job.claim_operation("me", 60)
    job.delete_job("job")
    assert job.report_progress(deleted.operation_id, "me", lease_s=60)
    for ask in (job.cancel_operation, job.operation):
        with pytest.raises(NotFoundError, match=deleted.operation_id):
            ask(deleted.operation_id)


def test_those_of_job_files_are_only_claimed_by_name(job: Store) -> None:
    """Only their maker has the job file, so a server leaves them alone."""
    made = create(job, None)
    assert job.claim_operation("server", 60) is None
    claimed = job.claim_operation("maker", 60, operation_id=made.operation_id)
    assert claimed is not None
    assert claimed.job_id is None


def test_lists_the_newest_first(job: Store) -> None:
    """A job's operations, or all, newest first."""
    made = [create(job).operation_id, create(job, None).operation_id, create(job).operation_id]
    assert [operation.operation_id for operation in job.list_operations("job")] == [made[2], made[0]]
    assert [operation.operation_id for operation in job.list_operations()] == made[::-1]
    assert [operation.operation_id for operation in job.list_operations(limit=1)] == [made[2]]
    assert [operation.operation_id for operation in job.list_operations(limit=1, after=made[2])] == [made[1]]
    assert job.list_operations("job", after=made[0]) == ()
    with pytest.raises(NotFoundError, match="no operation 'nothing'"):
        job.list_operations(after="nothing")


def test_needs_its_job(store: Store) -> None:
    """An operation for a job that is not there is refused."""
    with pytest.raises(StoreError):
        create(store)
    assert store.list_operations() == ()


def test_the_same_is_begun_once(job: Store) -> None:
    """Of many that begin the same at once one does; one that failed or was told to stop is begun again, another is another."""

    def begin(tolerance: int = 2) -> OperationRecord | None:
        return job.begin_operation(
            job_id="job", job_sha256=JOB_SHA256, mode="all", tolerance=tolerance, options=b'{"a":1}'
        )

    begun: list[OperationRecord | None] = []
    threads = [threading.Thread(target=lambda: begun.append(begin())) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (first,) = [operation for operation in begun if operation is not None]
    assert len(begun) == 6
    assert begin(tolerance=3) is not None
    assert job.claim_operation("me", 60, operation_id=first.operation_id) is not None
    assert begin() is None
    job.cancel_operation(first.operation_id)
    second = begin()
    assert second is not None
    for state, is_again in (("failed", True), ("done", False)):
        assert job.claim_operation("me", 60, operation_id=second.operation_id) is not None
        assert job.finish_operation(second.operation_id, "me", state)  # type: ignore[arg-type]
        third = begin()
        assert (third is not None) == is_again
        second = third or second
    # The oldest is found behind any number of others too.
    for _ in range(120):
        create(job)
    assert begin() is None
    job.delete_job("job")
    assert begin() is None
