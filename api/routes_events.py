"""Routes of what happens to jobs: events in, acknowledgements in and out."""

from __future__ import annotations

from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Header, Request, Response

from api.jobs.drafting import Base
from api.jobs.epoch_body import EpochBody
from api.jobs.forms import Acknowledgement, Acknowledgements, JobEvent, WorkerAcknowledgement
from api.jobs.loaded import LoadedJob
from api.jobs.positions import occupant_of
from api.jobs.reading import EpochNumber, JobId
from api.jobs.service import JobService
from api.responses import JSON, body_of, json_of, problems
from api.routes_jobs import jobs_of, read_request
from api.store import EpochRecord
from planner.errors import NotFoundError, ScheduleFormatError
from planner.layout import worker_of_gpu
from planner.operation import Worker, parse_worker

router = APIRouter(prefix="/v1/jobs/{job_id}", tags=["events"])
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


@router.post(
    "/epochs/{epoch}/acknowledgements",
    summary="Acknowledge an epoch",
    status_code=204,
    response_class=Response,
    responses=problems(404, 413, 415, 422, 500, 503),
    openapi_extra=body_of(Acknowledgement),
)
async def post_acknowledgement(request: Request, job_id: JobId, epoch: EpochNumber) -> Response:
    """Say that a worker has an epoch and its program, and from which iteration it runs it. The last word counts."""
    form = await read_request(request, Acknowledgement)
    service = jobs_of(request)
    worker = await to_thread.run_sync(_worker_of, service, job_id, epoch, form.worker)
    await service.acknowledger.add(job_id, epoch, str(worker), form.iteration)
    return Response(status_code=204)


@router.get(
    "/epochs/{epoch}/acknowledgements",
    summary="Who has an epoch, and who has not",
    response_model=Acknowledgements,
    responses=problems(404, 422, 500, 503),
)
async def get_acknowledgements(request: Request, job_id: JobId, epoch: EpochNumber) -> Acknowledgements:
    """List the workers that have acknowledged an epoch and the live ones that have not."""
    return await to_thread.run_sync(_acknowledgements, jobs_of(request), job_id, epoch)


def _acknowledgements(service: JobService, job_id: str, epoch: int) -> Acknowledgements:
    record = service.store.epoch(job_id, epoch)
    base, job = Base.of(record), _job_of(service, record).job
    positions = (Worker(k, s) for k in range(job.num_pipelines) for s in range(job.num_slots))
    live = {str(worker) for p in positions if (worker := occupant_of(p, base.dead, base.moved)) is not None}
    found = {entry.worker: entry.iteration for entry in service.store.acknowledgements(job_id, epoch)}
    missing = sorted(live - found.keys(), key=parse_worker)
    known = [iteration for iteration in found.values() if iteration is not None]
    return Acknowledgements(
        epoch=epoch,
        num_live=len(live),
        acknowledged=[
            WorkerAcknowledgement(worker=worker, iteration=found[worker]) for worker in sorted(found, key=parse_worker)
        ],
        missing=missing,
        from_iteration=max(known) if known and not missing and len(known) == len(found) else None,
    )


def _worker_of(service: JobService, job_id: str, epoch: int, text: str) -> Worker:
    """Live worker that an acknowledgement names, by its home.

    Raises
    ------
    NotFoundError
        If the epoch has no such live worker.
    """
    record = service.store.epoch(job_id, epoch)
    job = _job_of(service, record).job
    worker: Worker | None
    if text.startswith("rank:"):
        rank = text.removeprefix("rank:")
        worker = worker_of_gpu(job.layout, int(rank)) if rank.isdecimal() else None
    else:
        try:
            worker = parse_worker(text)
        except ScheduleFormatError:
            worker = None
    base = Base.of(record)
    if worker is None or not job.has_worker(worker) or worker in base.dead:
        raise NotFoundError(
            f"epoch {epoch} of job {job_id!r} has no live worker {text!r}",
            hint="expected pipeline/slot such as 3/5, or rank:17",
        )
    return worker


def _job_of(service: JobService, record: EpochRecord) -> LoadedJob:
    return service.jobs.load(service.store.job_revision(record.job_id, record.revision).document)
