"""Precompute operations: claimed from the store, those of several jobs done side by side, and reported on while they run.

Every operation keeps as many requests before the solver processes as there are of these, and they are taken in the order they
came: operations go on in turn, and none waits for the end of another job's. A replica that dies keeps its operations no longer
than their lease; another one, or the same after a restart, then claims them and finds in the store what was made already.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
from collections.abc import Callable, Sequence
from functools import partial

from anyio import to_thread

from api.background import Background
from api.errors import CorruptStoreError, OverloadedError
from api.observability.telemetry import Telemetry
from api.precompute.executors import Executor
from api.precompute.keys import KeysRequest, read_keys
from api.precompute.options import PrecomputeOptions
from api.precompute.progress import KeyFailure, Progress
from api.precompute.run import PrecomputeRun
from api.store import OperationRecord, Store
from api.store.operations import FinalState
from planner.errors import NotFoundError, ReplanError, StoreError

MAX_AT_ONCE = 8
"""Operations that are done side by side, one a job."""
_MAX_NAMED_FAILURES = 8
"""Keys without a plan that the row of an operation names."""
_REPORT_S = 1.0
"""Seconds between two looks of a running operation into the store: it says how far it is, and hears that it is to stop."""
_LOG = logging.getLogger("replan.api.precompute")


def new_owner() -> str:
    """A name for this process that no other has had: host, process id and something random."""
    return f"{socket.gethostname()[:64]}:{os.getpid()}:{secrets.token_hex(4)}"


class PrecomputeEngine:
    """Does precompute operations.

    Parameters
    ----------
    store
        Where operations are claimed and templates are kept.
    executor
        Where templates are made.
    lease_s
        Seconds after which an operation of a process that has died may be claimed, above 0; it is renewed three times as often.
    poll_s
        Seconds between two looks for operations that other processes queued or left, above 0.
    grace_s
        Seconds beyond its deadline after which a solver process is killed, above 0.
    on_progress
        Called in the event loop with the operation and its progress after each key.
    telemetry
        Where keys and searches are counted.
    background
        What keeps the engine running.
    """

    def __init__(
        self,
        *,
        store: Store,
        executor: Executor,
        lease_s: float = 30.0,
        poll_s: float = 5.0,
        grace_s: float = 60.0,
        on_progress: Callable[[OperationRecord, Progress], None] = lambda _operation, _progress: None,
        telemetry: Telemetry | None = None,
        background: Background | None = None,
    ) -> None:
        self.owner = new_owner()
        self._store = store
        self._executor = executor
        self._lease_s = lease_s
        self._poll_s = poll_s
        self._grace_s = grace_s
        self._on_progress = on_progress
        self._telemetry = telemetry or Telemetry()
        self._background = background or Background(self._telemetry)
        self._working: dict[asyncio.Task[None], OperationRecord] = {}
        self._paused_until = 0.0
        self._woken = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None
        self._claiming: asyncio.Future[OperationRecord | None] | None = None
        self._runs: dict[str, PrecomputeRun] = {}

    def start(self) -> None:
        """Begin to do operations that are queued or left by dead processes."""
        self._loop = self._background.run("precomputing", self._serve)

    def wake(self) -> None:
        """Look at once: an operation was queued here, or is to be cancelled."""
        self._woken.set()

    async def close(self) -> None:
        """Stop; the operations that are being done go back into the queue."""
        tasks = [*self._working] if self._loop is None else [self._loop, *self._working]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._claiming is not None:
            # Nobody waits for it any more, and it goes on all the same.
            await asyncio.gather(self._claiming, return_exceptions=True)
            # What it claimed, and what was claimed and not begun yet.
            with contextlib.suppress(StoreError):
                await to_thread.run_sync(self._store.release_operations, self.owner)

    def progress(self, operation_id: str) -> Progress | None:
        """How far an operation is that is being done here, with the time left; ``None`` where it is not, or not yet."""
        run = self._runs.get(operation_id)
        return None if run is None else run.progress

    def claim(self, operation_id: str | None = None) -> OperationRecord | None:
        """Take over an operation, or the next one that is to be done; see :meth:`api.store.Store.claim_operation`."""
        return self._store.claim_operation(self.owner, self._lease_s, operation_id=operation_id)

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._woken.clear()
            wait_s = self._paused_until - loop.time()
            if wait_s <= 0:
                wait_s = self._poll_s
                try:
                    if len(self._working) < MAX_AT_ONCE and await self._begin_next():
                        continue
                except Exception as error:
                    self._pause(error, "no operation can be claimed")
            with contextlib.suppress(TimeoutError):
                # Not asyncio.wait_for: before Python 3.12 that loses a cancellation which comes together with the event.
                async with asyncio.timeout(wait_s):
                    await self._woken.wait()

    async def _begin_next(self) -> bool:
        """Claim an operation of a job that no other is done for, and begin it; whether there was one."""
        claim = partial(self._store.claim_operation, self.owner, self._lease_s, besides=tuple(self._working.values()))
        self._claiming = asyncio.ensure_future(to_thread.run_sync(claim))
        operation = await asyncio.shield(self._claiming)
        if operation is None:
            return False
        task = asyncio.create_task(self._do(operation), name=f"operation {operation.operation_id}")
        self._working[task] = operation
        task.add_done_callback(self._on_done)
        return True

    def _on_done(self, task: asyncio.Task[None]) -> None:
        del self._working[task]
        self._woken.set()

    async def _do(self, operation: OperationRecord) -> None:
        what = f"operation {operation.operation_id} stopped"
        try:
            await self.perform(operation)
        except CorruptStoreError as error:
            self._telemetry.degraded("operation_corrupt")
            _LOG.error("%s: %s", what, error)
        except (StoreError, OverloadedError) as error:
            self._pause(error, what)
        except ReplanError as error:
            _LOG.error("%s: %s", what, error)
        except Exception:
            self._telemetry.degraded("operation_failed")
            _LOG.exception(what)

    def _pause(self, error: Exception, what: str) -> None:
        """Tell what went wrong, and begin no operation for a while, since others would meet it too."""
        is_foreseen = isinstance(error, ReplanError)
        if not is_foreseen:
            self._telemetry.degraded("operation_failed")
        _LOG.error("%s: %s", what, error, exc_info=None if is_foreseen else error)
        # A store without space or connection is not there again in a moment, and what was solved for it is lost.
        wait_s = self._poll_s if isinstance(error, OverloadedError) else self._lease_s
        self._paused_until = asyncio.get_running_loop().time() + wait_s

    async def perform(self, operation: OperationRecord, document: bytes | None = None) -> tuple[KeyFailure, ...]:
        """Do an operation that :attr:`owner` has claimed, and say in the store how it ended.

        Where this is cancelled, or the store or the solver processes are lost, the operation goes back into the queue.

        Parameters
        ----------
        operation
            The operation.
        document
            The job's document as JSON; ``None`` to take it from the store.

        Returns
        -------
        tuple[KeyFailure, ...]
            Keys that could not be planned.

        Raises
        ------
        ReplanError
            If it could not be done.
        """
        operation_id, owner = operation.operation_id, self.owner
        try:
            failures, is_complete = await self._while_leased(operation, document)
        except CorruptStoreError as error:
            # It is damaged for every other server too.
            await self._fail(operation, f"{error.code}: {error}")
            raise
        except (StoreError, OverloadedError, asyncio.CancelledError):
            # In this thread: a task that was cancelled gets no other. It is one short transaction.
            with contextlib.suppress(StoreError):
                self._store.release_operation(operation_id, owner)
            raise
        except ReplanError as error:
            await self._fail(operation, f"{error.code}: {error}")
            raise
        except Exception:
            await self._fail(operation, "internal: something went wrong inside the service; its log names the cause")
            raise
        state: FinalState = "done" if is_complete else "cancelled"
        text_of_failures = _failures_text(failures)
        await to_thread.run_sync(self._store.finish_operation, operation_id, owner, state, text_of_failures)
        return tuple(failures)

    async def _fail(self, operation: OperationRecord, text: str) -> None:
        finish = partial(self._store.finish_operation, operation.operation_id, self.owner, "failed", text)
        await to_thread.run_sync(finish)

    async def _while_leased(
        self, operation: OperationRecord, document: bytes | None
    ) -> tuple[Sequence[KeyFailure], bool]:
        """Keys without a plan, and whether all keys were looked at; the lease is renewed meanwhile."""
        stop = asyncio.Event()
        if operation.cancel_requested:
            stop.set()
        reports = asyncio.create_task(self._report_on(operation, stop))
        try:
            run = await self._prepare(operation, document, stop)
            await run.begin()
            self._runs[operation.operation_id] = run
            await self._report(operation, run.progress)  # before anything is made: what is there now was there before
            progress = await run.finish()
        finally:
            reports.cancel()
            self._runs.pop(operation.operation_id, None)
        await self._report(operation, progress)
        return run.failures, progress.num_left == 0

    async def _prepare(self, operation: OperationRecord, document: bytes | None, stop: asyncio.Event) -> PrecomputeRun:
        try:
            options = PrecomputeOptions.load(operation.options)
            form = KeysRequest(tolerance=operation.tolerance, mode=operation.mode)
        except ValueError as error:
            raise CorruptStoreError(
                f"operation {operation.operation_id} is damaged", hint="start another one in its place"
            ) from error
        if document is None:
            document = await to_thread.run_sync(self._document, operation, options)
        request = form.message(document)
        keys = read_keys(await self._executor.run(request, timeout_s=self._grace_s))
        return PrecomputeRun(
            store=self._store,
            executor=self._executor,
            job_sha256=operation.job_sha256,
            document=document,
            keys=keys.plannable,
            unplannable=keys.unplannable,
            options=options,
            grace_s=self._grace_s,
            stop=stop,
            on_progress=lambda progress: self._on_progress(operation, progress),
            telemetry=self._telemetry,
        )

    def _document(self, operation: OperationRecord, options: PrecomputeOptions) -> bytes:
        if operation.job_id is None or options.revision is None:
            raise NotFoundError(f"operation {operation.operation_id} was started for a job file that is not here")
        return self._store.job_revision(operation.job_id, options.revision).document

    async def _report_on(self, operation: OperationRecord, stop: asyncio.Event) -> None:
        """Renew the lease and store the progress while an operation is done; say that it is to stop where it is."""
        while True:
            try:
                if await self._report(operation, self.progress(operation.operation_id)):
                    stop.set()
            except StoreError as error:
                _LOG.error("the progress of operation %s cannot be stored: %s", operation.operation_id, error)
            except Exception:
                # Without its lease another server would do it too.
                _LOG.exception("the progress of operation %s cannot be stored", operation.operation_id)
                self._telemetry.degraded("operation_report_failed")
            await asyncio.sleep(min(_REPORT_S, self._lease_s / 3))

    async def _report(self, operation: OperationRecord, progress: Progress | None) -> bool:
        counts = {}
        if progress is not None:
            # What was there when the operation was first begun was skipped; the rest of what is there now was done by it.
            skipped = progress.skipped if operation.total is None else min(operation.skipped, progress.skipped)
            done = progress.done + progress.skipped - skipped
            counts = {"total": progress.total, "done": done, "failed": progress.failed, "skipped": skipped}
        report = partial(
            self._store.report_progress, operation.operation_id, self.owner, lease_s=self._lease_s, **counts
        )
        return await to_thread.run_sync(report)


def _failures_text(failures: Sequence[KeyFailure]) -> str | None:
    if not failures:
        return None
    named = "; ".join(f"{failure.failure_key}: {failure.code}" for failure in failures[:_MAX_NAMED_FAILURES])
    more = len(failures) - _MAX_NAMED_FAILURES
    return f"{len(failures)} failure keys have no plan: {named}" + (f"; and {more} more" if more > 0 else "")
