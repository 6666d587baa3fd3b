"""Operations that clients begin: plans made ready before they are needed."""

from __future__ import annotations

from functools import partial

from anyio import to_thread

from api.jobs.forms import PrecomputeRequest
from api.jobs.loaded import JobCache
from api.precompute.engine import PrecomputeEngine
from api.precompute.options import PrecomputeOptions
from api.store import JobRecord, OperationRecord, Store
from planner.tolerance import require_listable


class JobOperations:
    """Begins and cancels precompute operations of jobs; the engine of this server or of another one does them.

    Parameters
    ----------
    store, engine
        Where operations are, and who does them here; owned by the caller.
    jobs
        What was read of the store already.
    """

    def __init__(self, *, store: Store, engine: PrecomputeEngine, jobs: JobCache) -> None:
        self._store = store
        self._engine = engine
        self._jobs = jobs

    async def begin(self, job_id: str, form: PrecomputeRequest) -> OperationRecord:
        """Begin to make plans ready.

        Raises
        ------
        NotFoundError
            If there is no such job.
        OptionError
            If the job has fewer workers than are to be tolerated, or there would be too many plans.
        """
        job = await to_thread.run_sync(self._store.job, job_id)
        loaded = await to_thread.run_sync(self._jobs.load, job.document)
        mode = form.mode or job.mode or "all"
        tolerance = job.tolerance if form.tolerance is None else form.tolerance
        require_listable(loaded.job, tolerance, mode)
        options = PrecomputeOptions(
            revision=job.revision, deadline_s=form.deadline_s, target_gap=form.target_gap, seed=form.seed
        )
        create = partial(
            self._store.create_operation,
            job_id=job_id,
            job_sha256=job.job_sha256,
            mode=mode,
            tolerance=tolerance,
            options=options.dump(),
        )
        operation = await to_thread.run_sync(create)
        self._engine.wake()
        return operation

    async def begin_registered(self, job: JobRecord) -> OperationRecord | None:
        """Operation that a registration begins.

        Returns
        -------
        OperationRecord | None
            ``None`` where the job wants none, and where the same one stands, here or on another server.
        """
        if job.mode is None:
            return None
        begin = partial(
            self._store.begin_operation,
            job_id=job.job_id,
            job_sha256=job.job_sha256,
            mode=job.mode,
            tolerance=job.tolerance,
            options=PrecomputeOptions(revision=job.revision).dump(),
        )
        operation = await to_thread.run_sync(begin)
        if operation is not None:
            self._engine.wake()
        return operation

    async def cancel(self, operation_id: str) -> OperationRecord:
        """Have an operation stopped; raises :class:`NotFoundError` where there is none."""
        operation = await to_thread.run_sync(self._store.cancel_operation, operation_id)
        self._engine.wake()
        return operation

    def remaining_s(self, operation_id: str) -> float | None:
        """Estimated seconds to the end of an operation that is done here; ``None`` where it is not, or nothing is known yet."""
        progress = self._engine.progress(operation_id)
        return None if progress is None else progress.remaining_s
