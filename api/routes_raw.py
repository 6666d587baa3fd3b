"""Routes that answer without FastAPI's own reading of parameters, for what thousands of workers ask at once."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from api.jobs.forms import JOB_ID_PATTERN
from api.jobs.reading import MAX_WAIT_S
from api.store.epochs import MAX_EPOCH

_NUMBER = {"type": "integer", "minimum": 0, "maximum": MAX_EPOCH}


def _parameter(place: str, name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "description": description, "schema": schema}


PARAMETERS = {
    "job_id": _parameter("path", "job_id", "Id of a job.", {"type": "string", "pattern": f"^{JOB_ID_PATTERN}$"}),
    "epoch": _parameter("path", "epoch", "Number of an epoch.", _NUMBER | {"minimum": 1}),
    "worker": _parameter(
        "path",
        "worker",
        "A worker by its own name, pipeline/slot, wherever it stands, or by one of its ranks, rank:17.",
        {"type": "string", "maxLength": 24},
    ),
    "after": _parameter("query", "after", "Newest epoch that the client has.", _NUMBER),
    "wait": _parameter(
        "query",
        "wait",
        "Seconds to wait for an epoch behind `after`.",
        {"type": "number", "minimum": 0, "maximum": MAX_WAIT_S, "default": 0},
    ),
    "Last-Event-ID": _parameter("header", "Last-Event-ID", "Epoch to go on behind; wins over `after`.", _NUMBER),
}


def parameters(*names: str) -> dict[str, Any]:
    """OpenAPI entry of the parameters that an endpoint reads itself."""
    return {"parameters": [PARAMETERS[name] for name in names]}


class RawRoute(APIRoute):
    """Calls its endpoint with the request alone, which reads path, query and headers itself.

    That saves most of what an answer of bytes that are at hand costs. What it reads is told in ``openapi_extra``, see
    :func:`parameters`.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """What is called with a request."""
        endpoint = self.endpoint

        async def handle(request: Request) -> Response:
            answer: Response = await endpoint(request)
            return answer

        return handle
