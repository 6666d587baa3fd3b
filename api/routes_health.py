"""Routes that tell whether the service works, and how well."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from anyio import to_thread
from fastapi import APIRouter, Request, Response

from api.background import Background
from api.drain import Drain
from api.models import Health
from api.observability.telemetry import CONTENT_TYPE, Telemetry
from api.responses import PROBLEMS
from api.routes_plans import service_of
from planner.errors import StoreError

router = APIRouter(tags=["health"])
_NOT_READY: dict[int | str, dict[str, Any]] = {503: {"model": Health, "description": "Not ready."}}
_METRICS: dict[int | str, dict[str, Any]] = {
    200: {"description": "The metrics.", "content": {"text/plain": {"schema": {"type": "string"}}}}
}
_STORE_TIMEOUT_S = 3.0


@router.get("/healthz", summary="Whether the server answers", response_model=Health, responses={500: PROBLEMS[500]})
async def healthz(request: Request) -> Health:
    """Answer from the event loop alone: 200 for as long as the server lives, however busy its solvers are."""
    return _health(request, "ok")


@router.get(
    "/readyz",
    summary="Whether plans can be made now",
    response_model=Health,
    responses={**_NOT_READY, 500: PROBLEMS[500]},
)
async def readyz(request: Request) -> Response:
    """Answer 200 when the store answers, a solver process is warm and all background tasks run, else 503 with the reason."""
    status = await _status(request)
    content = json.dumps(_health(request, status).model_dump()).encode()
    return Response(content, status_code=200 if status == "ok" else 503, media_type="application/json")


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses={**_METRICS, 500: PROBLEMS[500]},
)
async def metrics(request: Request) -> Response:
    """Answer with all metrics of this server in Prometheus' text form."""
    telemetry: Telemetry = request.app.state.telemetry
    return Response(telemetry.render(), media_type=CONTENT_TYPE)


async def _status(request: Request) -> str:
    """``ok``, or why this server should get no requests."""
    drain: Drain = request.app.state.drain
    if drain.has_begun:
        return "the server is about to stop"
    service = service_of(request)
    if service.pool.num_ready == 0:
        return "no solver process is warm yet"
    background: Background = request.app.state.background
    if background.stopped:
        return f"a task of the server is not at work: {', '.join(background.stopped)}"
    try:
        async with asyncio.timeout(_STORE_TIMEOUT_S):
            # A database that hangs must not hold the answer up; the thread ends by the database's own time-outs.
            await to_thread.run_sync(service.store.check, abandon_on_cancel=True)
    except (StoreError, TimeoutError):
        return "the store does not answer"
    return "ok"


def _health(request: Request, status: str) -> Health:
    service = service_of(request)
    return Health(
        status=status,
        version=service.version,
        solver_processes_ready=service.pool.num_ready,
        requests_waiting=service.pool.num_waiting,
    )
