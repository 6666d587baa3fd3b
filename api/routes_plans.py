"""Routes of plans and programs."""

from __future__ import annotations

from typing import Annotated, Any, cast

from anyio import to_thread
from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel

from api.answers import PlanSummary, WorkerProgram
from api.limits import parse_body, read_body
from api.models import PlanRequest, ProblemDetails, read_plan_request
from api.problems import MEDIA_TYPE
from api.service import PlanService
from api.store import Document
from planner.formats.plan_document import PlanDocument

router = APIRouter(prefix="/v1", tags=["plans"])

JSON = "application/json"
IMMUTABLE = "private, max-age=31536000, immutable"
PROBLEM_REF = {"$ref": f"#/components/schemas/{ProblemDetails.__name__}"}
PROBLEMS: dict[int, dict[str, Any]] = {
    status: {"description": description, "content": {MEDIA_TYPE: {"schema": PROBLEM_REF}}}
    for status, description in {
        404: "There is no such plan, or it has no such live worker.",
        409: "The request is sound, but no rerouting can answer it: stage_lost, optimizer_shard_lost, memory_too_small.",
        413: "The body is larger or nested deeper than allowed.",
        415: "The body is not application/json.",
        422: "The body, the job, the failures or an option is not what it should be.",
        500: "A fault of the service.",
        503: "The queue is full, the wait in it was too long, or the store does not answer; see Retry-After.",
        504: "The solver ran far past its deadline and was stopped.",
    }.items()
}
PlanId = Annotated[str, Path(description="Id of a plan: 64 hexadecimal digits.", max_length=64)]
_NOT_MODIFIED = {"description": "The client has it already (If-None-Match)."}


def service_of(request: Request) -> PlanService:
    """Service of the application that got this request."""
    return cast("PlanService", request.app.state.service)


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI entries of the problem answers with these statuses."""
    return {status: PROBLEMS[status] for status in statuses}


def _json_of(form: type[BaseModel]) -> dict[str, Any]:
    return {JSON: {"schema": {"$ref": f"#/components/schemas/{form.__name__}"}}}


@router.post(
    "/plans",
    summary="Make a plan",
    status_code=201,
    responses={
        201: {"description": "A new plan; Location names it.", "content": _json_of(PlanSummary)},
        200: {"description": "The plan was made before.", "content": _json_of(PlanSummary)},
        **problems(409, 413, 415, 422, 500, 503, 504),
    },
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": _json_of(PlanRequest),
        }
    },
)
async def post_plan(request: Request) -> Response:
    """Plan a job under a failure set. The answer is the plan's summary; the same request again gives the same plan."""
    service = service_of(request)
    max_bytes = service.settings.max_body_bytes
    body = await read_body(request, max_bytes=max_bytes)
    form = await to_thread.run_sync(lambda: read_plan_request(parse_body(body, max_bytes=max_bytes)))
    answer = await service.plan(form)
    return Response(
        answer.summary.content,
        status_code=201 if answer.is_new else 200,
        media_type=JSON,
        headers={"Location": f"/v1/plans/{answer.plan_id}"},
    )


@router.get(
    "/plans/{plan_id}",
    summary="Get a plan file",
    responses={
        200: {"description": "The plan file's bytes.", "content": _json_of(PlanDocument)},
        304: _NOT_MODIFIED,
        **problems(404, 422, 500, 503),
    },
)
async def get_plan(request: Request, plan_id: PlanId) -> Response:
    """Give the plan file as it is stored; ``replan validate``, ``replay`` and ``show`` read it."""
    return _stored(request, await to_thread.run_sync(service_of(request).store.plan, plan_id))


@router.get(
    "/plans/{plan_id}/summary",
    summary="Get a plan's summary",
    responses={
        200: {"description": "The summary.", "content": _json_of(PlanSummary)},
        304: _NOT_MODIFIED,
        **problems(404, 422, 500, 503),
    },
)
async def get_summary(request: Request, plan_id: PlanId) -> Response:
    """Give the same summary that the request for the plan was answered with."""
    return _stored(request, await to_thread.run_sync(service_of(request).store.summary, plan_id))


@router.get(
    "/plans/{plan_id}/programs/{worker:path}",
    summary="Get a worker's program",
    responses={
        200: {"description": "What the worker runs.", "content": _json_of(WorkerProgram)},
        304: _NOT_MODIFIED,
        **problems(404, 422, 500, 503, 504),
    },
)
async def get_program(
    request: Request,
    plan_id: PlanId,
    worker: Annotated[
        str, Path(description="pipeline/slot, such as 3/5, or rank:17 where the plan knows the layout.", max_length=24)
    ],
) -> Response:
    """Give one worker's program: its operations with sends, receives, all-reduce and optimizer step."""
    return _stored(request, await service_of(request).program(plan_id, worker))


def _stored(request: Request, document: Document) -> Response:
    """Stored bytes as they are, or 304 where the client has them."""
    etag = f'"{document.sha256}"'
    headers = {"ETag": etag, "Cache-Control": IMMUTABLE}
    if _matches(request.headers.getlist("if-none-match"), etag):
        return Response(status_code=304, headers=headers)
    return Response(document.content, media_type=JSON, headers=headers)


def _matches(if_none_match: list[str], etag: str) -> bool:
    """Whether an If-None-Match header holds the tag; comparison is weak, as RFC 9110 asks."""
    tags = [tag.strip().removeprefix("W/") for line in if_none_match for tag in line.split(",")]
    return etag in tags or "*" in tags
