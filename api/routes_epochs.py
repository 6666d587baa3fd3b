"""Routes that workers read epochs and their programs by."""

from __future__ import annotations

import hashlib
from typing import Any

from anyio import to_thread
from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from api.answers import WorkerProgram
from api.jobs.epoch_body import EpochBody
from api.jobs.materialise import Materialised
from api.jobs.reading import after_of, epoch_of, job_id_of, last_event_of, no_live_worker, wait_of
from api.observability.waiting import waiting
from api.responses import IMMUTABLE, JSON, NOT_MODIFIED, document_answers, json_of, matches, packed, problems
from api.routes_jobs import jobs_of
from api.routes_raw import RawRoute, parameters
from api.store import EpochRecord
from planner.formats.plan_document import PlanDocument

router = APIRouter(prefix="/v1/jobs/{job_id}", tags=["epochs"], route_class=RawRoute)
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events: `id` is the epoch's number, `event` is `epoch`, `data` its body; an event `deleted` "
        "where the job is, `damaged` in the place of an epoch whose stored bytes are. Comments keep the connection alive.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}
_MARKER = {
    "type": "object",
    "description": "In the place of an epoch whose stored bytes are damaged.",
    "properties": {"job": {"type": "string"}, "epoch": {"type": "integer", "minimum": 1}, "damaged": {"const": True}},
    "required": ["job", "epoch", "damaged"],
    "additionalProperties": False,
}
_EPOCHS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Epochs in order.",
        "content": {
            JSON: {
                "schema": {
                    "type": "array",
                    "items": {"anyOf": [{"$ref": f"#/components/schemas/{EpochBody.__name__}"}, _MARKER]},
                }
            }
        },
    }
}
_CURRENT: dict[int | str, dict[str, Any]] = {
    200: {"description": "The current epoch.", "content": json_of(EpochBody)},
    204: {"description": "No epoch behind `after` came in time."},
    304: NOT_MODIFIED,
}


@router.get(
    "/epochs/current",
    summary="Get the current epoch, or wait for the next",
    response_class=Response,
    responses={**_CURRENT, **problems(404, 409, 422, 500, 503)},
    openapi_extra=parameters("job_id", "after", "wait"),
)
async def get_current(request: Request) -> Response:
    """Give the current epoch; with ``after`` only one behind that, waiting for it for up to ``wait`` seconds."""
    service, name, newest, seconds = jobs_of(request), job_id_of(request), after_of(request), wait_of(request)
    record = await service.watcher.newer(name, newest, seconds, waiting(request.scope, service.telemetry.poll()))
    if record is None:
        return Response(status_code=204, headers={"Cache-Control": "no-store"})
    return _epoch(request, record, "no-cache")


@router.get(
    "/epochs/{epoch}/programs/{worker:path}",
    summary="Get a worker's program",
    response_class=Response,
    responses=document_answers(WorkerProgram, "What the worker runs, in gzip where the client takes it.", 409, 504),
    openapi_extra=parameters("job_id", "epoch", "worker"),
)
async def get_program(request: Request) -> Response:
    """Give what one worker runs, also where it stands at another one's position; one that is down has no program.

    The first request for an epoch's programs may wait until they are made and checked.
    """
    materialiser, name, number = jobs_of(request).materialiser, job_id_of(request), epoch_of(request)
    made = materialiser.ready(name, number)
    if made is None:
        made = await materialiser.get(name, number)
    worker, program = _program(made, number, request.path_params["worker"])
    return packed(request, program, f'"{made.plan_id}/{worker}"')


@router.get(
    "/epochs/{epoch}/plan",
    summary="Get an epoch's plan file",
    response_class=Response,
    responses=document_answers(PlanDocument, "The plan file, in gzip where the client takes it.", 409, 504),
    openapi_extra=parameters("job_id", "epoch"),
)
async def get_plan(request: Request) -> Response:
    """Give the whole plan; ``replan validate``, ``replay`` and ``show`` read it."""
    made = await jobs_of(request).materialiser.get(job_id_of(request), epoch_of(request))
    return packed(request, made.plan, f'"{made.plan_id}"')


@router.get(
    "/epochs/{epoch}",
    summary="Get an epoch",
    response_class=Response,
    responses=document_answers(EpochBody, "The epoch."),
    openapi_extra=parameters("job_id", "epoch"),
)
async def get_epoch(request: Request) -> Response:
    """Give an epoch as it was answered when it was made; it never changes."""
    record = await to_thread.run_sync(jobs_of(request).store.epoch, job_id_of(request), epoch_of(request))
    return _epoch(request, record, IMMUTABLE)


@router.get(
    "/epochs",
    summary="List epochs",
    response_class=Response,
    responses={**_EPOCHS, **problems(404, 422, 500, 503)},
    openapi_extra=parameters("job_id", "after"),
)
async def get_epochs(request: Request) -> Response:
    """Give up to 100 epochs behind ``after``, from the first where it is left out."""
    found = await to_thread.run_sync(jobs_of(request).store.epochs_behind, job_id_of(request), after_of(request) or 0)
    content = b"[" + b",".join(record.body for record in found) + b"]"
    return Response(content, media_type=JSON, headers={"Cache-Control": "no-store"})


@router.get(
    "/stream",
    summary="Follow a job's epochs",
    response_class=Response,
    responses={**_STREAM, **problems(404, 409, 422, 500, 503)},
    openapi_extra=parameters("job_id", "Last-Event-ID", "after"),
)
async def get_stream(request: Request) -> Response:
    """Send the current epoch and each later one as it comes; after a lost connection all those that were missed."""
    service = jobs_of(request)
    frames = await service.watcher.begin_stream(job_id_of(request), last_event_of(request))

    async def counted() -> Any:
        with waiting(request.scope, service.telemetry.stream()):
            async for frame in frames:
                yield frame

    return StreamingResponse(
        counted(),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


def _epoch(request: Request, record: EpochRecord, cache: str) -> Response:
    etag = f'"{record.epoch}-{hashlib.sha256(record.body).hexdigest()[:16]}"'
    headers = {"ETag": etag, "Cache-Control": cache}
    if matches(request.headers.getlist("if-none-match"), etag):
        return Response(status_code=304, headers=headers)
    return Response(record.body, media_type=JSON, headers=headers)


def _program(made: Materialised, epoch: int, name: str) -> tuple[str, bytes]:
    """Worker that a request names, by its home, and its program."""
    worker = made.workers_of_ranks.get(name.removeprefix("rank:")) if name.startswith("rank:") else name
    program = None if worker is None else made.programs.get(worker)
    if worker is None or program is None:
        raise no_live_worker(epoch, name)
    return worker, program
