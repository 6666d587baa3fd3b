"""Templates from the solver pool into the store."""

from __future__ import annotations

from anyio import to_thread

from api.jobs.loaded import LoadedJob
from api.jobs.slot_bounds import SlotBounds, SlotBoundsRequest, degraded_key, read_slot_bounds
from api.jobs.templates import KnownTemplate, Templates
from api.observability.telemetry import Telemetry
from api.pool import Priority, SolvePool
from api.precompute.keeping import make_and_keep
from api.precompute.template import ReferenceForm, TemplateRequest
from api.store import Store
from planner.failure_key import FailureKey

_MAX_KEPT = 256


class TemplateMaker:
    """Has templates made and keeps them.

    Parameters
    ----------
    store, pool
        Where they are kept and made; owned by the caller.
    templates
        How they are read.
    telemetry
        Where searches are counted.
    grace_s
        Seconds beyond its deadline after which a solver process is killed.
    """

    def __init__(
        self, *, store: Store, pool: SolvePool, templates: Templates, telemetry: Telemetry, grace_s: float
    ) -> None:
        self._store = store
        self._pool = pool
        self._templates = templates
        self._telemetry = telemetry
        self._grace_s = grace_s

    async def make(self, job: LoadedJob, key: str, *, deadline_s: float, priority: Priority) -> KnownTemplate | None:
        """Search for a template and store it unless a better one is there; returns the best one now.

        Returns
        -------
        KnownTemplate | None
            ``None`` only where it went between two looks into the store.

        Raises
        ------
        ReplanError
            If there is no plan, the pool cannot make one, or the store cannot take it.
        """
        found = await to_thread.run_sync(self._templates.reference, job)
        reference = None
        if found is not None:
            reference = ReferenceForm(fault_free_ns=found.fault_free_ns, baseline_1f1b_ns=found.baseline_1f1b_ns)
        request = TemplateRequest(failure_key=key, deadline_s=deadline_s, reference=reference)
        await make_and_keep(
            request,
            job_sha256=job.sha256,
            document=job.document,
            run=lambda message: self._pool.run(message, timeout_s=deadline_s + self._grace_s, priority=priority),
            store=self._store,
            telemetry=self._telemetry,
        )
        return await to_thread.run_sync(self._templates.best, job, key)

    async def slot_bounds(self, job: LoadedJob, key: FailureKey, most: int, *, priority: Priority) -> SlotBounds:
        """Bounds of each slot with up to ``most`` dead workers; what is not known yet is worked out in the pool.

        Raises
        ------
        ReplanError
            If the pool cannot.
        """
        text = degraded_key(key)
        if len(job.slot_bounds) >= _MAX_KEPT and text not in job.slot_bounds:
            job.slot_bounds.clear()  # speeds are the reporters' to choose, so there is no end of them
        known = job.slot_bounds.setdefault(text, {})
        counts = [count for count in range(most + 1) if count not in known]
        if counts:
            request = SlotBoundsRequest(key=text, counts=counts)
            parts = await self._pool.run(request.message(job.document), timeout_s=self._grace_s, priority=priority)
            known.update(read_slot_bounds(parts))
        return known
