"""One pass over the failure keys of a job: those without a template get one, the cheapest first.

Every template is in the store before the next key is begun in its place, so a run that is stopped in whatever way is gone
on with by running again.
"""

from __future__ import annotations

import asyncio
import collections
import logging
import time
from collections.abc import Callable, Sequence

from anyio import to_thread

from api.errors import ClusterError, CorruptStoreError, OverloadedError
from api.observability.telemetry import Telemetry
from api.precompute.executors import Executor
from api.precompute.keeping import make_and_keep
from api.precompute.options import PrecomputeOptions
from api.precompute.progress import KeyFailure, Progress, remaining_s
from api.precompute.template import ReferenceForm, TemplateFigures, TemplateRequest, figures_of
from api.store import Store
from planner.errors import PlanFileError, ReplanError, StoreError
from planner.failure_key import FailureKey, parse_failure_key
from planner.formats.packed_plan import unpack_plan

_FATAL = (StoreError, OverloadedError, ClusterError)
"""Errors that every further key would meet too."""
_LOG = logging.getLogger("replan.api.precompute")


class PrecomputeRun:
    """Templates for some failure keys of one job: :meth:`begin`, then :meth:`finish`.

    Parameters
    ----------
    store
        Where templates are kept.
    executor
        Where they are made.
    job_sha256, document
        Hash of the job, and its document as JSON.
    keys
        Texts of the keys in the order they are to be done.
    unplannable
        Further keys, of which it is known that no plan can exist.
    options
        Limits of each search.
    grace_s
        Seconds beyond its deadline after which a solver process is killed.
    stop
        Once it is set no further key is begun; those being worked on are finished and kept.
    on_progress
        Called in the event loop with the progress after each key.
    telemetry
        Where keys and searches are counted.

    Attributes
    ----------
    failures
        Keys that could not be planned so far.
    """

    def __init__(
        self,
        *,
        store: Store,
        executor: Executor,
        job_sha256: str,
        document: bytes,
        keys: Sequence[str],
        unplannable: Sequence[KeyFailure] = (),
        options: PrecomputeOptions,
        grace_s: float,
        stop: asyncio.Event,
        on_progress: Callable[[Progress], None] = lambda _progress: None,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._store = store
        self._executor = executor
        self._job_sha256 = job_sha256
        self._document = document
        self._keys = tuple(dict.fromkeys(keys))
        self._options = options
        self._grace_s = grace_s
        self._on_progress = on_progress
        self._telemetry = telemetry or Telemetry()
        self._todo: collections.deque[str] = collections.deque()
        self._known: frozenset[str] = frozenset()
        self._skipped = self._done = 0
        self._began = time.monotonic()
        self._stop = stop
        self._num_unplannable = len(unplannable)
        self.failures: list[KeyFailure] = list(unplannable)

    @property
    def progress(self) -> Progress:
        """How far it is."""
        failed = len(self.failures)
        total = len(self._keys) + self._num_unplannable
        return Progress(
            total=total,
            done=self._done,
            failed=failed,
            skipped=self._skipped,
            remaining_s=remaining_s(
                elapsed_s=time.monotonic() - self._began,
                num_finished=self._done + failed - self._num_unplannable,
                num_left=total - self._done - failed - self._skipped,
            ),
        )

    async def begin(self) -> None:
        """Look which keys have a sound template already; damaged ones are dropped, to be made again.

        Raises
        ------
        StoreError
            If the store does not say.
        """
        for why in await to_thread.run_sync(self._store.drop_damaged_templates, self._job_sha256):
            _LOG.error("a template is made again: %s", why)
            self._telemetry.degraded("template_corrupt")
        self._known = frozenset(await to_thread.run_sync(self._store.template_keys, self._job_sha256))
        self._todo.extend(key for key in self._keys if key not in self._known)
        self._skipped = len(self._keys) - len(self._todo)
        self._began = time.monotonic()
        self._on_progress(self.progress)

    async def finish(self) -> Progress:
        """Make the templates that are missing; returns the progress in the end, incomplete only where it was stopped.

        Raises
        ------
        StoreError, OverloadedError, ClusterError
            If it cannot go on. What was made by then is kept.
        """
        if not self._todo or self._stop.is_set():
            return self.progress
        reference = await self._reference()
        try:
            async with asyncio.TaskGroup() as lanes:
                for _ in range(min(self._executor.capacity, len(self._todo))):
                    lanes.create_task(self._work(reference))
        except ExceptionGroup as group:
            fatal = group.subgroup(_FATAL)
            raise (group if fatal is None else fatal).exceptions[0] from None
        return self.progress

    async def _work(self, reference: ReferenceForm | None) -> None:
        while self._todo and not self._stop.is_set():
            await self._attempt(self._todo.popleft(), reference)

    async def _reference(self) -> ReferenceForm | None:
        """What all plans are compared with: the fault-free template says, which is made first where it is not there.

        ``None`` where it cannot be made; then each plan works its own out.
        """
        num_slots = parse_failure_key(self._todo[0]).num_slots
        key = str(FailureKey(dead=(0,) * num_slots, degraded=((),) * num_slots))
        figures = await to_thread.run_sync(self._stored_figures, key) if key in self._known else None
        if figures is None:
            # Its place is the first, and where it is not asked for it is made for the sake of the others.
            is_asked_for = key in self._todo
            if is_asked_for:
                self._todo.remove(key)
            figures = await self._attempt(key, None, counts=is_asked_for)
        return None if figures is None else figures.reference

    def _stored_figures(self, key: str) -> TemplateFigures | None:
        """Figures of a stored template; one that is damaged is dropped, and ``None`` returned."""
        try:
            record = self._store.template(self._job_sha256, key)
            return None if record is None else figures_of(unpack_plan(record.content))
        except (CorruptStoreError, PlanFileError) as error:
            _LOG.warning("a stored template is damaged and made again: %s", error)
            self._store.drop_template(self._job_sha256, key)
            return None

    async def _attempt(
        self, key: str, reference: ReferenceForm | None, *, counts: bool = True
    ) -> TemplateFigures | None:
        """Make one template; ``None`` where there is none for this key, which is recorded if it ``counts``."""
        figures = None
        try:
            figures = await self._make(key, reference)
        except _FATAL:
            raise
        except ReplanError as error:
            _LOG.warning("failure key %s cannot be planned: %s", key, error)
            if counts:
                self.failures.append(KeyFailure.of(key, error))
        self._done += counts and figures is not None
        self._telemetry.key_precomputed("failed" if figures is None else "done")
        self._on_progress(self.progress)
        return figures

    async def _make(self, key: str, reference: ReferenceForm | None) -> TemplateFigures:
        options = self._options
        request = TemplateRequest(
            failure_key=key,
            deadline_s=options.deadline_s,
            target_gap=options.target_gap,
            seed=options.seed,
            reference=reference,
        )
        return await make_and_keep(
            request,
            job_sha256=self._job_sha256,
            document=self._document,
            run=lambda message: self._executor.run(message, timeout_s=options.deadline_s + self._grace_s),
            store=self._store,
            telemetry=self._telemetry,
        )
