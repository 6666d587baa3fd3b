"""Errors as HTTP answers: RFC 9457 problem documents with a stable ``code``.

Every class of the error tree has a status here. Below 500 the answer says what the error says; from 500 on it says a
fixed sentence, since the text of an internal error may hold what a client must not see.
"""

from __future__ import annotations

import http
import json
import logging
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from api.adapters.errors import ReportError
from api.errors import (
    AccessError,
    ClusterError,
    CorruptStoreError,
    EpochConflictError,
    HostError,
    IdempotencyConflictError,
    KeyMissingError,
    LongPathError,
    MediaTypeError,
    OverloadedError,
    RateLimitError,
    RequestError,
    ScopeError,
    SlowRequestError,
    SolveTimeoutError,
    StaleBaseError,
    StoreFullError,
    StoreReadOnlyError,
    TemplateFileError,
)
from api.models import pointer
from planner import errors

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 2
_MOST_DETAIL = 4000
_MOST_PLACE = 500
_LOG = logging.getLogger("replan.api")
_T = TypeVar("_T")


STATUS_OF_ERROR: Mapping[type[errors.ReplanError], int] = {
    errors.ReplanError: 500,
    errors.InputError: 422,
    errors.JobFileError: 422,
    errors.DocumentLimitError: 413,
    errors.HostlistError: 422,
    errors.FailureSetError: 422,
    errors.UnknownNodeError: 422,
    errors.NotFailedError: 409,
    errors.AlreadyFailedError: 409,
    errors.ProblemError: 422,
    errors.OptionError: 422,
    errors.ScheduleFormatError: 422,
    errors.NotExpressibleError: 422,
    errors.PlanFileError: 422,
    errors.PlanHashError: 422,
    RequestError: 422,
    ReportError: 422,
    MediaTypeError: 415,
    errors.NoPlanError: 409,
    errors.StageLostError: 409,
    errors.OptimizerShardLostError: 409,
    errors.MemoryTooSmallError: 409,
    errors.ScheduleError: 500,
    errors.InvalidScheduleError: 500,
    errors.DeadlockError: 500,
    errors.SolverError: 500,
    errors.SolverMissingError: 503,
    errors.SolverCrashedError: 500,
    SolveTimeoutError: 504,
    ClusterError: 503,
    errors.NotFoundError: 404,
    errors.StoreError: 503,
    errors.ListenError: 503,
    CorruptStoreError: 500,
    StoreFullError: 503,
    StoreReadOnlyError: 503,
    IdempotencyConflictError: 422,
    TemplateFileError: 422,
    EpochConflictError: 409,
    StaleBaseError: 503,
    OverloadedError: 503,
    AccessError: 403,
    KeyMissingError: 401,
    ScopeError: 403,
    HostError: 403,
    RateLimitError: 429,
    SlowRequestError: 408,
    LongPathError: 414,
}
"""HTTP status of each class of the error tree; a test checks that none is missing."""

_SERVER_SIDE_DETAIL: Mapping[type[errors.ReplanError], str] = {
    errors.ScheduleError: "The planner made a schedule that failed its own checks; it was not stored.",
    errors.SolverError: "The solver failed. The request was tried as often as the service allows.",
    errors.SolverMissingError: "A solver that this service was told to use is not installed.",
    ClusterError: "The Ray cluster that plans are made on cannot be used.",
    errors.SolverCrashedError: "The solver process did not come to an answer.",
    SolveTimeoutError: "The solver ran far past its deadline and was stopped.",
    errors.StoreError: "The store cannot be read or written at the moment.",
    StoreFullError: "The store has no space left; nothing of this request was stored.",
    StoreReadOnlyError: "The store can be read, but not written; nothing of this request was stored.",
    StaleBaseError: "The job moved on more often than the service tries again; nothing of this request was stored.",
    CorruptStoreError: "The stored document is damaged: it does not match its checksum.",
    OverloadedError: "All solver processes are busy and the queue is full, or the wait in it was too long.",
}
_INTERNAL_DETAIL = "Something went wrong inside the service. The log names the cause under this instance."
_CODE_OF_STATUS = {404: "route_not_found", 405: "method_not_allowed", 413: errors.DocumentLimitError.code}


def problem(
    status: int,
    code: str,
    detail: str,
    *,
    instance: str | None = None,
    places: Sequence[Mapping[str, str]] = (),
    current_epoch: int | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Build a problem document.

    Parameters
    ----------
    status
        HTTP status, 400 to 599.
    code
        Stable code for programs.
    detail
        What was wrong here, for people.
    instance
        URI naming this occurrence in the log.
    places
        Where in the request the faults are: ``{"pointer": "/job/stages", "detail": ...}`` each.
    current_epoch
        The epoch that a job has, where the request expected another.
    headers
        Further headers.
    """
    document: dict[str, Any] = {
        "type": f"urn:replan:problem:{code}",
        "title": http.HTTPStatus(status).phrase,
        "status": status,
        "code": code,
        "detail": _cut(detail, _MOST_DETAIL),
    }
    if instance is not None:
        document["instance"] = instance
    if places:
        document["errors"] = [{name: _cut(text, _MOST_PLACE) for name, text in place.items()} for place in places]
    if current_epoch is not None:
        document["current_epoch"] = current_epoch
    content = json.dumps(document, ensure_ascii=False).encode("utf-8", "replace")
    return Response(content, status_code=status, media_type=MEDIA_TYPE, headers=dict(headers or {}))


def problem_of(error: errors.ReplanError) -> Response:
    """Problem document of an error of the tree."""
    status = _nearest(STATUS_OF_ERROR, type(error))
    assert status is not None
    if status >= 500:
        instance = f"urn:uuid:{uuid.uuid4()}"
        _LOG.error("%s: %s: %s", instance, error.code, error, exc_info=error if status == 500 else None)
        detail = _nearest(_SERVER_SIDE_DETAIL, type(error)) or _INTERNAL_DETAIL
        retry = {"Retry-After": str(RETRY_AFTER_S)} if status == 503 else {}
        return problem(status, error.code, detail, instance=instance, headers=retry)
    # What is left of a body that was refused is not read: the connection ends with the answer.
    headers = {"Connection": "close"} if status in (413, 415) else dict(getattr(error, "headers", {}))
    return problem(
        status,
        error.code,
        str(error),
        places=getattr(error, "places", ()),
        current_epoch=error.current if isinstance(error, EpochConflictError) else None,
        headers=headers,
    )


def _cut(text: str, most: int) -> str:
    """A text that may repeat what it is about, such as a key of a megabyte, with an end."""
    return text if len(text) <= most else f"{text[:most]}..."


def _nearest(table: Mapping[type[errors.ReplanError], _T], kind: type[errors.ReplanError]) -> _T | None:
    """Entry of the closest class up the tree that has one."""
    return next((table[base] for base in kind.__mro__ if base in table), None)


async def _on_replan_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, errors.ReplanError)
    return problem_of(error)


async def _on_http_exception(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    phrase = http.HTTPStatus(error.status_code).phrase
    detail = {404: "There is nothing at this path.", 405: "This path does not take this method."}.get(
        error.status_code, phrase
    )
    code = _CODE_OF_STATUS.get(error.status_code, phrase.lower().replace(" ", "_").replace("'", ""))
    return problem(error.status_code, code, detail, headers=error.headers)


async def _on_validation_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    places = [{"pointer": pointer(e["loc"]), "detail": str(e["msg"])} for e in error.errors()]
    return problem(422, RequestError.code, "The request's parameters are not what they should be.", places=places)


async def _on_exception(_request: Request, error: Exception) -> Response:
    instance = f"urn:uuid:{uuid.uuid4()}"
    _LOG.error("%s: unexpected %s", instance, type(error).__name__)
    # The web server ends the connection after an error that nobody foresaw.
    return problem(500, "internal", _INTERNAL_DETAIL, instance=instance, headers={"Connection": "close"})


def install(app: FastAPI) -> None:
    """Make every error answer of ``app`` a problem document."""
    app.add_exception_handler(errors.ReplanError, _on_replan_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(Exception, _on_exception)
