"""The service's metrics, as one object with a method for each thing that happens."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.process_collector import ProcessCollector

from api.errors import SolveTimeoutError
from planner.errors import NoPlanError, ReplanError, SolverCrashedError

CONTENT_TYPE = CONTENT_TYPE_LATEST

_REQUEST_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
_WAIT_BUCKETS = (1.0, 10.0, 30.0, 60.0, 600.0, 3600.0, 86_400.0)
_SOLVE_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 1.5, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
_GAP_BUCKETS = (0.0, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
_MAX_JOBS = 1000
"""Most jobs with series of their own; beyond, the ones longest without a new epoch go."""


@dataclass(slots=True)
class Found:
    """What a search found, filled in by whoever runs it; ``gap`` stays ``None`` where the bound is 0."""

    solver: str = "unknown"
    gap: float | None = None


class Telemetry:
    """Counts what the service does; :meth:`render` gives it to Prometheus.

    Every method is cheap, thread-safe and never fails, so callers need not guard it. Each server has its own registry.
    """

    def __init__(self, *, version: str = "") -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._jobs: OrderedDict[str, int] = OrderedDict()
        registry = self.registry
        Gauge("replan_info", "1, with the version that serves.", ["version"], registry=registry).labels(version).set(1)
        self._requests = Histogram(
            "replan_request_seconds",
            "Time from a request's headers to the end of its answer, less what it waited for an epoch, by route.",
            ["method", "route", "status"],
            buckets=_REQUEST_BUCKETS,
            registry=registry,
        )
        self._waits = Histogram(
            "replan_wait_seconds",
            "Time that a long poll or a stream waited for epochs, by route.",
            ["route"],
            buckets=_WAIT_BUCKETS,
            registry=registry,
        )
        self._solves = Histogram(
            "replan_solve_seconds",
            "Time that making one plan took in its solver process, by what found the plan and how it ended.",
            ["solver", "outcome"],
            buckets=_SOLVE_BUCKETS,
            registry=registry,
        )
        self._gaps = Histogram(
            "replan_plan_gap_ratio",
            "Gap of made plans to their lower bound, by what found them.",
            ["solver"],
            buckets=_GAP_BUCKETS,
            registry=registry,
        )
        self._lookups = Counter(
            "replan_template_lookups",
            "Events whose failures have a plan, by whether it was there (hit) or had to be solved (miss).",
            ["result"],
            registry=registry,
        )
        self._events = Histogram(
            "replan_event_seconds",
            "Time from a failure event to its durable epoch, by where the plan came from.",
            ["source"],
            buckets=_REQUEST_BUCKETS,
            registry=registry,
        )
        self._epochs = Counter("replan_epochs", "Epochs made, by cause.", ["cause"], registry=registry)
        self._current = Gauge("replan_job_epoch", "Current epoch of a job.", ["job"], registry=registry)
        self._precomputed = Counter(
            "replan_precomputed_plans",
            "Failure keys that precomputing came to, by outcome.",
            ["outcome"],
            registry=registry,
        )
        self._streams = Gauge("replan_open_streams", "Open event streams.", registry=registry)
        self._polls = Gauge("replan_waiting_polls", "Long polls that wait for an epoch.", registry=registry)
        self._refusals = Counter(
            "replan_refused_requests",
            "Requests refused before any route saw them, by code.",
            ["code"],
            registry=registry,
        )
        self._degradations = Counter(
            "replan_degradations",
            "Times the service did less than it should, such as a damaged row that was made anew; the log tells more.",
            ["kind"],
            registry=registry,
        )
        self._pruned = Counter(
            "replan_pruned_rows", "Rows deleted because they were too old, by table.", ["table"], registry=registry
        )
        self._queue = Gauge("replan_queue_depth", "Requests that wait for a solver process.", registry=registry)
        self._ready = Gauge("replan_solver_processes_ready", "Solver processes that are warm.", registry=registry)
        self._draining = Gauge("replan_draining", "1 while the server is about to stop.", registry=registry)
        for result in ("hit", "miss"):
            self._lookups.labels(result)

    def request_finished(
        self, *, method: str, route: str, status: int, seconds: float, waited_s: float | None = None
    ) -> None:
        """Count an answered request.

        Parameters
        ----------
        method, status
            Of the request and its answer.
        route
            A template such as ``/v1/jobs/{job_id}``, never a path.
        seconds
            Time that it took in all.
        waited_s
            Time of it in which there was nothing to do but wait for an epoch; ``None`` where it did not.
        """
        self._requests.labels(method, route, str(status)).observe(max(0.0, seconds - (waited_s or 0.0)))
        if waited_s is not None:
            self._waits.labels(route).observe(waited_s)

    def request_refused(self, code: str) -> None:
        """Count a request that was refused before any route saw it."""
        self._refusals.labels(code).inc()

    @contextmanager
    def solving(self) -> Iterator[Found]:
        """Count a plan that is made within the block, or why it was not; errors pass through."""
        found = Found()
        began = time.perf_counter()
        try:
            yield found
        except ReplanError as error:
            self._solves.labels("none", _outcome(error)).observe(time.perf_counter() - began)
            raise
        self._solves.labels(found.solver, "solved").observe(time.perf_counter() - began)
        if found.gap is not None:
            self._gaps.labels(found.solver).observe(found.gap)

    def template_looked_up(self, *, hit: bool) -> None:
        """Count an event for whose failures there is a plan: a hit where nothing had to be solved for it."""
        self._lookups.labels("hit" if hit else "miss").inc()

    def event_answered(self, *, source: str, seconds: float) -> None:
        """Count an answered failure event; ``source`` is that of the epoch's body, ``"none"`` where there is no plan."""
        self._events.labels(source).observe(seconds)

    def epoch_made(self, *, job_id: str, epoch: int, cause: str) -> None:
        """Count a new epoch, made here or seen from another server."""
        self._epochs.labels(cause).inc()
        self._current.labels(job_id).set(epoch)
        self._jobs[job_id] = epoch
        self._jobs.move_to_end(job_id)
        if len(self._jobs) > _MAX_JOBS:
            self._drop(next(iter(self._jobs)))

    def forget_epochs(self, is_gone: Callable[[str, int], bool]) -> None:
        """Forget the series of jobs whose epoch went with a deleted job."""
        for job_id in [job_id for job_id, epoch in self._jobs.items() if is_gone(job_id, epoch)]:
            self._drop(job_id)

    def _drop(self, job_id: str) -> None:
        del self._jobs[job_id]
        self._current.remove(job_id)

    def key_precomputed(self, outcome: Literal["done", "failed"]) -> None:
        """Count a failure key that precomputing came to, but for those that had a plan already."""
        self._precomputed.labels(outcome).inc()

    def degraded(self, kind: str) -> None:
        """Count that the service did less than it should; ``kind`` is one of a few fixed words."""
        self._degradations.labels(kind).inc()

    def pruned(self, table: str, rows: int) -> None:
        """Count rows that were deleted because they were too old."""
        self._pruned.labels(table).inc(rows)

    @contextmanager
    def stream(self) -> Iterator[None]:
        """Count an open stream for as long as the block runs."""
        with self._streams.track_inprogress():
            yield

    @contextmanager
    def poll(self) -> Iterator[None]:
        """Count a waiting long poll for as long as the block runs."""
        with self._polls.track_inprogress():
            yield

    def watch(
        self, *, queue_depth: Callable[[], int], processes_ready: Callable[[], int], is_draining: Callable[[], bool]
    ) -> None:
        """Name what tells the figures that are looked up whenever metrics are asked for."""
        self._queue.set_function(queue_depth)
        self._ready.set_function(processes_ready)
        self._draining.set_function(lambda: float(is_draining()))

    def render(self) -> bytes:
        """All metrics in the form of :data:`CONTENT_TYPE`."""
        return generate_latest(self.registry)


def _outcome(error: ReplanError) -> str:
    if isinstance(error, NoPlanError):
        return "no_plan"
    if isinstance(error, SolveTimeoutError):
        return "timeout"
    return "crashed" if isinstance(error, SolverCrashedError) else "failed"
