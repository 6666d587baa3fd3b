"""How all jobs stand, for people: kept for a moment, so that many pages cost no more than one."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime

from anyio import to_thread

from api.errors import CorruptStoreError
from api.jobs.acknowledging import Acknowledger
from api.jobs.epoch_body import EpochBody, read_body
from api.jobs.loaded import JobCache, LoadedJob
from api.jobs.watching import Watcher
from api.store import DamagedJob, EpochRecord, JobEntry, Store
from api.store.watch import EpochFeed
from api.views.forms import JobOverview, Overview
from api.views.spare import spare_workers
from api.views.weak import down_targets, weak_slots
from planner.errors import NotFoundError, ReplanError
from planner.operation import parse_worker

FRESH_S = 1.0
"""Seconds for which an overview is good while no epoch comes: acknowledgements show up that much later."""
BEAT_S = 2.0
"""Seconds after which a stream says something, so that a page soon knows that it has lost the service."""
_PAGE = 1000
_RETRY_MS = (300, 1500)
_SHOWN = 16
_MOST_NODES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """What is known of each job, by id, and the ids of those that cannot be read."""

    jobs: dict[str, JobOverview]
    damaged: tuple[str, ...]


class Overviews:
    """Reads how all jobs stand.

    Parameters
    ----------
    store, feed, watcher, acknowledger, jobs
        Where jobs, epochs and acknowledgements are read; owned by the caller.
    version
        Version of RePlan.
    """

    def __init__(
        self,
        *,
        store: Store,
        feed: EpochFeed,
        watcher: Watcher,
        acknowledger: Acknowledger,
        jobs: JobCache,
        version: str,
    ) -> None:
        self._store = store
        self._feed = feed
        self._watcher = watcher
        self._acknowledger = acknowledger
        self._jobs = jobs
        self._version = version
        self._lock = asyncio.Lock()
        self._kept: tuple[int, float, _Rows] | None = None
        self._facts: dict[str, tuple[EpochRecord, JobOverview]] = {}

    async def read(self) -> Overview:
        """How all jobs stand now; raises :class:`ReplanError` where the store cannot be read."""
        return self._overview(await self._rows())

    async def stream(self) -> AsyncIterator[bytes]:
        """Server-sent events: ``overview`` with all jobs first, then ``job`` for each that changed and ``gone`` for deleted ones.

        ``overview`` comes again where other jobs are damaged than before, ``beat`` every two seconds in between, ``trouble`` in
        its place where the store does not answer.
        """
        yield f"retry: {random.randint(*_RETRY_MS)}\n\n".encode()
        shown: _Rows | None = None
        while not self._feed.is_closed:
            seen = self._feed.num_changes
            try:
                rows = await self._rows()
            except ReplanError as error:
                yield _frame("trouble", f'{{"code":"{error.code}"}}')
            else:
                if shown is None or shown.damaged != rows.damaged:
                    yield _frame("overview", self._overview(rows).model_dump_json())
                else:
                    for job_id, row in rows.jobs.items():
                        if shown.jobs.get(job_id) != row:
                            yield _frame("job", row.model_dump_json())
                    for job_id in shown.jobs.keys() - rows.jobs.keys():
                        yield _frame("gone", f'{{"id":"{job_id}"}}')
                    yield _frame("beat", f'{{"now":"{_text(datetime.now(UTC))}"}}')
                shown = rows
            await self._feed.wait_for_any(seen, BEAT_S)

    def _overview(self, rows: _Rows) -> Overview:
        return Overview(
            version=self._version,
            now=_text(datetime.now(UTC)),
            jobs=list(rows.jobs.values()),
            damaged=list(rows.damaged),
        )

    async def _rows(self) -> _Rows:
        async with self._lock:
            changes, now = self._feed.num_changes, time.monotonic()
            if self._kept is not None and self._kept[0] == changes and now - self._kept[1] < FRESH_S:
                return self._kept[2]
            jobs: dict[str, JobOverview] = {}
            damaged: list[str] = []
            for entry in await to_thread.run_sync(self._entries):
                try:
                    if isinstance(entry, JobEntry):
                        jobs[entry.job_id] = await self._row(entry)
                    else:
                        damaged.append(entry.job_id)
                except CorruptStoreError:
                    # One that cannot be read must not hide the others.
                    damaged.append(entry.job_id)
                except NotFoundError:
                    continue  # deleted meanwhile
            self._facts = {job_id: self._facts[job_id] for job_id in jobs}
            self._kept = (changes, now, _Rows(jobs=jobs, damaged=tuple(damaged)))
            return self._kept[2]

    def _entries(self) -> list[JobEntry | DamagedJob]:
        """All jobs that have an epoch; those whose first one is still being worked out are not shown yet."""
        found: list[JobEntry | DamagedJob] = []
        while True:
            page = self._store.jobs_behind(found[-1].job_id if found else None, _PAGE)
            found += page
            if len(page) < _PAGE:
                return [entry for entry in found if isinstance(entry, DamagedJob) or entry.current_epoch]

    async def _row(self, entry: JobEntry) -> JobOverview:
        known = self._facts.get(entry.job_id)
        if known is None or known[0].epoch != entry.current_epoch or known[0].revision > entry.revision:
            record = await self._watcher.newer(entry.job_id, None, 0, nullcontext())
            assert record is not None, "without an epoch to wait for there is always one"
            known = (record, await to_thread.run_sync(self._fact, record))
        record, row = known
        if row.num_acknowledged < row.num_live:
            row = await self._with_acknowledgements(record, row)
        self._facts[entry.job_id] = (record, row)
        return row

    def _fact(self, record: EpochRecord) -> JobOverview:
        body = read_body(record.body)
        loaded = self._jobs.load(self._store.job_revision(record.job_id, record.revision).document)
        return _row_of(body, loaded, self._store.last_report_at(record.job_id))

    async def _with_acknowledgements(self, record: EpochRecord, row: JobOverview) -> JobOverview:
        roster = await self._acknowledger.roster(record.job_id, record.epoch)
        records = await to_thread.run_sync(self._store.acknowledgements, record.job_id, record.epoch)
        have = {found.worker for found in records}
        missing = [name for name in roster.live if name not in have]
        return row.model_copy(update={"num_acknowledged": len(roster.live) - len(missing), "missing": missing[:_SHOWN]})


def _row_of(body: EpochBody, loaded: LoadedJob, last_report_at: datetime | None) -> JobOverview:
    job, plan, problem = loaded.job, body.plan, body.problem
    rung = next((rung for rung in body.ladder if rung.name == body.chosen), None)
    num_workers = job.num_pipelines * job.num_slots
    nodes = body.failures.nodes
    return JobOverview(
        id=body.job,
        name=job.name,
        epoch=body.epoch,
        revision=body.revision,
        cause=body.cause,
        created_at=body.created_at,
        last_event_at=None if last_report_at is None else _text(last_report_at),
        failed_nodes=nodes if len(nodes) <= _MOST_NODES else f"{nodes[:_MOST_NODES]}...",
        down=down_targets(body),
        weak=weak_slots(job, body),
        num_workers=num_workers,
        num_failed=len(body.failed_workers),
        num_degraded=len(body.failures.degraded),
        has_plan=plan is not None,
        problem_code=None if problem is None else problem.code,
        problem=None if problem is None else problem.message,
        hint=None if problem is None else problem.hint,
        period_us=None if plan is None else plan.period_us,
        bound_us=None if plan is None else plan.bound_us,
        gap=None if plan is None else plan.gap,
        throughput_kept=None if plan is None else plan.throughput_kept,
        chosen=body.chosen,
        lost_s=None if rung is None else rung.lost_s,
        certain=spare_workers(
            job,
            frozenset(parse_worker(text) for text in body.failed_workers),
            {parse_worker(entry.worker): parse_worker(entry.position) for entry in body.moved},
        ),
        num_migrations=len(body.migrations),
        num_live=num_workers - len(body.failed_workers),
        num_acknowledged=0,
        missing=[],
    )


def _frame(event: str, data: str) -> bytes:
    return f"event: {event}\ndata: {data}\n\n".encode()


def _text(when: datetime) -> str:
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
