"""Operations from the queue to their end, across engines that stop, die and lose their store."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from api.observability.telemetry import Telemetry
from api.precompute.engine import PrecomputeEngine
from api.precompute.options import PrecomputeOptions
from api.precompute.run import PrecomputeRun
from api.store import OperationRecord, Store
from api.store.schema import OPERATIONS
from planner.errors import StoreError
from planner.formats.job_file import job_from_document
from planner.job_hash import job_sha256
from tests.precomputing import DOCUMENT, FAULT_FREE, LONG_JOB, ONE_FAILED, SHA256, Here, Watched


def queue(store: Store, *, tolerance: int = 1, revision: int = 1) -> OperationRecord:
    """Register the example's job and queue an operation for it."""
    store.put_job("job", document=DOCUMENT, job_sha256=SHA256, tolerance=tolerance, mode="all")
    options = PrecomputeOptions(revision=revision, deadline_s=0.2)
    return store.create_operation(
        job_id="job", job_sha256=SHA256, mode="all", tolerance=tolerance, options=options.dump()
    )


def with_engine(
    store: Store,
    executor: Any,
    test: Callable[[PrecomputeEngine], Awaitable[None]],
    lease_s: float = 0.6,
    telemetry: Telemetry | None = None,
) -> None:
    """Run a test beside a started engine and close that."""

    async def run() -> None:
        engine = PrecomputeEngine(store=store, executor=executor, lease_s=lease_s, poll_s=0.1, telemetry=telemetry)
        engine.start()
        try:
            await test(engine)
        finally:
            await engine.close()

    asyncio.run(run())


async def until_ended(store: Store, operation: OperationRecord) -> OperationRecord:
    """Wait until an operation has ended; the test's own time limit ends a wait in vain."""
    while (now := store.operation(operation.operation_id)).state in ("queued", "running"):
        await asyncio.sleep(0.02)
    return now


def counts(operation: OperationRecord) -> tuple[int | None, int, int, int]:
    """Total, done, failed, skipped."""
    return operation.total, operation.done, operation.failed, operation.skipped


@pytest.mark.parametrize("steps", range(4))
def test_closes_at_once_when_it_was_just_woken(store: Store, steps: int) -> None:
    """Being woken and told to stop in the same moment ends it."""

    async def test(engine: PrecomputeEngine) -> None:
        await asyncio.sleep(0.05)
        engine.wake()
        for _ in range(steps):
            await asyncio.sleep(0)

    with_engine(store, Here(), test)


def test_does_what_is_queued_and_says_how_far_it_is(store: Store) -> None:
    """One failed worker or none in four slots are five keys; a second operation finds them all there."""

    async def test(engine: PrecomputeEngine) -> None:
        operation = queue(store)
        engine.wake()
        ended = await until_ended(store, operation)
        assert (ended.state, ended.error, counts(ended)) == ("done", None, (5, 5, 0, 0))
        again = await until_ended(store, queue(store))
        assert (again.state, counts(again)) == ("done", (5, 0, 0, 5))
        assert engine.progress(operation.operation_id) is None

    with_engine(store, Here(), test)
    assert set(store.template_keys(SHA256)) == {FAULT_FREE, *ONE_FAILED}


def test_keys_without_a_plan_are_counted_and_named(store: Store) -> None:
    """Of three pipelines three workers of one slot may be lost: of comb(7, 3) = 35 keys four have no plan."""

    async def test(_engine: PrecomputeEngine) -> None:
        ended = await until_ended(store, queue(store, tolerance=3))
        assert (ended.state, counts(ended)) == ("done", (35, 31, 4, 0))
        assert ended.error is not None
        assert ended.error.startswith("4 failure keys have no plan: 0,0,0,3: stage_lost; ")

    with_engine(store, Here(2), test)


def test_goes_on_where_a_process_died(store: Store) -> None:
    """The dead owner made two of five templates; they are not made again, and all five count as done by the operation."""
    operation = queue(store)
    store.claim_operation("dead", 0.3)
    options = PrecomputeOptions(deadline_s=0.2)
    run = PrecomputeRun(
        store=store,
        executor=Here(),
        job_sha256=SHA256,
        document=DOCUMENT,
        keys=(FAULT_FREE, ONE_FAILED[0]),
        options=options,
        grace_s=60,
        stop=asyncio.Event(),
    )
    asyncio.run(run.begin())
    asyncio.run(run.finish())
    store.report_progress(operation.operation_id, "dead", lease_s=0.3, total=5, done=1, failed=0, skipped=0)
    executor = Watched()

    async def test(engine: PrecomputeEngine) -> None:
        ended = await until_ended(store, operation)
        assert (ended.state, ended.owner, counts(ended)) == ("done", engine.owner, (5, 5, 0, 0))

    with_engine(store, executor, test)
    assert set(executor.asked) == set(ONE_FAILED[1:])


def test_closing_puts_the_operation_back_for_another(store: Store) -> None:
    """An engine closed during its second key leaves it queued at once; the next one makes the four that are missing."""
    operation = queue(store)

    async def close(engine: PrecomputeEngine) -> None:
        while len(first.asked) < 2:
            await asyncio.sleep(0.01)
        progress = engine.progress(operation.operation_id)
        assert progress is not None
        assert (progress.total, progress.done) == (5, 1)

    async def wait_at_second(number: int) -> None:
        if number == 2:
            await asyncio.sleep(60)

    first, second = Watched(before=wait_at_second), Watched()
    with_engine(store, first, close)
    left = store.operation(operation.operation_id)
    assert (left.state, left.owner) == ("queued", None)

    async def finish(_engine: PrecomputeEngine) -> None:
        assert counts(await until_ended(store, operation)) == (5, 5, 0, 0)

    with_engine(store, second, finish)
    assert len(second.asked) == 4


def test_closing_puts_back_what_is_just_being_claimed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine closed while it claims an operation leaves that in the queue, not to a lease that has to run out."""
    claim = store.claim_operation
    began = threading.Event()

    def claim_slowly(*values: Any, **options: Any) -> OperationRecord | None:
        began.set()
        time.sleep(0.2)
        return claim(*values, **options)

    monkeypatch.setattr(store, "claim_operation", claim_slowly)
    operation = queue(store)

    async def close(_engine: PrecomputeEngine) -> None:
        assert await asyncio.to_thread(began.wait, 60)

    with_engine(store, Here(), close, lease_s=3600)
    time.sleep(0.3)  # a thread that nobody waited for has claimed it by now
    left = store.operation(operation.operation_id)
    assert (left.state, left.owner) == ("queued", None)


def test_closing_puts_back_what_was_claimed_and_not_begun(store: Store) -> None:
    """An engine closed in the moment after it claimed an operation leaves that in the queue."""
    operation = queue(store)

    async def claim_and_close() -> None:
        engine = PrecomputeEngine(store=store, executor=Here(), lease_s=3600)
        assert await engine._begin_next()
        await engine.close()

    asyncio.run(claim_and_close())
    left = store.operation(operation.operation_id)
    assert (left.state, left.owner) == ("queued", None)


def test_cancelling_keeps_what_was_made_and_the_lease_holds_meanwhile(store: Store) -> None:
    """It ends after the key in hand; until then no other process can claim it, though a key takes longer than the lease."""
    operation = queue(store)
    go = [asyncio.Event() for _ in range(5)]

    async def wait(number: int) -> None:
        await go[number - 1].wait()

    async def test(engine: PrecomputeEngine) -> None:
        while not executor.asked:
            await asyncio.sleep(0.02)
        first = store.operation(operation.operation_id).lease_until
        assert first is not None
        # The lease that it had when the key was begun has run out by then, and it has another one.
        while (now := store.operation(operation.operation_id)).updated_at <= first:
            assert store.claim_operation("other", 60) is None
            await asyncio.sleep(0.05)
        assert now.owner == engine.owner
        go[0].set()
        while len(executor.asked) < 2:
            await asyncio.sleep(0.02)
        # Once it has reported twice it has heard of it.
        seen = {store.cancel_operation(operation.operation_id).updated_at}
        while len(seen) < 3:
            seen.add(store.operation(operation.operation_id).updated_at)
            await asyncio.sleep(0.02)
        for event in go:
            event.set()
        ended = await until_ended(store, operation)
        assert (ended.state, ended.total, ended.done) == ("cancelled", 5, 2)
        assert len(executor.asked) == len(store.template_keys(SHA256)) == 2

    executor = Watched(before=wait)
    with_engine(store, executor, test, lease_s=2.0)


def test_an_operation_that_cannot_be_done_does_not_keep_the_next_from_being_done(store: Store) -> None:
    """A revision that does not exist and a tolerance above the number of workers fail; what follows is done."""
    missing, unsound = queue(store, revision=7), queue(store, tolerance=1000)

    async def test(_engine: PrecomputeEngine) -> None:
        for operation, code in ((missing, "not_found: "), (unsound, "option_invalid: ")):
            ended = await until_ended(store, operation)
            assert ended.state == "failed"
            assert ended.error is not None
            assert ended.error.startswith(code)
        assert (await until_ended(store, queue(store))).state == "done"

    with_engine(store, Here(), test)


def test_a_store_that_fails_for_a_while_delays_and_loses_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operation goes back into the queue when a template cannot be written, and is done once it can."""
    operation = queue(store)
    put = store.put_template
    refusals: list[str] = []

    def refuse_twice(**values: Any) -> Any:
        if len(refusals) < 2:
            refusals.append(values["failure_key"])
            raise StoreError("no space left")
        return put(**values)

    monkeypatch.setattr(store, "put_template", refuse_twice)

    async def test(_engine: PrecomputeEngine) -> None:
        assert counts(await until_ended(store, operation)) == (5, 5, 0, 0)

    with_engine(store, Here(), test)
    assert refusals == [FAULT_FREE, FAULT_FREE]


@pytest.mark.parametrize("changes", [{"options": b"{}}"}, {"options": b'{"seed":-1}'}])
def test_a_damaged_operation_fails_and_the_next_is_done(store: Store, changes: dict[str, Any]) -> None:
    """What stands in the way of one operation ends it, is counted, and stands in no other's way."""
    telemetry = Telemetry()
    damaged = queue(store)
    store._write(
        lambda connection: connection.execute(
            OPERATIONS.update().where(OPERATIONS.c.operation_id == damaged.operation_id).values(**changes)
        )
    )
    whole = queue(store)

    async def test(_engine: PrecomputeEngine) -> None:
        ended = await until_ended(store, damaged)
        assert ended.state == "failed"
        assert ended.error is not None
        assert ended.error.startswith("store_corrupt: ")
        assert (await until_ended(store, whole)).state == "done"

    with_engine(store, Here(), test, telemetry=telemetry)
    assert telemetry.registry.get_sample_value("replan_degradations_total", {"kind": "operation_corrupt"}) == 1


def test_an_unforeseen_error_ends_an_operation_and_not_the_engine(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """A bug is told with its traceback and counted, its operation has failed, and the next one is done."""
    telemetry = Telemetry()
    first = queue(store)

    async def fail_first(number: int) -> None:
        if number == 1:
            raise KeyError("a bug")

    async def test(_engine: PrecomputeEngine) -> None:
        ended = await until_ended(store, first)
        assert ended.state == "failed"
        assert ended.error is not None
        assert ended.error.startswith("internal: ")
        assert (await until_ended(store, queue(store))).state == "done"

    with caplog.at_level(logging.ERROR):
        with_engine(store, Watched(before=fail_first), test, telemetry=telemetry)
    assert "KeyError" in caplog.text
    assert telemetry.registry.get_sample_value("replan_degradations_total", {"kind": "operation_failed"}) == 1


def test_claiming_that_fails_is_told_and_tried_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that nobody foresaw in looking for work does not end the looking."""
    telemetry = Telemetry()
    claim = store.claim_operation
    failures: list[object] = []

    def fail_once(*values: Any, **options: Any) -> OperationRecord | None:
        if not failures:
            failures.append(values)
            raise ValueError("a row that cannot be read")
        return claim(*values, **options)

    monkeypatch.setattr(store, "claim_operation", fail_once)

    async def test(_engine: PrecomputeEngine) -> None:
        assert (await until_ended(store, queue(store))).state == "done"

    with_engine(store, Here(), test, telemetry=telemetry)
    assert telemetry.registry.get_sample_value("replan_degradations_total", {"kind": "operation_failed"}) == 1


def test_operations_of_several_jobs_go_on_side_by_side(store: Store) -> None:
    """A short operation is done while a long one of another job is on its way; a second one of that job waits for the first."""
    long, next_one = queue(store), queue(store)
    other = job_sha256(job_from_document(LONG_JOB))
    done = asyncio.Event()

    async def wait_at_first(number: int) -> None:
        if number == 1:
            await done.wait()

    async def test(_engine: PrecomputeEngine) -> None:
        while not executor.asked:
            await asyncio.sleep(0.01)
        store.put_job("other", document=json.dumps(LONG_JOB).encode(), job_sha256=other, tolerance=0, mode="all")
        options = PrecomputeOptions(revision=1, deadline_s=0.1).dump()
        short = store.create_operation(job_id="other", job_sha256=other, mode="all", tolerance=0, options=options)
        assert (await until_ended(store, short)).state == "done"
        assert store.operation(long.operation_id).state == "running"
        assert store.operation(next_one.operation_id).state == "queued"
        done.set()
        assert counts(await until_ended(store, long)) == (5, 5, 0, 0)
        assert counts(await until_ended(store, next_one)) == (5, 0, 0, 5)

    executor = Watched(before=wait_at_first)
    with_engine(store, executor, test)
