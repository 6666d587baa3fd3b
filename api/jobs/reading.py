"""What path, query and headers of a request about jobs say."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import Path, Request

from api.errors import RequestError
from api.jobs.forms import JOB_ID_PATTERN
from api.store.epochs import MAX_EPOCH
from planner.errors import NotFoundError

MAX_WAIT_S = 60.0
_JOB_ID = re.compile(JOB_ID_PATTERN)
_NUMBER = re.compile(r"[0-9]{1,10}")
_SECONDS = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3})?")

JobId = Annotated[
    str,
    Path(
        description="Id of a job, chosen by who registers it: letters, digits, dots, dashes and underlines, 1 to 128.",
        pattern=f"^{JOB_ID_PATTERN}$",
    ),
]
EpochNumber = Annotated[int, Path(description="Number of an epoch.", ge=1, le=MAX_EPOCH)]


def job_id_of(request: Request) -> str:
    """Job that the path names.

    Raises
    ------
    RequestError
        If no job can have this id.
    """
    job_id: str = request.path_params["job_id"]
    if _JOB_ID.fullmatch(job_id) is None:
        raise RequestError(
            f"the job id {job_id[:80]!r} is none; expected letters, digits, dots, dashes and underlines, 1 to 128"
        )
    return job_id


def epoch_of(request: Request) -> int:
    """Epoch that the path names; raises :class:`RequestError` where it is no number."""
    return read_number(request.path_params["epoch"], "the epoch in the path", least=1)


def no_live_worker(epoch: int, name: str) -> NotFoundError:
    """Error of a worker that an epoch does not have, or that is down in it."""
    return NotFoundError(
        f"epoch {epoch} has no live worker {name[:40]!r}",
        hint="expected the worker by its own name, pipeline/slot such as 3/5, or rank:17; one that is down has nothing to run, "
        "whoever stands in its place, until an epoch after its recovery",
    )


def read_number(text: str, what: str, *, least: int = 0) -> int:
    """A number in decimal.

    Raises
    ------
    RequestError
        If it is none, or out of range.
    """
    if _NUMBER.fullmatch(text) is None or not least <= int(text) <= MAX_EPOCH:
        raise RequestError(f"{what} is {text[:40]!r}; expected a number from {least} to {MAX_EPOCH}")
    return int(text)


def after_of(request: Request) -> int | None:
    """Query parameter ``after``; ``None`` where it is not given."""
    text = request.query_params.get("after")
    return None if text is None else read_number(text, "after")


def wait_of(request: Request) -> float:
    """Query parameter ``wait``, seconds; 0 where it is not given."""
    text = request.query_params.get("wait", "0")
    if _SECONDS.fullmatch(text) is None or float(text) > MAX_WAIT_S:
        raise RequestError(f"wait is {text[:40]!r}; expected seconds from 0 to {MAX_WAIT_S:g}")
    return float(text)


def last_event_of(request: Request) -> int | None:
    """Epoch that a stream goes on behind: the header Last-Event-ID, else the query parameter ``after``."""
    text = request.headers.get("last-event-id")
    return after_of(request) if not text else read_number(text, "Last-Event-ID")
