"""Routes that the page draws from: the overview of all jobs, maps, drawings of plans, what-ifs."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from api.jobs.reading import EpochNumber, JobId
from api.observability.waiting import waiting
from api.responses import JSON, NOT_MODIFIED, body_of, json_of, matches, packed, problems
from api.routes_jobs import jobs_of, read_request
from api.views.drawing import Drawing
from api.views.forms import Cluster, Heat, Overview, WhatIfAnswer, WhatIfRequest
from api.views.views import Views
from planner.formats.timeline_file import MEDIA_TYPE as TIMELINE

router = APIRouter(prefix="/v1", tags=["page"])
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events: `overview` first, an Overview; then `job`, a JobOverview, for each job that changed, "
        "`gone` with the `id` of one that was deleted, `beat` every 2 s, and `trouble` with a `code` where the store does not "
        "answer.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_TIMELINE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The timeline: `RPTL`, the length of a JSON head, the head, and columns of numbers that it names.",
        "content": {TIMELINE: _BINARY},
    },
    304: NOT_MODIFIED,
}
_TRACE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A Chrome trace; ui.perfetto.dev opens it.",
        "content": {JSON: {"schema": {"type": "object"}}},
    },
    304: NOT_MODIFIED,
}
FaultFree = Annotated[bool, Query(description="The plan with everybody live instead of the epoch's own.")]

OfEpoch = Annotated[
    int | None,
    Query(description="Epoch whose revision of the job is told of; left out: the newest revision.", ge=1, lt=2**31),
]


def views_of(request: Request) -> Views:
    """What people look at, of the application that got this request."""
    return jobs_of(request).views


@router.get("/overview", summary="See how all jobs stand", response_model=Overview, responses=problems(500, 503))
async def get_overview(request: Request) -> Overview:
    """Give the state of every job: what is down, what it costs, how close the plan is to the best, who lacks it."""
    return await views_of(request).overviews.read()


@router.get(
    "/overview/stream",
    summary="Follow how all jobs stand",
    response_class=Response,
    responses={**_STREAM, **problems(500)},
)
async def get_overview_stream(request: Request) -> Response:
    """Send how all jobs stand, then each change as it comes."""
    service = jobs_of(request)

    async def counted() -> Any:
        with waiting(request.scope, service.telemetry.stream()):
            async for frame in service.views.overviews.stream():
                yield frame

    return StreamingResponse(
        counted(),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


@router.get(
    "/jobs/{job_id}/cluster",
    summary="See who runs where",
    response_class=Response,
    responses={
        200: {"description": "Nodes and racks of each worker.", "content": json_of(Cluster)},
        304: NOT_MODIFIED,
        **problems(404, 422, 500, 503),
    },
)
async def get_cluster(request: Request, job_id: JobId, epoch: OfEpoch = None) -> Response:
    """Give the nodes and racks of each worker, in a job's newest revision or in that of an epoch."""
    tag, content = await views_of(request).cluster(job_id, epoch)
    etag, headers = f'"{tag}"', {"ETag": f'"{tag}"', "Cache-Control": "private, no-cache"}
    if matches(request.headers.getlist("if-none-match"), etag):
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=JSON, headers=headers)


@router.get(
    "/jobs/{job_id}/epochs/{epoch}/timeline",
    summary="Get what a plan is drawn from",
    response_class=Response,
    responses={**_TIMELINE, **problems(404, 409, 422, 500, 503, 504)},
)
async def get_timeline(request: Request, job_id: JobId, epoch: EpochNumber, fault_free: FaultFree = False) -> Response:
    """Give every operation's place and time, syncs and memory, in columns of numbers."""
    drawer = views_of(request).drawer
    draw = drawer.of_fault_free if fault_free else drawer.of_epoch
    drawn = await draw(job_id, epoch, Drawing.TIMELINE)
    return packed(request, drawn.content, f'"{drawn.plan_id}-timeline"', media_type=TIMELINE)


@router.get(
    "/jobs/{job_id}/epochs/{epoch}/trace",
    summary="Get a plan's trace for Perfetto",
    response_class=Response,
    responses={**_TRACE, **problems(404, 409, 422, 500, 503, 504)},
)
async def get_trace(request: Request, job_id: JobId, epoch: EpochNumber) -> Response:
    """Give the same trace that ``replan show --trace`` writes, of all workers."""
    drawn = await views_of(request).drawer.of_epoch(job_id, epoch, Drawing.TRACE)
    return packed(request, drawn.content, f'"{drawn.plan_id}-trace"')


@router.post(
    "/jobs/{job_id}/what-if",
    summary="See what events would lead to",
    response_model=WhatIfAnswer,
    responses=problems(404, 409, 413, 415, 422, 500, 503),
    openapi_extra=body_of(WhatIfRequest),
)
async def post_what_if(request: Request, job_id: JobId) -> WhatIfAnswer:
    """Work out the epoch that would follow these events, with its plan, moves and connections. The job is not touched."""
    form = await read_request(request, WhatIfRequest)
    return await views_of(request).trials.work_out(job_id, form)


@router.get(
    "/jobs/{job_id}/heat",
    summary="See which node hurts most",
    response_model=Heat,
    responses=problems(404, 422, 500, 503),
)
async def get_heat(request: Request, job_id: JobId) -> Heat:
    """Tell what the loss of each node would lead to by the plans that are ready, and how many more failures the job can take."""
    return await views_of(request).heat(job_id)
