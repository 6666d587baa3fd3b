"""Runs over the failure keys of a job."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from api.errors import OverloadedError
from api.pool import SolvePool
from api.precompute.executors import Executor, PoolExecutor
from api.precompute.options import PrecomputeOptions
from api.precompute.progress import KeyFailure, Progress
from api.precompute.run import PrecomputeRun
from api.store import Store
from planner.errors import StoreError
from planner.formats.packed_plan import unpack_plan
from tests.precomputing import DOCUMENT, FAULT_FREE, LONG_JOB, ONE_FAILED, REFERENCE, SHA256, Here, Watched, with_pool


async def carry_out(run: PrecomputeRun) -> Progress:
    """Do all of a run."""
    await run.begin()
    return await run.finish()


def make_run(store: Store, executor: Executor, keys: Sequence[str], **changes: Any) -> PrecomputeRun:
    """A run over these keys of the example."""
    settings: dict[str, Any] = {
        "store": store,
        "executor": executor,
        "job_sha256": SHA256,
        "document": DOCUMENT,
        "keys": keys,
        "options": PrecomputeOptions(deadline_s=0.3),
        "grace_s": 60,
        "stop": asyncio.Event(),
    }
    return PrecomputeRun(**(settings | changes))


def test_every_key_gets_a_template_and_the_reference_is_made_once(store: Store) -> None:
    """The fault-free key comes first, though it stands last, and all others are compared with it; then nothing is left."""
    seen: list[Progress] = []
    executor, again = Watched(), Watched()
    progress = asyncio.run(carry_out(make_run(store, executor, (*ONE_FAILED, FAULT_FREE), on_progress=seen.append)))
    assert (progress.done, progress.failed, progress.skipped, progress.num_left) == (5, 0, 0, 0)
    assert progress.remaining_s == 0
    assert executor.asked == [FAULT_FREE, *ONE_FAILED]
    assert executor.references == [None] + 4 * [REFERENCE]
    progress = asyncio.run(carry_out(make_run(store, again, (*ONE_FAILED, FAULT_FREE))))
    assert (progress.done, progress.skipped, again.asked) == (0, 5, [])
    assert set(store.template_keys(SHA256)) == {FAULT_FREE, *ONE_FAILED}
    record = store.template(SHA256, "0,0,1,0")
    assert record is not None
    plan = unpack_plan(record.content)
    assert (record.period_ns, plan.period_ns, record.solver) == (27_000, 27_000, plan.solver)
    assert [progress.done for progress in seen] == [0, 1, 2, 3, 4, 5]
    assert seen[0].remaining_s is None
    assert all(progress.remaining_s is not None and progress.remaining_s > 0 for progress in seen[1:5])


def test_without_the_fault_free_key_its_plan_is_made_for_the_sake_of_the_others(store: Store) -> None:
    """One key is asked for and counted; the plan that it is compared with is made and kept too."""
    executor = Watched()
    progress = asyncio.run(carry_out(make_run(store, executor, ("0,0,1,0",))))
    assert (progress.total, progress.done, progress.num_left) == (1, 1, 0)
    assert executor.references == [None, REFERENCE]
    assert set(store.template_keys(SHA256)) == {FAULT_FREE, "0,0,1,0"}


def test_a_key_that_cannot_be_planned_is_recorded_and_the_others_are_made(store: Store) -> None:
    """Slot 2 lost, more failures than workers, and a key known to be hopeless do not keep 0,0,1,0 from its template."""
    known = KeyFailure(failure_key="3,0,0,0", code="stage_lost", message="known before")
    run = make_run(store, Here(2), (FAULT_FREE, "0,0,3,0", "0,0,9,0", "0,0,1,0"), unplannable=[known])
    progress = asyncio.run(carry_out(run))
    assert (progress.total, progress.done, progress.failed, progress.num_left) == (5, 2, 3, 0)
    assert {failure.failure_key: failure.code for failure in run.failures} == {
        "3,0,0,0": "stage_lost",
        "0,0,3,0": "stage_lost",
        "0,0,9,0": "failure_invalid",
    }


def test_stopping_finishes_what_is_being_worked_on_and_a_new_run_goes_on(store: Store) -> None:
    """A run told to stop during its third key keeps three templates; the next run makes the other two only."""
    keys = (FAULT_FREE, *ONE_FAILED)

    async def stop(number: int) -> None:
        if number == 3:
            stopping.set()

    stopping = asyncio.Event()
    run = make_run(store, Watched(before=stop), keys, stop=stopping)
    progress = asyncio.run(carry_out(run))
    assert (progress.done, progress.num_left) == (3, 2)
    executor = Watched()
    progress = asyncio.run(carry_out(make_run(store, executor, keys)))
    assert (progress.done, progress.skipped, executor.asked) == (2, 3, list(keys[3:]))
    # The stored fault-free template tells what to compare with.
    assert executor.references == 2 * [REFERENCE]


def test_a_damaged_fault_free_template_is_made_again(store: Store, tmp_path: Path) -> None:
    """A template whose bytes were changed is no reference: it is dropped, and made anew before the others."""
    asyncio.run(carry_out(make_run(store, Here(), (FAULT_FREE,))))
    with closing(sqlite3.connect(tmp_path / "replan.db")) as connection, connection:
        assert connection.execute("UPDATE templates SET content = X'00'").rowcount == 1
    executor = Watched()
    progress = asyncio.run(carry_out(make_run(store, executor, (FAULT_FREE, "0,0,1,0"))))
    assert (progress.done, progress.skipped, progress.failed) == (2, 0, 0)
    assert executor.asked == [FAULT_FREE, "0,0,1,0"]
    record = store.template(SHA256, FAULT_FREE)
    assert record is not None
    assert unpack_plan(record.content).period_ns == 19_000


def test_a_store_that_cannot_be_written_ends_the_run(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every other key would meet the same, so none is tried."""

    def refuse(**_values: object) -> None:
        raise StoreError("no space left")

    monkeypatch.setattr(store, "put_template", refuse)
    executor = Watched()
    with pytest.raises(StoreError):
        asyncio.run(carry_out(make_run(store, executor, (FAULT_FREE, *ONE_FAILED))))
    assert executor.asked == [FAULT_FREE]


def test_a_pool_that_is_shut_down_ends_the_run(store: Store) -> None:
    """No key is said to have failed because there was nobody left to plan it."""

    async def shut_down(number: int) -> None:
        if number == 2:
            raise OverloadedError("the server is shutting down")

    run = make_run(store, Watched(before=shut_down), (FAULT_FREE, *ONE_FAILED))
    with pytest.raises(OverloadedError):
        asyncio.run(carry_out(run))
    assert run.failures == []
    assert set(store.template_keys(SHA256)) == {FAULT_FREE}


def test_solver_processes_killed_in_the_middle_cost_no_key(store: Store) -> None:
    """Both processes are killed while they work; every key has its template in the end."""
    children = Path("/proc/self/task", str(os.getpid()), "children")
    if not children.exists():
        pytest.skip("the kernel does not list a process's children")
    before = set(children.read_text().split())

    async def test(pool: SolvePool) -> None:
        killed: list[int] = []

        async def kill_soon(number: int) -> None:
            if number == 3:
                asyncio.get_running_loop().call_later(0.1, kill)

        def kill() -> None:
            killed.extend(int(pid) for pid in children.read_text().split() if pid not in before)
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

        executor, document = Watched(PoolExecutor(pool), kill_soon), json.dumps(LONG_JOB).encode()
        options = PrecomputeOptions(deadline_s=0.5)
        run = make_run(store, executor, (FAULT_FREE, *ONE_FAILED), document=document, options=options)
        progress = await carry_out(run)
        assert len(killed) == 2
        assert (progress.done, progress.failed) == (5, 0)

    with_pool(test, num_processes=2)
