"""What the routes do: answer a plan request once, remember it, and lower programs when they are first asked for."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace

from anyio import to_thread

from api.errors import CorruptStoreError
from api.models import PlanRequest, request_digest
from api.observability.telemetry import Telemetry
from api.pool import SolvePool
from api.retention import PlanUses
from api.settings import Settings
from api.single_flight import SingleFlight
from api.store import Document, Store
from planner.errors import NotFoundError, OptionError, StoreError
from planner.plan_content import canonical_json

_LOG = logging.getLogger("replan.api")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAnswer:
    """Answer to a plan request: the plan's id, its summary, and whether it is new in the store."""

    plan_id: str
    summary: Document
    is_new: bool


class PlanService:
    """Plans and programs, from the store where they are there, else from the solver pool.

    Requests for the same thing at the same time are worked on once, and a request whose client has gone still ends in
    the store.

    Parameters
    ----------
    store, pool
        Where plans are kept and made; owned by the caller.
    settings
        Limits.
    version
        Version of RePlan; another version answers the same request anew.
    telemetry
        Where searches are counted.
    """

    def __init__(
        self, *, store: Store, pool: SolvePool, settings: Settings, version: str, telemetry: Telemetry
    ) -> None:
        self.store = store
        self.pool = pool
        self.settings = settings
        self.version = version
        self._telemetry = telemetry
        self._planning: SingleFlight[str, PlanAnswer] = SingleFlight()
        self._lowering: SingleFlight[str, None] = SingleFlight()
        self._uses = PlanUses(store)
        self._first_plans: dict[str, asyncio.Event] = {}

    async def plan(self, request: PlanRequest) -> PlanAnswer:
        """Answer a plan request.

        Raises
        ------
        ReplanError
            If the job, the failures or the options are not sound, there is no plan, or the service cannot make it.
        """
        if request.options.deadline_s > self.settings.max_deadline_s:
            raise OptionError(
                f"deadline_s is {request.options.deadline_s:g}; this service allows {self.settings.max_deadline_s:g} at most"
            )
        canonical = await to_thread.run_sync(request.canonical)
        digest = request_digest(canonical, version=self.version)
        known = await self._known(digest)
        if known is not None:
            return known
        is_first = digest not in self._planning
        answer = await self._planning.join(digest, lambda: self._make_plan(request, canonical, digest))
        return answer if is_first else replace(answer, is_new=False)

    async def document(self, read: Callable[[str], Document], plan_id: str) -> Document:
        """A stored document of a plan.

        Parameters
        ----------
        read
            Method of the store that reads it.
        plan_id
            Id of a stored plan.

        Raises
        ------
        NotFoundError
            If there is no such plan.
        CorruptStoreError
            If it is damaged. The plan is dropped then: the request that led to it makes a new one.
        """
        try:
            return await to_thread.run_sync(self._uses.noted, read, plan_id)
        except CorruptStoreError as error:
            self._tell_damage(plan_id, error)
            with suppress(StoreError):
                await to_thread.run_sync(self.store.drop_plan, plan_id)
            raise

    async def program(self, plan_id: str, worker: str) -> Document:
        """Program of one worker.

        Parameters
        ----------
        plan_id
            Id of a stored plan.
        worker
            ``pipeline/slot`` as in ``3/5``, or ``rank:17`` where the plan knows the job's layout.

        Raises
        ------
        NotFoundError
            If there is no such plan, or no such live worker in it.
        """
        try:
            await self._require_programs(plan_id)
            try:
                return await self._stored_program(plan_id, worker)
            except CorruptStoreError as error:
                self._tell_damage(plan_id, error)
            await to_thread.run_sync(self.store.drop_programs, plan_id)
            await self._require_programs(plan_id)
            return await self._stored_program(plan_id, worker)
        except NotFoundError as error:
            raise NotFoundError(
                f"plan {plan_id} has no program for worker {worker[:80]!r}",
                hint="expected a live worker as pipeline/slot, such as 3/5, or rank:17 where the plan knows the layout",
            ) from error

    async def close(self) -> None:
        """Wait for what is being worked on to be refused or stored."""
        await self._planning.settle()
        await self._lowering.settle()

    async def _known(self, digest: str) -> PlanAnswer | None:
        """Answer that a request got before; ``None`` where there is none, or it was damaged."""
        known = await to_thread.run_sync(self.store.plan_id_of_request, digest)
        if known is None:
            return None
        try:
            return PlanAnswer(plan_id=known, summary=await self.document(self.store.summary, known), is_new=False)
        except (CorruptStoreError, NotFoundError):
            return None

    async def _require_programs(self, plan_id: str) -> None:
        """Lower the programs of a plan where they are not there."""
        if not await to_thread.run_sync(self._uses.noted, self.store.has_programs, plan_id):
            plan = await self.document(self.store.plan, plan_id)
            await self._lowering.join(plan_id, lambda: self._lower(plan_id, plan))

    async def _stored_program(self, plan_id: str, worker: str) -> Document:
        if worker.startswith("rank:"):
            worker = await to_thread.run_sync(self.store.worker_of_rank, plan_id, worker.removeprefix("rank:"))
        return await to_thread.run_sync(self.store.program, plan_id, worker)

    def _tell_damage(self, plan_id: str, error: CorruptStoreError) -> None:
        _LOG.error("plan %s cannot be used and is dropped: %s", plan_id, error)
        self._telemetry.degraded("plan_corrupt")

    async def _make_plan(self, request: PlanRequest, canonical: bytes, digest: str) -> PlanAnswer:
        """Have a plan made, and remember that the request led to it, unless another try may find a better one."""
        job = request_digest(b"any plan of " + canonical_json(request.job), version=self.version)
        timeout_s = request.options.deadline_s + self.settings.solve_grace_s
        async with self._after_first(job) as first:
            parts = [b"plan", canonical, b"" if first is None else first.content]
            with self._telemetry.solving() as found:
                plan_id, content, summary, hindered = await self.pool.run(parts, timeout_s=timeout_s)
                figures = json.loads(summary)
                found.solver, found.gap = figures["solver"], figures["gap"]
            text = plan_id.decode("ascii")
            pinned = () if hindered else (digest, job)
            is_new = await to_thread.run_sync(
                lambda: self.store.add_plan(text, content=content, summary=summary, requests=pinned)
            )
        # The plan may have been there before, and not have been of use for long.
        stored = await to_thread.run_sync(self._uses.noted, self.store.summary, text)
        return PlanAnswer(plan_id=text, summary=stored, is_new=is_new)

    @asynccontextmanager
    async def _after_first(self, job: str) -> AsyncIterator[Document | None]:
        """Summary of the first plan of a job, whose comparison all others take over; ``None`` to make it in this block.

        Whoever comes while it is made waits for it once: where it fails, nobody waits for another.
        """
        if (making := self._first_plans.get(job)) is not None:
            await making.wait()
        is_first = job not in self._first_plans
        done = self._first_plans.setdefault(job, asyncio.Event())
        try:
            known = await self._known(job)
            if known is not None:
                done.set()
            yield None if known is None else known.summary
        finally:
            if is_first:
                self._first_plans.pop(job).set()

    async def _lower(self, plan_id: str, plan: Document) -> None:
        ranks, *parts = await self.pool.run([b"programs", plan.content], timeout_s=self.settings.solve_grace_s)
        programs = {name.decode("ascii"): program for name, program in zip(parts[::2], parts[1::2], strict=True)}
        await to_thread.run_sync(self.store.add_programs, plan_id, programs, json.loads(ranks))
