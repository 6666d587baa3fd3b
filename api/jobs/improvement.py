"""Better plans for what jobs run now, made while nobody waits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias

from anyio import to_thread

from api.background import Background
from api.jobs.drafting import Base
from api.jobs.loaded import LoadedJob
from api.jobs.solving import TemplateMaker
from api.jobs.templates import Templates
from api.observability.telemetry import Telemetry
from api.pool import Priority
from api.recent import Recent
from api.store import EpochRecord
from planner.errors import NotFoundError, ReplanError
from planner.units import us_to_ns

_LOG = logging.getLogger("replan.api.jobs")
_RETRY_S = (1.0, 5.0, 30.0, 120.0)
_MAX_TRIED = 4096
Need: TypeAlias = Literal["nothing", "repair", "replace", "search"]
"""What the plan of an epoch wants: nothing, a plan in place of none or of a damaged one, the better plan that is in the store, or
a longer search."""


class Improver:
    """Looks after the current epochs of jobs.

    One task looks what each job needs, and repairs at once those that have no plan or a damaged one, since their workers
    stand still. Another makes plans better, one job after the other, each job once in its turn.

    Parameters
    ----------
    templates, maker
        Where better plans come from.
    current
        Gives a job's current epoch and the job of its revision, in the event loop.
    improve
        Appends an epoch with a better plan, or another one, behind the epoch it is given; false where the job has moved on.
    deadline_s
        Seconds to search for a better plan.
    threshold
        Relative gain in the period from which it becomes an epoch, 0 to 1.
    telemetry
        Where errors are counted.
    background
        What keeps both tasks running.
    """

    def __init__(
        self,
        *,
        templates: Templates,
        maker: TemplateMaker,
        current: Callable[[str], Awaitable[tuple[EpochRecord, LoadedJob]]],
        improve: Callable[[EpochRecord, LoadedJob], Awaitable[bool]],
        deadline_s: float,
        threshold: float,
        telemetry: Telemetry,
        background: Background,
    ) -> None:
        self._templates = templates
        self._maker = maker
        self._current = current
        self._append_improved = improve
        self._deadline_s = deadline_s
        self._threshold = threshold
        self._telemetry = telemetry
        self._background = background
        self._tried: Recent[str, None] = Recent(_MAX_TRIED)
        self._to_look_at = _Turns()
        self._to_improve = _Turns()
        self._tasks: list[asyncio.Task[None]] = []
        self._later: dict[str, asyncio.TimerHandle] = {}
        self._num_failures: dict[str, int] = {}

    def start(self) -> None:
        """Begin to work."""
        self._tasks = [
            self._background.run("repairing plans", lambda: self._work(self._to_look_at, self._look)),
            self._background.run("improving plans", lambda: self._work(self._to_improve, self._improve)),
        ]

    async def close(self) -> None:
        """Stop; what was being made is given up, and taken up again when a server starts on the same store."""
        for handle in self._later.values():
            handle.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def look_at(self, job_id: str) -> None:
        """Look whether a job's current epoch wants a plan, or a better one."""
        self._to_look_at.add(job_id)

    async def _work(self, turns: _Turns, tend: Callable[[str], Awaitable[None]]) -> None:
        while True:
            job_id = await turns.next()
            try:
                await tend(job_id)
                self._num_failures.pop(job_id, None)
            except NotFoundError:
                self._num_failures.pop(job_id, None)
            except ReplanError as error:
                _LOG.warning("%s", self._try_later(job_id, error))
            except Exception as error:
                self._telemetry.degraded("improvement_failed")
                _LOG.exception("%s", self._try_later(job_id, error))

    def _try_later(self, job_id: str, error: Exception) -> str:
        """Look at a job again after a while; says so."""
        failures = self._num_failures.get(job_id, 0)
        self._num_failures[job_id] = failures + 1
        wait_s = _RETRY_S[min(failures, len(_RETRY_S) - 1)]
        if job_id in self._later:
            self._later[job_id].cancel()
        self._later[job_id] = asyncio.get_running_loop().call_later(wait_s, self._look_again, job_id)
        return f"the plan of job {job_id} is not made better; the next try is in {wait_s:g} s: {error}"

    def _look_again(self, job_id: str) -> None:
        del self._later[job_id]
        self.look_at(job_id)

    async def _look(self, job_id: str) -> None:
        """Repair a job's plan where it must be, else leave it to the task that makes plans better."""
        record, job = await self._current(job_id)
        need = await to_thread.run_sync(self._need, job, Base.of(record))
        if need == "repair":
            await self._replace(record, job)
        elif need != "nothing":
            self._to_improve.add(job_id)

    async def _improve(self, job_id: str) -> None:
        record, job = await self._current(job_id)
        base = Base.of(record)
        need = await to_thread.run_sync(self._need, job, base)
        if need == "search":
            assert record.failure_key is not None
            assert record.template_sha256 is not None
            await self._maker.make(job, record.failure_key, deadline_s=self._deadline_s, priority=Priority.IMPROVEMENT)
            self._tried.put(record.template_sha256, None)
            need = await to_thread.run_sync(self._need, job, base)
        if need == "replace":
            await self._replace(record, job)
        elif need == "repair":
            self.look_at(job_id)

    async def _replace(self, record: EpochRecord, job: LoadedJob) -> None:
        """Put another plan into the place of an epoch's; where the job has moved on, look at what it has now."""
        if not await self._append_improved(record, job):
            self.look_at(record.job_id)

    def _need(self, job: LoadedJob, base: Base) -> Need:
        plan = base.body.plan
        if plan is None:
            assert base.body.problem is not None
            lost = base.body.problem.code in ("stage_lost", "optimizer_shard_lost", "memory_too_small", "no_plan")
            return "nothing" if lost else "repair"
        if self._templates.version(job, plan.failure_key, plan.template) is None:
            return "repair"
        best = self._templates.best(job, plan.failure_key)
        period_ns = us_to_ns(plan.period_us, what="period_us")
        if best is not None and self._pays(period_ns, best.record.period_ns):
            return "replace"
        bound_ns = us_to_ns(plan.bound_us, what="bound_us")
        tried = plan.template in self._tried or plan.deadline_s >= self._deadline_s
        return "search" if self._pays(period_ns, bound_ns) and not tried else "nothing"

    def _pays(self, period_ns: int, better_ns: int) -> bool:
        return better_ns < period_ns and (period_ns - better_ns) >= self._threshold * period_ns


class _Turns:
    """Jobs that wait for their turn, each once, in the order in which they came."""

    def __init__(self) -> None:
        self._waiting: dict[str, None] = {}
        self._woken = asyncio.Event()

    def add(self, job_id: str) -> None:
        """Have a job wait, unless it does."""
        self._waiting[job_id] = None
        self._woken.set()

    async def next(self) -> str:
        """Wait for a job, and take it out."""
        while not self._waiting:
            self._woken.clear()
            await self._woken.wait()
        job_id = next(iter(self._waiting))
        del self._waiting[job_id]
        return job_id
