"""Routes that register, show and delete jobs."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, cast

from anyio import to_thread
from fastapi import APIRouter, Query, Request, Response

from api.jobs.forms import Damaged, JobAnswer, JobList, JobRegistration
from api.jobs.reading import JobId
from api.jobs.service import JobService
from api.limits import BodyReader
from api.models import F
from api.responses import JSON, body_of, json_of, problems
from api.store import DamagedJob, JobEntry, JobRecord

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


def jobs_of(request: Request) -> JobService:
    """Service of jobs of the application that got this request."""
    return cast("JobService", request.app.state.jobs)


async def read_request(request: Request, form: type[F]) -> F:
    """Read a JSON body of this form; raises as :meth:`api.limits.BodyReader.read` does."""
    return await cast("BodyReader", request.app.state.bodies).read(request, form)


def time_text(time: datetime) -> str:
    """A time in UTC as RFC 3339 has it."""
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def job_answer(
    job: JobEntry, *, epoch: int, name: str | None, operation: str | None = None, with_document: bool = False
) -> JobAnswer:
    """What is told of a job."""
    document = json.loads(job.document) if with_document and isinstance(job, JobRecord) else None
    return JobAnswer(
        id=job.job_id,
        name=name,
        revision=job.revision,
        job_sha256=job.job_sha256,
        tolerance=job.tolerance,
        mode=job.mode,
        epoch=epoch,
        created_at=time_text(job.created_at),
        updated_at=time_text(job.updated_at),
        operation=operation,
        job=document,
    )


@router.put(
    "/{job_id}",
    summary="Register or replace a job",
    responses={
        200: {
            "description": "The job was registered before; it may have a new revision.",
            "content": json_of(JobAnswer),
        },
        201: {"description": "A new job, with its first epoch.", "content": json_of(JobAnswer)},
        **problems(409, 413, 415, 422, 500, 503, 504),
    },
    openapi_extra=body_of(JobRegistration),
    response_class=Response,
)
async def put_job(request: Request, job_id: JobId) -> Response:
    """Register a job, or replace it. The same body again changes nothing; another one is a new revision with a new epoch."""
    form = await read_request(request, JobRegistration)
    done = await jobs_of(request).register(job_id, form)
    answer = job_answer(
        done.record,
        epoch=done.epoch.epoch,
        name=str(form.job["name"]),
        operation=None if done.operation is None else done.operation.operation_id,
    )
    return Response(
        answer.model_dump_json(),
        status_code=201 if done.is_new_job else 200,
        media_type=JSON,
        headers={"Location": f"/v1/jobs/{job_id}"},
    )


@router.get("", summary="List jobs", response_model=JobList, responses=problems(422, 500, 503))
async def get_jobs(
    request: Request,
    after: Annotated[str, Query(description="Id behind which the list begins.", max_length=200)] = "",
    limit: Annotated[int, Query(description="Most jobs in the answer.", ge=1, le=1000)] = 100,
) -> JobList:
    """List jobs in the order of their ids, without their documents."""
    service = jobs_of(request)
    found = await to_thread.run_sync(service.store.jobs_behind, after, limit)
    jobs = [
        Damaged(id=job.job_id)
        if isinstance(job, DamagedJob)
        else job_answer(job, epoch=max(job.current_epoch, 1), name=None)
        for job in found
    ]
    return JobList(jobs=jobs, next=found[-1].job_id if len(found) == limit else None)


@router.get("/{job_id}", summary="Show a job", response_model=JobAnswer, responses=problems(404, 422, 500, 503))
async def get_job(request: Request, job_id: JobId) -> JobAnswer:
    """Show a job with the document of its newest revision."""
    job = await to_thread.run_sync(jobs_of(request).store.job, job_id)
    name = str(json.loads(job.document)["name"])
    return job_answer(job, epoch=max(job.current_epoch, 1), name=name, with_document=True)


@router.delete(
    "/{job_id}",
    summary="Delete a job",
    status_code=204,
    response_class=Response,
    responses=problems(404, 422, 500, 503),
)
async def delete_job(request: Request, job_id: JobId) -> Response:
    """Delete a job with its epochs and operations. Plans stay: a job with the same costs finds them."""
    await jobs_of(request).delete(job_id)
    return Response(status_code=204)
