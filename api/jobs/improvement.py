"""Better plans for what jobs run now, made while nobody waits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias

from anyio import to_thread

from api.jobs.drafting import Base
from api.jobs.loaded import LoadedJob
from api.jobs.solving import TemplateMaker
from api.jobs.templates import Templates
from api.pool import Priority
from api.store import EpochRecord
from planner.errors import NotFoundError, ReplanError
from planner.units import us_to_ns

_LOG = logging.getLogger("replan.api.jobs")
_RETRY_S = (1.0, 5.0, 30.0, 120.0)
Need: TypeAlias = Literal["nothing", "better", "another"]


class Improver:
    """Looks after the current epochs of jobs, one job at a time.

    Parameters
    ----------
    templates, maker
        Where better plans come from.
    current
        Gives a job's current epoch and the job of its revision, in the event loop.
    follow
        Appends an epoch with a better plan, or another one, behind the epoch it is given.
    deadline_s
        Seconds to search for a better plan.
    threshold
        Relative gain in the period from which it becomes an epoch, 0 to 1.
    """

    def __init__(
        self,
        *,
        templates: Templates,
        maker: TemplateMaker,
        current: Callable[[str], Awaitable[tuple[EpochRecord, LoadedJob] | None]],
        follow: Callable[[EpochRecord, LoadedJob], Awaitable[None]],
        deadline_s: float,
        threshold: float,
    ) -> None:
        self._templates = templates
        self._maker = maker
        self._current = current
        self._follow = follow
        self._deadline_s = deadline_s
        self._threshold = threshold
        self._tried: set[str] = set()
        self._waiting: dict[str, None] = {}
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._later: set[asyncio.TimerHandle] = set()
        self._num_failures: dict[str, int] = {}

    def start(self) -> None:
        """Begin to work."""
        self._task = asyncio.create_task(self._work())

    async def close(self) -> None:
        """Stop; what was being made is given up, and taken up again when a server starts on the same store."""
        for handle in self._later:
            handle.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def look_at(self, job_id: str) -> None:
        """Look whether a job's current epoch wants a plan, or a better one."""
        self._waiting[job_id] = None
        self._woken.set()

    async def _work(self) -> None:
        while True:
            while self._waiting:
                job_id = next(iter(self._waiting))
                del self._waiting[job_id]
                await self._tend(job_id)
            self._woken.clear()
            await self._woken.wait()

    async def _tend(self, job_id: str) -> None:
        try:
            await self._improve(job_id)
            self._num_failures.pop(job_id, None)
        except NotFoundError:
            self._num_failures.pop(job_id, None)
        except ReplanError as error:
            failures = self._num_failures.get(job_id, 0)
            self._num_failures[job_id] = failures + 1
            wait_s = _RETRY_S[min(failures, len(_RETRY_S) - 1)]
            _LOG.warning("the plan of job %s is not made better; the next try is in %g s: %s", job_id, wait_s, error)
            handle = asyncio.get_running_loop().call_later(wait_s, self.look_at, job_id)
            self._later = {
                other for other in self._later if not other.cancelled() and other.when() > handle.when() - 200
            }
            self._later.add(handle)

    async def _improve(self, job_id: str) -> None:
        found = await self._current(job_id)
        if found is None:
            return
        record, job = found
        base = Base.of(record)
        need = await to_thread.run_sync(self._need, job, base)
        if need == "better":
            assert record.failure_key is not None
            assert record.template_sha256 is not None
            await self._maker.make(job, record.failure_key, deadline_s=self._deadline_s, priority=Priority.IMPROVEMENT)
            self._tried.add(record.template_sha256)
            need = await to_thread.run_sync(self._need, job, base)
        if need == "another":
            await self._follow(record, job)

    def _need(self, job: LoadedJob, base: Base) -> Need:
        """What the plan of an epoch wants: another one in its place, a longer search, or nothing."""
        plan = base.body.plan
        if plan is None:
            assert base.body.problem is not None
            lost = base.body.problem.code in ("stage_lost", "optimizer_shard_lost", "memory_too_small", "no_plan")
            return "nothing" if lost else "another"
        if self._templates.version(job, plan.failure_key, plan.template) is None:
            return "another"
        best = self._templates.best(job, plan.failure_key)
        period_ns = us_to_ns(plan.period_us, what="period_us")
        if best is not None and self._pays(period_ns, best.record.period_ns):
            return "another"
        bound_ns = us_to_ns(plan.bound_us, what="bound_us")
        tried = plan.template in self._tried or plan.deadline_s >= self._deadline_s
        return "better" if self._pays(period_ns, bound_ns) and not tried else "nothing"

    def _pays(self, period_ns: int, better_ns: int) -> bool:
        return better_ns < period_ns and (period_ns - better_ns) >= self._threshold * period_ns
