"""Routes of plans and programs."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import APIRouter, Path, Request, Response

from api.answers import PlanSummary, WorkerProgram
from api.limits import BodyReader
from api.models import PlanRequest
from api.responses import JSON, body_of, document_answers, json_of, problems, stored
from api.service import PlanService
from api.store import Document
from planner.formats.plan_document import PlanDocument

router = APIRouter(prefix="/v1", tags=["plans"])

PlanId = Annotated[str, Path(description="Id of a plan: 64 hexadecimal digits.", max_length=64)]


def service_of(request: Request) -> PlanService:
    """Service of the application that got this request."""
    return cast("PlanService", request.app.state.service)


@router.post(
    "/plans",
    summary="Make a plan",
    status_code=201,
    responses={
        201: {"description": "A new plan; Location names it.", "content": json_of(PlanSummary)},
        200: {"description": "The plan was made before.", "content": json_of(PlanSummary)},
        **problems(409, 413, 415, 422, 500, 503, 504),
    },
    openapi_extra=body_of(PlanRequest),
)
async def post_plan(request: Request) -> Response:
    """Plan a job under a failure set. The answer is the plan's summary; the same request again gives the same plan."""
    form = await cast("BodyReader", request.app.state.bodies).read(request, PlanRequest)
    answer = await service_of(request).plan(form)
    return Response(
        answer.summary.content,
        status_code=201 if answer.is_new else 200,
        media_type=JSON,
        headers={"Location": f"/v1/plans/{answer.plan_id}"},
    )


@router.get(
    "/plans/{plan_id}", summary="Get a plan file", responses=document_answers(PlanDocument, "The plan file's bytes.")
)
async def get_plan(request: Request, plan_id: PlanId) -> Response:
    """Give the plan file as it is stored; ``replan validate``, ``replay`` and ``show`` read it."""
    service = service_of(request)
    return _stored(request, await service.document(service.store.plan, plan_id))


@router.get(
    "/plans/{plan_id}/summary",
    summary="Get a plan's summary",
    responses=document_answers(PlanSummary, "The summary."),
)
async def get_summary(request: Request, plan_id: PlanId) -> Response:
    """Give the same summary that the request for the plan was answered with."""
    service = service_of(request)
    return _stored(request, await service.document(service.store.summary, plan_id))


@router.get(
    "/plans/{plan_id}/programs/{worker:path}",
    summary="Get a worker's program",
    responses=document_answers(WorkerProgram, "What the worker runs.", 504),
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
    return stored(request, document.content, document.sha256)
