"""Routes of operations: plans made ready before they are needed."""

from __future__ import annotations

from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import ValidationError

from api.errors import CorruptStoreError
from api.jobs.forms import Damaged, OperationAnswer, OperationList, PrecomputeRequest
from api.jobs.reading import JobId
from api.jobs.service import JobService
from api.responses import JSON, body_of, json_of, problems
from api.routes_jobs import jobs_of, read_request, time_text
from api.store import OperationRecord

router = APIRouter(prefix="/v1", tags=["operations"])
OperationId = Annotated[str, Path(description="Id of an operation: 32 hexadecimal digits.", max_length=64)]


@router.post(
    "/jobs/{job_id}/precompute",
    summary="Make plans ready",
    status_code=202,
    response_class=Response,
    responses={
        202: {"description": "It begins; Location names it.", "content": json_of(OperationAnswer)},
        **problems(404, 413, 415, 422, 500, 503),
    },
    openapi_extra=body_of(PrecomputeRequest),
)
async def post_precompute(request: Request, job_id: JobId) -> Response:
    """Begin to make a plan for every failure key that the tolerance covers; those that are there already are skipped."""
    form = await read_request(request, PrecomputeRequest)
    service = jobs_of(request)
    operation = await service.operations.begin(job_id, form)
    return Response(
        operation_answer(service, operation).model_dump_json(),
        status_code=202,
        media_type=JSON,
        headers={"Location": f"/v1/operations/{operation.operation_id}"},
    )


@router.get(
    "/jobs/{job_id}/operations",
    summary="List a job's operations",
    response_model=OperationList,
    responses=problems(404, 422, 500, 503),
)
async def get_operations(
    request: Request,
    job_id: JobId,
    after: Annotated[
        str | None, Query(description="Operation of this job behind which the list goes on.", max_length=64)
    ] = None,
    limit: Annotated[int, Query(description="Most operations in the answer.", ge=1, le=1000)] = 100,
) -> OperationList:
    """List the operations that were asked for a job, the newest first."""
    service = jobs_of(request)
    await to_thread.run_sync(service.store.job, job_id)
    found = await to_thread.run_sync(lambda: service.store.list_operations(job_id, limit, after=after))
    return OperationList(
        operations=[_listed(service, operation) for operation in found],
        next=found[-1].operation_id if len(found) == limit else None,
    )


@router.get(
    "/operations/{operation_id}",
    summary="Show an operation",
    response_model=OperationAnswer,
    responses=problems(404, 422, 500, 503),
)
async def get_operation(request: Request, operation_id: OperationId) -> OperationAnswer:
    """Show how far an operation is."""
    service = jobs_of(request)
    return operation_answer(service, await to_thread.run_sync(service.store.operation, operation_id))


@router.post(
    "/operations/{operation_id}/cancel",
    summary="Cancel an operation",
    response_model=OperationAnswer,
    responses=problems(404, 422, 500, 503),
)
async def post_cancel(request: Request, operation_id: OperationId) -> OperationAnswer:
    """Have an operation stop; what it has made stays. One that has ended stays as it is."""
    service = jobs_of(request)
    return operation_answer(service, await service.operations.cancel(operation_id))


def operation_answer(service: JobService, operation: OperationRecord) -> OperationAnswer:
    """What is told of an operation; the estimate is that of the server that does it.

    Raises
    ------
    CorruptStoreError
        If its row is damaged.
    """
    try:
        return OperationAnswer(
            id=operation.operation_id,
            kind="precompute",
            job=operation.job_id,
            mode=operation.mode,
            tolerance=operation.tolerance,
            state=operation.state,
            total=operation.total,
            done=operation.done,
            skipped=operation.skipped,
            failed=operation.failed,
            remaining_s=service.operations.remaining_s(operation.operation_id),
            cancel_requested=operation.cancel_requested,
            error=operation.error,
            created_at=time_text(operation.created_at),
            updated_at=time_text(operation.updated_at),
        )
    except ValidationError as error:
        raise CorruptStoreError(
            f"operation {operation.operation_id!r} is damaged", hint="start another one in its place"
        ) from error


def _listed(service: JobService, operation: OperationRecord) -> OperationAnswer | Damaged:
    try:
        return operation_answer(service, operation)
    except CorruptStoreError:
        return Damaged(id=operation.operation_id)
