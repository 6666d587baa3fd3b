"""Problem documents (RFC 9457) of the service as errors: by their code, else by their status."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from replan_client.documents import printable
from replan_client.errors import (
    AccessError,
    AlreadyFailedError,
    AnswerError,
    ClientError,
    EpochConflictError,
    NoPlanError,
    NotFailedError,
    NotFoundError,
    ProblemError,
    RequestRefusedError,
    ServiceFaultError,
    StageLostError,
    UnavailableError,
)

COME_AGAIN = frozenset((408, 429, 502, 503, 504))
"""Statuses after which the same request may succeed."""

_ERRORS: Mapping[str, type[ProblemError]] = {
    "key_missing": AccessError,
    "scope_too_small": AccessError,
    "host_refused": AccessError,
    "access_refused": AccessError,
    "not_found": NotFoundError,
    "epoch_conflict": EpochConflictError,
    "already_failed": AlreadyFailedError,
    "not_failed": NotFailedError,
    "no_plan": NoPlanError,
    "optimizer_shard_lost": NoPlanError,
    "memory_too_small": NoPlanError,
    "stage_lost": StageLostError,
}
_HINTS: Mapping[str, str] = {
    "key_missing": "give the client an API key that the service knows",
    "scope_too_small": "use a key of a larger scope: workers and monitors need report, registering a job needs admin",
    "epoch_conflict": "read the current epoch, and decide anew",
    "already_failed": "somebody else reported it: read the current epoch",
    "route_not_found": "see that the URL names RePlan's service; a path in it goes before /v1",
}
_CODE = re.compile(r"[a-z][a-z0-9_]{0,63}")
_MOST_PLACES = 8
_MOST_SHOWN = 80


def error_of(
    code: str, message: str, *, status: int | None = None, hint: str | None = None, **more: Any
) -> ProblemError:
    """Error of a problem's code.

    Parameters
    ----------
    code
        The service's code; one that is not known is kept, in an error by its status.
    message
        What was wrong.
    status
        HTTP status; ``None`` where the problem stood in an epoch.
    hint
        What to do about it; ``None`` for what is known of the code.
    **more
        What :class:`ProblemError` takes beside these.
    """
    kind = _ERRORS.get(code) or _kind_of(status)
    return kind(message, code=code, status=status, hint=_HINTS.get(code) if hint is None else hint, **more)


def read_problem(status: int, content: bytes) -> ClientError:
    """Error that an answer outside of 200 to 299 stands for.

    Parameters
    ----------
    status
        HTTP status.
    content
        The body, a problem document if the service sent it.

    Returns
    -------
    ClientError
        A :class:`ProblemError`, or :class:`AnswerError` where the body is no problem document.
    """
    if 300 <= status < 400:
        return AnswerError(
            f"the answer has status {status}; redirects are not followed, they would carry the key to another place",
            hint="give the client the URL at which the service itself answers",
        )
    try:
        document = json.loads(content)
        code, detail, instance = document["code"], document["detail"], document.get("instance")
        places = [(place["pointer"], place["detail"]) for place in document.get("errors", [])[:_MOST_PLACES]]
        current_epoch = document.get("current_epoch")
        texts = [code, detail, *(text for place in places for text in place), *([] if instance is None else [instance])]
        if not all(isinstance(text, str) for text in texts) or _CODE.fullmatch(code) is None:
            raise TypeError
        if current_epoch is not None and type(current_epoch) is not int:
            raise TypeError
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return _no_problem(status, content)
    message = "; ".join([printable(detail), *(printable(f"{at}: {text}") for at, text in places if text not in detail)])
    if instance is not None:
        message = f"{message} The service's log tells more under {printable(instance)}."
    return error_of(
        code,
        message,
        status=status,
        instance=instance,
        places=[(printable(pointer), printable(text)) for pointer, text in places],
        current_epoch=current_epoch,
    )


def _no_problem(status: int, content: bytes) -> ClientError:
    shown = printable(content[:_MOST_SHOWN].decode("utf-8", "replace"))
    message = f"status {status} came with what is no answer of RePlan: {shown!r}"
    if status in COME_AGAIN:
        return UnavailableError(message, status=status, hint="something before the service answers: see that it runs")
    return AnswerError(message, hint="see that the URL names RePlan's service and not something before it")


def _kind_of(status: int | None) -> type[ProblemError]:
    if status is None:
        return NoPlanError
    if status in COME_AGAIN:
        return UnavailableError
    return ServiceFaultError if status >= 500 else RequestRefusedError
