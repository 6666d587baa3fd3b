"""Precomputing for a job file, outside of any server: what ``replan precompute`` does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from anyio import to_thread

from api.pool import SolvePool
from api.precompute.engine import PrecomputeEngine
from api.precompute.executors import Executor, PoolExecutor
from api.precompute.options import PrecomputeOptions
from api.precompute.progress import KeyFailure, Progress
from api.precompute.ray_executor import RayExecutor
from api.store import Mode, OperationRecord, Store
from planner.errors import SolverError
from planner.formats.job_file import job_to_document
from planner.job import Job
from planner.job_hash import job_sha256
from planner.plan_content import canonical_json

_WARM_UP_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecomputeOutcome:
    """How precomputing for a job file ended: the operation's row, and the keys that could not be planned."""

    operation: OperationRecord
    failures: tuple[KeyFailure, ...]


@asynccontextmanager
async def own_processes(num_processes: int) -> AsyncIterator[Executor]:
    """Solver processes of this machine, for as long as the context lasts."""
    pool = SolvePool(
        num_processes=num_processes, queue_limit=0, queue_timeout_s=1.0, warm_up_timeout_s=_WARM_UP_TIMEOUT_S
    )
    pool.start()
    try:
        yield PoolExecutor(pool)
    finally:
        await pool.close()


@asynccontextmanager
async def ray_processes(address: str, num_processes: int | None) -> AsyncIterator[Executor]:
    """Solver processes on a Ray cluster, for as long as the context lasts; raises as :meth:`RayExecutor.connect` does."""
    executor = await RayExecutor.connect(address, num_processes=num_processes, warm_up_timeout_s=_WARM_UP_TIMEOUT_S)
    try:
        yield executor
    finally:
        await executor.close()


async def precompute_job(
    job: Job,
    *,
    store: Store,
    executor: Executor,
    tolerance: int,
    mode: Mode,
    options: PrecomputeOptions,
    on_progress: Callable[[Progress], None] = lambda _progress: None,
) -> PrecomputeOutcome:
    """Make the templates of a job that are not in the store yet.

    An operation says in the store how far it is. One that a process which has died began for the same job, mode and
    tolerance is gone on with.

    Parameters
    ----------
    job
        The job.
    store, executor
        Where templates are kept and made.
    tolerance, mode
        Which failure keys: see :func:`planner.tolerance.failure_keys`.
    options
        Limits of each search.
    on_progress
        Called with the progress after each key.

    Raises
    ------
    OptionError
        If there are too many keys.
    SolverError, StoreError
        If it cannot go on. What was made by then is kept.
    """
    engine = PrecomputeEngine(
        store=store, executor=executor, on_progress=lambda _operation, progress: on_progress(progress)
    )
    operation = await to_thread.run_sync(
        lambda: _claim(store, engine, job_sha256(job), tolerance=tolerance, mode=mode, options=options.dump())
    )
    failures = await engine.perform(operation, canonical_json(job_to_document(job)))
    ended = await to_thread.run_sync(store.operation, operation.operation_id)
    return PrecomputeOutcome(operation=ended, failures=failures)


def _claim(
    store: Store, engine: PrecomputeEngine, digest: str, *, tolerance: int, mode: Mode, options: bytes
) -> OperationRecord:
    wanted = (None, digest, tolerance, mode, options)
    for left in store.list_operations():
        found = (left.job_id, left.job_sha256, left.tolerance, left.mode, left.options)
        if found == wanted and left.state in ("queued", "running"):
            claimed = engine.claim(left.operation_id)
            if claimed is not None:
                return claimed
    new = store.create_operation(job_id=None, job_sha256=digest, mode=mode, tolerance=tolerance, options=options)
    claimed = engine.claim(new.operation_id)
    if claimed is None:
        raise SolverError(f"the operation {new.operation_id} was taken by another process as soon as it was made")
    return claimed
