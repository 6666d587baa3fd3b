"""What if: the epoch that would follow some events, worked out as a real one is, and then thrown away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from anyio import to_thread

from api.errors import EpochConflictError, OverloadedError
from api.jobs.drafting import Base, Change, Draft, Drafter
from api.jobs.epoch_body import EpochPlan
from api.jobs.forms import JobEvent
from api.jobs.loaded import LoadedJob
from api.jobs.reports import change_of
from api.jobs.solving import TemplateMaker
from api.jobs.templates import Templates
from api.observability.telemetry import Telemetry
from api.pool import Priority
from api.store import EpochRecord
from api.views.forms import TriedReroute, WhatIfAnswer, WhatIfRequest
from planner.failure_state import FailureState, to_failure_set
from planner.formats.relabelling_file import relabelling_from_document
from planner.operation import Worker

MAX_AT_ONCE = 8
"""Most trials that wait or run; each may need a search."""
_MAX_REROUTES = 10_000
Current: TypeAlias = Callable[[str], Awaitable[tuple[EpochRecord, LoadedJob]]]
"""Current epoch of a job, for its newest revision."""


class Trials:
    """Works out what events would lead to.

    A plan that is not there yet is searched for as for a real event, and kept: when the failure comes it is ready. The search
    runs in the background of real ones, so a trial never keeps an event waiting. A trial counts as no look-up of the
    service's metrics.

    Parameters
    ----------
    current
        How the current epoch of a job is read.
    templates, maker
        Where plans come from.
    event_deadline_s
        Seconds to search for a plan.
    timeout_s
        Seconds that a trial may take in all.
    """

    def __init__(
        self, *, current: Current, templates: Templates, maker: TemplateMaker, event_deadline_s: float, timeout_s: float
    ) -> None:
        self._current = current
        self._templates = templates
        self._drafter = Drafter(
            templates=templates, maker=maker, telemetry=Telemetry(), event_deadline_s=event_deadline_s
        )
        self._timeout_s = timeout_s
        self._num_running = 0

    async def work_out(self, job_id: str, form: WhatIfRequest) -> WhatIfAnswer:
        """Epoch that would follow if these events were reported now.

        Raises
        ------
        NotFoundError
            If there is no such job.
        EpochConflictError
            If it has another epoch than the request expects.
        FailureSetError, HostlistError
            If an event does not fit what is there before it.
        OverloadedError
            If too many trials run, or this one takes too long.
        """
        if self._num_running >= MAX_AT_ONCE:
            raise OverloadedError(f"{self._num_running} what-ifs are being worked out; expected at most {MAX_AT_ONCE}")
        self._num_running += 1
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._work_out(job_id, form)
        except TimeoutError as error:
            raise OverloadedError(f"the what-if was not worked out within {self._timeout_s:g} s") from error
        finally:
            self._num_running -= 1

    async def _work_out(self, job_id: str, form: WhatIfRequest) -> WhatIfAnswer:
        record, loaded = await self._current(job_id)
        if form.expected_epoch is not None and form.expected_epoch != record.epoch:
            raise EpochConflictError(
                f"job {job_id!r} is at epoch {record.epoch}; the what-if expected {form.expected_epoch}",
                hint="look at the current epoch and try again",
                current=record.epoch,
            )
        base = await to_thread.run_sync(Base.of, record)
        change = await to_thread.run_sync(_change_of_all, loaded, base, form.events)
        draft = await self._drafter.draft(job_id, record.revision, loaded, base, change, Priority.IMPROVEMENT)
        reroutes = await to_thread.run_sync(self._reroutes, loaded, draft)
        old = base.body.plan
        return WhatIfAnswer(
            base_epoch=record.epoch,
            base_period_us=None if old is None else old.period_us,
            would_be=draft.body.model_copy(update={"epoch": record.epoch + 1}),
            reroutes=reroutes,
        )

    def _reroutes(self, loaded: LoadedJob, draft: Draft) -> list[TriedReroute]:
        plan: EpochPlan | None = draft.body.plan
        if plan is None:
            return []
        known = self._templates.version(loaded, plan.failure_key, plan.template)
        if known is None:
            return []
        who = relabelling_from_document(
            plan.relabelling.model_dump(),
            num_pipelines=loaded.job.num_pipelines,
            num_slots=loaded.job.num_slots,
            dead=frozenset(),
        )
        return [
            TriedReroute(
                slot=slot,
                home=int(who.home[home]),
                runs_on=str(who.worker(Worker(helper, slot))),
                microbatches=count,
            )
            for home, slot, helper, count in known.template.reroutes[:_MAX_REROUTES].tolist()
        ]


def _change_of_all(loaded: LoadedJob, base: Base, events: list[JobEvent]) -> Change:
    """What all the events together make of an epoch, each on top of the one before it."""
    state: FailureState = base.state
    dead, restored = base.dead, base.body.shards_restored
    change = Change(cause="event", state=state)
    for event in events:
        change = change_of(loaded, state, event, dead=dead, shards_restored=restored)
        state, restored = change.state, change.shards_restored
        dead = to_failure_set(loaded.job, state).dead
    return change
