"""Requests as they are sent: one function a route, with what it takes to read the answer."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

from replan_client.answers import Answer
from replan_client.epochs import Epoch
from replan_client.errors import ArgumentError
from replan_client.jobs import Acknowledgements, Event, JobSummary, Mode, check_iteration, to_json

T = TypeVar("T")
MAX_WAIT_S = 30.0
"""Longest wait that one request asks the service for, seconds; the service allows 60."""

_SLOW_S = 60.0
_MAX_EPOCH = 2**31 - 1
_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_WORKER = re.compile(r"(?:0|[1-9][0-9]{0,8})/(?:0|[1-9][0-9]{0,8})|rank:(?:0|[1-9][0-9]{0,9})")
_IDEMPOTENCY_KEY = re.compile(r"[\x21-\x7e]{1,256}")
_API_KEY = re.compile(r"[\x21-\x7e]{1,512}")
_NO_URL = re.compile(r"[\x00-\x20\x7f-\U0010ffff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    """One request that may be sent several times.

    Parameters
    ----------
    method
        HTTP method.
    target
        Path and query.
    read
        What an answer from 200 to 299 means.
    headers
        Headers of this request alone.
    content
        The body; ``None`` for none.
    hold_s
        Seconds for which the service may hold the answer back beside the time of an ordinary one.
    is_cached
        Whether the answer is kept by its tag.
    """

    method: str
    target: str
    read: Callable[[Answer], T]
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    hold_s: float = 0.0
    is_cached: bool = False


def check_url(url: str) -> str:
    """A service's URL without a slash at its end.

    Raises
    ------
    ArgumentError
        If it is no http or https URL, or holds a user, a query or a fragment.
    """
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        is_good = False
    if not is_good or _NO_URL.search(url):
        raise ArgumentError(f"{url!r} is no URL of a service; expected one such as http://127.0.0.1:8080")
    if "@" in parts.netloc or "?" in url or "#" in url:
        raise ArgumentError("the URL holds a user, a query or a fragment; expected host, port and path only")
    return url.rstrip("/")


def check_api_key(key: str) -> str:
    """An API key as it came; raises :class:`ArgumentError`, without the key in it, where it cannot be sent."""
    if _API_KEY.fullmatch(key) is None:
        raise ArgumentError("the API key holds what no key does; expected visible ASCII letters, such as rpk_...")
    return key


def register_job(job_id: str, job: Mapping[str, Any], tolerance: int | None, mode: Mode | None) -> Call[JobSummary]:
    """Register a job, or replace it."""
    given = {"tolerance": tolerance, "mode": mode}
    body = {"job": dict(job), **{name: value for name, value in given.items() if value is not None}}
    return Call(
        method="PUT",
        target=_path(job_id),
        content=to_json(body),
        hold_s=_SLOW_S,
        read=lambda answer: JobSummary.from_bytes(answer.body, job=job_id),
    )


def current_epoch(job_id: str, after: int | None, wait_s: float) -> Call[Epoch | None]:
    """The current epoch, or the one behind ``after``, for which the service waits; ``None`` where none came."""
    if after is not None and not 0 <= after <= _MAX_EPOCH:
        raise ArgumentError(f"the epoch is {after}; expected 0 to {_MAX_EPOCH}")
    query = "" if after is None else f"?after={after}&wait={wait_s:.3f}"

    def read(answer: Answer) -> Epoch | None:
        return None if answer.status == 204 else Epoch.from_bytes(answer.body, job=job_id)

    target = f"{_path(job_id)}/epochs/current{query}"
    return Call(
        method="GET", target=target, hold_s=0.0 if after is None else wait_s, is_cached=after is None, read=read
    )


def epoch(job_id: str, number: int) -> Call[Epoch]:
    """One epoch."""
    return Call(
        method="GET",
        target=_epoch_path(job_id, number),
        is_cached=True,
        read=lambda answer: Epoch.from_bytes(answer.body, job=job_id, number=number),
    )


def report(job_id: str, event: Event, idempotency_key: str | None) -> Call[Epoch]:
    """Report an event, under a key of its own so that it may be sent again."""
    key = secrets.token_hex(16) if idempotency_key is None else idempotency_key
    if _IDEMPOTENCY_KEY.fullmatch(key) is None:
        raise ArgumentError(f"the idempotency key is {key[:80]!r}; expected 1 to 256 visible ASCII letters")
    return Call(
        method="POST",
        target=f"{_path(job_id)}/events",
        headers={"Idempotency-Key": key},
        content=event.to_bytes(),
        read=lambda answer: Epoch.from_bytes(answer.body, job=job_id),
    )


def program(job_id: str, number: int, worker: str, read: Callable[[Answer], T]) -> Call[T]:
    """A worker's program; ``read`` verifies it, so that only a verified one is kept."""
    target = f"{_epoch_path(job_id, number)}/programs/{check_worker(worker)}"
    return Call(method="GET", target=target, hold_s=_SLOW_S, is_cached=True, read=read)


def acknowledge(job_id: str, number: int, worker: str, iteration: int | None) -> Call[None]:
    """Say that a worker has an epoch; the last word counts, so it may be sent again."""
    check_iteration(iteration)
    body: dict[str, Any] = {"worker": check_worker(worker)} | ({} if iteration is None else {"iteration": iteration})
    return Call(
        method="POST",
        target=f"{_epoch_path(job_id, number)}/acknowledgements",
        content=to_json(body),
        read=lambda _: None,
    )


def acknowledgements(job_id: str, number: int) -> Call[Acknowledgements]:
    """Who has an epoch."""
    return Call(
        method="GET",
        target=f"{_epoch_path(job_id, number)}/acknowledgements",
        read=lambda answer: Acknowledgements.from_bytes(answer.body, epoch=number),
    )


def stream_target(job_id: str, after: int | None) -> str:
    """Path and query of a job's stream, behind an epoch; ``None``: from the current one on."""
    return f"{_path(job_id)}/stream" + ("" if after is None else f"?after={after}")


def check_worker(worker: str) -> str:
    """A worker's name as it came; raises :class:`ArgumentError` where no worker is called so."""
    if _WORKER.fullmatch(worker) is None:
        raise ArgumentError(f"the worker is {worker[:40]!r}; expected its own name, such as 3/5, or a rank, rank:17")
    return worker


def _path(job_id: str) -> str:
    if _JOB_ID.fullmatch(job_id) is None:
        raise ArgumentError(
            f"the job id is {job_id[:80]!r}; expected letters, digits, dots, dashes and underlines, 1 to 128"
        )
    return f"/v1/jobs/{job_id}"


def _epoch_path(job_id: str, number: int) -> str:
    if not 1 <= number <= _MAX_EPOCH:
        raise ArgumentError(f"the epoch is {number}; expected 1 to {_MAX_EPOCH}")
    return f"{_path(job_id)}/epochs/{number}"
