"""Routes of what happens to jobs: events in, acknowledgements in and out."""

from __future__ import annotations

from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Header, Request, Response

from api.jobs.epoch_body import EpochBody
from api.jobs.forms import Acknowledgement, Acknowledgements, JobEvent, WorkerAcknowledgement
from api.jobs.reading import EpochNumber, JobId, epoch_of, job_id_of
from api.responses import JSON, body_of, json_of, problems
from api.routes_jobs import jobs_of, read_request
from api.routes_raw import RawRoute, parameters

router = APIRouter(prefix="/v1/jobs/{job_id}", tags=["events"])
_crowded = APIRouter(route_class=RawRoute)
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="The reporter's own name for this report, 1 to 256 visible characters: sent again it gives the same epoch.",
        pattern=r"^[\x21-\x7e]{1,256}$",
    ),
]


@router.post(
    "/events",
    summary="Report a failure, a recovery or a slow node",
    status_code=201,
    response_class=Response,
    responses={
        200: {"description": "Reported before: the epoch that followed then.", "content": json_of(EpochBody)},
        201: {"description": "The new epoch, on the disk.", "content": json_of(EpochBody)},
        **problems(404, 409, 413, 415, 422, 500, 503),
    },
    openapi_extra=body_of(JobEvent),
)
async def post_event(request: Request, job_id: JobId, idempotency_key: IdempotencyKey = None) -> Response:
    """Accept a report: exactly one epoch follows, also where no plan exists for what is down now."""
    event = await read_request(request, JobEvent)
    record, is_replay = await jobs_of(request).report(job_id, event, idempotency_key)
    return Response(
        record.body,
        status_code=200 if is_replay else 201,
        media_type=JSON,
        headers={"Location": f"/v1/jobs/{job_id}/epochs/{record.epoch}"},
    )


@_crowded.post(
    "/epochs/{epoch}/acknowledgements",
    summary="Acknowledge an epoch",
    status_code=204,
    response_class=Response,
    responses=problems(404, 413, 415, 422, 500, 503),
    openapi_extra=body_of(Acknowledgement) | parameters("job_id", "epoch"),
)
async def post_acknowledgement(request: Request) -> Response:
    """Say that a worker has an epoch and its program, and from which iteration it runs it. The last word counts."""
    job_id, epoch = job_id_of(request), epoch_of(request)
    form = await read_request(request, Acknowledgement)
    await jobs_of(request).acknowledger.add(job_id, epoch, form.worker, form.iteration)
    return Response(status_code=204)


@router.get(
    "/epochs/{epoch}/acknowledgements",
    summary="Who has an epoch, and who has not",
    response_model=Acknowledgements,
    responses=problems(404, 422, 500, 503),
)
async def get_acknowledgements(request: Request, job_id: JobId, epoch: EpochNumber) -> Acknowledgements:
    """List the workers that have acknowledged an epoch and the live ones that have not."""
    service = jobs_of(request)
    roster = await service.acknowledger.roster(job_id, epoch)
    records = await to_thread.run_sync(service.store.acknowledgements, job_id, epoch)
    found = {record.worker: record.iteration for record in records}
    missing = [name for name in roster.live if name not in found]
    known = [iteration for iteration in found.values() if iteration is not None]
    return Acknowledgements(
        epoch=epoch,
        num_live=len(roster.live),
        acknowledged=[
            WorkerAcknowledgement(worker=name, iteration=found[name]) for name in roster.live if name in found
        ],
        missing=missing,
        from_iteration=max(known) if known and not missing and len(known) == len(found) else None,
    )


router.include_router(_crowded)
