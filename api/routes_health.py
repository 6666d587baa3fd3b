"""Routes that tell whether the service works."""

from __future__ import annotations

import json
from typing import Any

from anyio import to_thread
from fastapi import APIRouter, Request, Response

from api.models import Health
from api.responses import PROBLEMS
from api.routes_plans import service_of

router = APIRouter(tags=["health"])
_NOT_READY: dict[int | str, dict[str, Any]] = {503: {"model": Health, "description": "Not ready."}}


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
    """Answer 200 when the store answers and at least one solver process is warm, else 503 with the reason."""
    service = service_of(request)
    status = "ok"
    if service.pool.num_ready == 0:
        status = "no solver process is warm yet"
    else:
        await to_thread.run_sync(service.store.check)
    content = json.dumps(_health(request, status).model_dump()).encode()
    return Response(content, status_code=200 if status == "ok" else 503, media_type="application/json")


def _health(request: Request, status: str) -> Health:
    service = service_of(request)
    return Health(
        status=status,
        version=service.version,
        solver_processes_ready=service.pool.num_ready,
        requests_waiting=service.pool.num_waiting,
    )
