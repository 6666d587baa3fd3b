"""The FastAPI application: puts store, solver pool, routes and error answers together."""

from __future__ import annotations

import asyncio
import importlib.metadata
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from anyio import CapacityLimiter, to_thread
from fastapi import FastAPI
from pydantic.json_schema import models_json_schema

from api import (
    routes_epochs,
    routes_events,
    routes_health,
    routes_jobs,
    routes_operations,
    routes_page,
    routes_plans,
    routes_views,
)
from api.answers import PlanSummary, WorkerProgram
from api.background import Background
from api.drain import Drain
from api.jobs.epoch_body import EpochBody
from api.jobs.forms import (
    Acknowledgement,
    JobAnswer,
    JobEvent,
    JobRegistration,
    OperationAnswer,
    PrecomputeRequest,
)
from api.jobs.service import JobService
from api.limits import BodyReader
from api.models import PlanRequest, ProblemDetails
from api.observability.middleware import RequestObserver
from api.observability.telemetry import Telemetry
from api.pool import DEFAULT_COMMAND, SolvePool
from api.precompute.engine import PrecomputeEngine
from api.precompute.executors import PoolExecutor
from api.precompute.ray_on_demand import RayOnDemand
from api.problems import install
from api.retention import Pruner, retention_of
from api.security.authenticator import Authenticator, StoredKey
from api.security.middleware import ClientLimits, Gate
from api.security.openapi import describe_access
from api.security.stored_keys import look_up, needs_keys
from api.service import PlanService
from api.settings import Settings
from api.store import Store
from api.store.watch import EpochFeed
from api.views.forms import Cluster, WhatIfRequest
from planner.formats.job_models import JobModel
from planner.formats.plan_document import PlanDocument

_DESCRIPTION = """
Adapted pipeline schedules for training jobs with failed nodes: post a job and what failed, get a validated plan with a
proven gap, and fetch the program of each worker. Errors are RFC 9457 problem documents with a stable `code`.
"""

_FORMS = (
    PlanRequest,
    JobModel,
    ProblemDetails,
    PlanSummary,
    PlanDocument,
    WorkerProgram,
    JobRegistration,
    JobAnswer,
    JobEvent,
    EpochBody,
    Acknowledgement,
    PrecomputeRequest,
    OperationAnswer,
    Cluster,
    WhatIfRequest,
)
"""What routes read and write as bytes."""


def create_app(settings: Settings, *, worker_command: Sequence[str] = DEFAULT_COMMAND) -> FastAPI:
    """Make the application; its store opens and its solver processes start with its lifespan.

    Parameters
    ----------
    settings
        Limits and places.
    worker_command
        How a solver process is started.
    """
    version = importlib.metadata.version("replan")
    telemetry, drain = Telemetry(version=version), Drain()

    # The pages that draw the OpenAPI document load scripts from elsewhere, so only the document is served.
    app = FastAPI(
        title="RePlan",
        version=version,
        description=_DESCRIPTION,
        lifespan=lambda app: _running(app, settings, version, worker_command),
        docs_url=None,
        redoc_url=None,
        # A redirect's address is made of the Host header, and its answer is no problem document.
        redirect_slashes=False,
    )
    app.state.telemetry, app.state.drain = telemetry, drain
    app.state.bodies = BodyReader(max_bytes=settings.max_body_bytes)
    install(app)
    _add_middleware(app, settings, telemetry)
    # In this order: the first route that fits answers, and thousands of workers ask for the first ones at once.
    for routes in (
        routes_epochs,
        routes_events,
        routes_jobs,
        routes_operations,
        routes_plans,
        routes_health,
        routes_views,
        routes_page,
    ):
        app.include_router(routes.router)
    _complete_openapi(app, has_keys=needs_keys(settings))
    return app


@asynccontextmanager
async def _running(
    app: FastAPI, settings: Settings, version: str, worker_command: Sequence[str]
) -> AsyncIterator[None]:
    """Open the store, start what works in the background, and end all of it in the opposite order."""
    telemetry: Telemetry = app.state.telemetry
    drain: Drain = app.state.drain
    store = await to_thread.run_sync(Store, settings.store)
    pool = SolvePool(
        num_processes=settings.solver_processes,
        num_reserved=min(1, settings.solver_processes - 1),
        queue_limit=settings.queue_limit,
        queue_timeout_s=settings.queue_timeout_s,
        warm_up_timeout_s=settings.warm_up_timeout_s,
        command=worker_command,
        on_broken_lane=lambda: telemetry.degraded("solver_lane_failed"),
    )
    service = PlanService(store=store, pool=pool, settings=settings, version=version, telemetry=telemetry)
    background = Background(telemetry)
    feed = EpochFeed(store, run=background.run)
    cluster = None
    if settings.ray_address:
        cluster = RayOnDemand(settings.ray_address, warm_up_timeout_s=settings.warm_up_timeout_s)
    engine = PrecomputeEngine(
        store=store,
        executor=PoolExecutor(pool) if cluster is None else cluster,
        lease_s=settings.operation_lease_s,
        grace_s=settings.solve_grace_s,
        telemetry=telemetry,
        background=background,
    )
    jobs = JobService(
        store=store,
        pool=pool,
        feed=feed,
        engine=engine,
        settings=settings,
        telemetry=telemetry,
        background=background,
    )
    retention = retention_of(settings)
    app.state.service = service
    app.state.jobs = jobs
    app.state.store = store
    app.state.background = background
    telemetry.watch(
        queue_depth=lambda: pool.num_waiting,
        processes_ready=lambda: pool.num_ready,
        is_draining=lambda: drain.has_begun,
    )
    # Whoever waits for an epoch is let go at once when the server is told to stop.
    drain.call_when_begun(feed.close)
    pool.start()
    engine.start()
    pruning = None
    if retention is not None:
        pruning = background.run("deleting what is too old", Pruner(store, retention, telemetry).run)
    try:
        async with feed:
            jobs.start()
            yield
    finally:
        if pruning is not None:
            pruning.cancel()
            await asyncio.gather(pruning, return_exceptions=True)
        await engine.close()
        if cluster is not None:
            await cluster.close()
        await jobs.close()
        await pool.close()
        await service.close()
        await to_thread.run_sync(store.close)


def _add_middleware(app: FastAPI, settings: Settings, telemetry: Telemetry) -> None:
    """Put the gate before all routes, and before the gate what gives requests their ids."""
    # Threads of their own: requests that wait for the store must not keep others from being let in.
    threads = CapacityLimiter(4)

    async def look_up_key(key_id: str) -> StoredKey | None:
        # Given up where the database hangs; the thread ends by the store's own time-outs.
        return await to_thread.run_sync(look_up, app.state.store, key_id, limiter=threads, abandon_on_cancel=True)

    authenticator = None
    if needs_keys(settings):
        authenticator = Authenticator(look_up_key, on_stale=lambda: telemetry.degraded("key_not_checked"))
    limits = ClientLimits(
        read_rate=settings.read_rate,
        change_rate=settings.change_rate,
        refusal_rate=settings.refusal_rate,
        body_timeout_s=settings.body_timeout_s,
    )
    app.add_middleware(Gate, authenticator=authenticator, limits=limits, telemetry=telemetry)
    app.add_middleware(RequestObserver, telemetry=telemetry)


def _complete_openapi(app: FastAPI, *, has_keys: bool) -> None:
    """Add the forms that routes read and write as bytes to the components of the OpenAPI document."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        document = generate()
        _, schemas = models_json_schema(
            [(form, "validation") for form in _FORMS], ref_template="#/components/schemas/{model}"
        )
        document["components"]["schemas"] |= schemas["$defs"]
        for form in (PlanRequest, JobRegistration):
            # A request's job is read by the planner's own reader, which says more of what is wrong in it.
            job = document["components"]["schemas"][form.__name__]["properties"]["job"]
            job["$ref"] = f"#/components/schemas/{JobModel.__name__}"
        describe_access(document, has_keys=has_keys)
        return document

    app.openapi = openapi  # type: ignore[method-assign]
