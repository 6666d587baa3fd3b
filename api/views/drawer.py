"""Drawings of epochs' plans, made in a solver process when somebody looks, and kept for a while."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from anyio import to_thread

from api.jobs.loaded import JobCache
from api.jobs.materialiser import Materialiser
from api.jobs.templates import Templates
from api.pool import Priority, SolvePool
from api.single_flight import SingleFlight
from api.store import Store
from api.views.drawing import Drawing, drawing_request
from planner.errors import NotFoundError

MAX_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A drawing in gzip, and the id of the plan that it shows."""

    plan_id: str
    content: bytes


class Drawer:
    """Has plans drawn; several who ask for the same at once share one drawing.

    Parameters
    ----------
    store, pool
        Where epochs are, and where plans are drawn; owned by the caller.
    jobs, templates, materialiser
        What was read of the store already, and who makes epochs' plans.
    timeout_s
        Seconds after which a solver process is killed.
    """

    def __init__(
        self,
        *,
        store: Store,
        pool: SolvePool,
        jobs: JobCache,
        templates: Templates,
        materialiser: Materialiser,
        timeout_s: float,
    ) -> None:
        self._store = store
        self._pool = pool
        self._jobs = jobs
        self._templates = templates
        self._materialiser = materialiser
        self._timeout_s = timeout_s
        self._kept: OrderedDict[tuple[Drawing, str], Drawn] = OrderedDict()
        self._drawing: SingleFlight[tuple[Drawing, str], Drawn] = SingleFlight()

    async def close(self) -> None:
        """Give up what is being drawn."""
        await self._drawing.close()

    async def of_epoch(self, job_id: str, epoch: int, kind: Drawing) -> Drawn:
        """Drawing of an epoch's plan; raises as :meth:`api.jobs.materialiser.Materialiser.get` does."""
        made = await self._materialiser.get(job_id, epoch)
        return await self._drawn(kind, made.plan_id, made.plan)

    async def of_fault_free(self, job_id: str, epoch: int, kind: Drawing) -> Drawn:
        """Drawing of the plan with everybody live, of the job as it was in an epoch.

        Raises
        ------
        NotFoundError
            If there is no such epoch, or its job's fault-free plan is not there any more.
        ReplanError
            If it cannot be drawn.
        """
        plan_id, content = await to_thread.run_sync(self._fault_free, job_id, epoch)
        return await self._drawn(kind, plan_id, content)

    def _fault_free(self, job_id: str, epoch: int) -> tuple[str, bytes]:
        revision = self._store.epoch(job_id, epoch).revision
        loaded = self._jobs.load(self._store.job_revision(job_id, revision).document)
        known = self._templates.best(loaded, str(loaded.fault_free_key))
        if known is None:
            raise NotFoundError(
                f"the fault-free plan of job {job_id!r} is not there any more", hint="register the job again"
            )
        return known.template.plan_id, known.record.content

    async def _drawn(self, kind: Drawing, plan_id: str, plan: bytes) -> Drawn:
        key = (kind, plan_id)
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
            return found
        return await self._drawing.join(key, lambda: self._draw(key, plan))

    async def _draw(self, key: tuple[Drawing, str], plan: bytes) -> Drawn:
        request = drawing_request(key[0], plan)
        answer = await self._pool.run(request, timeout_s=self._timeout_s, priority=Priority.REQUEST)
        drawn = Drawn(plan_id=answer[0].decode("ascii"), content=answer[1])
        self._kept[key] = drawn
        while len(self._kept) > 1 and sum(len(kept.content) for kept in self._kept.values()) > MAX_BYTES:
            self._kept.popitem(last=False)
        return drawn
