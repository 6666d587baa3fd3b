"""The JSON forms that HTTP clients send and get."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from api.errors import RequestError
from planner.failures import MAX_TARGETS
from planner.formats.bounded import AtMost, BoundedModel, place_of

F = TypeVar("F", bound="Form")


_SHOWN_PLACES = 64
_SHOWN_POINTER = 200


class Form(BoundedModel):
    """What a client sends.

    Attributes
    ----------
    most_bytes
        Largest body that holds one, far above what anybody needs; ``None`` for what the server allows at most.
    """

    most_bytes: ClassVar[int | None] = None

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    def canonical(self) -> bytes:
        """The request with every default filled in, as canonical JSON: equal requests give equal bytes."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":")).encode("ascii")

    def digest(self) -> str:
        """sha256 of the canonical JSON, 64 hexadecimal digits."""
        return hashlib.sha256(self.canonical()).hexdigest()


class FailureSetRequest(Form):
    """What is down or slow. Every text has the form that ``replan plan`` takes."""

    fail: Annotated[list[str], AtMost(MAX_TARGETS)] = Field(
        default=[],
        description="What is down: node hostlists, rank:17, or worker:1/2 (pipeline/slot).",
        examples=[["gpu[0007,0100-0103]", "worker:1/2"]],
    )
    degrade: Annotated[list[str], AtMost(MAX_TARGETS)] = Field(
        default=[],
        description="Workers that are slow, each with its speed as a factor in (0, 1].",
        examples=[["worker:1/2=0.7"]],
    )


class PlanOptions(Form):
    """Limits of the search for a plan."""

    deadline_s: Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)] = Field(
        default=2.0, description="Seconds after which the best plan so far is taken; the service has a lower maximum."
    )
    target_gap: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = Field(
        default=0.0, description="Gap to the bound at which the search may stop, as a ratio."
    )
    seed: Annotated[int, Field(ge=0, lt=2**31)] = Field(default=0, description="Seed of every random choice.")
    migrate: bool | None = Field(
        default=None,
        description="Whether workers may move to other slots: true, false, or null for where it is expected to pay.",
    )
    shards_restored: bool = Field(
        default=False,
        description="Whether optimizer shards that the failures took have been restored from a checkpoint.",
    )


class PlanRequest(Form):
    """A job, what failed, and how long to search."""

    job: dict[str, Any] = Field(description="The job document: the same as a job file's, as JSON.")
    failures: FailureSetRequest = Field(
        default=FailureSetRequest(), description="The failure set; empty for a fault-free plan."
    )
    options: PlanOptions = Field(default=PlanOptions(), description="Limits of the search.")


class FaultyPlace(BaseModel):
    """One faulty place of a request."""

    pointer: str = Field(description="RFC 6901 JSON pointer.")
    detail: str = Field(description="What is wrong there.")


class ProblemDetails(BaseModel):
    """What went wrong: an RFC 9457 problem document."""

    type: str = Field(description="URI of the kind of problem: urn:replan:problem: and the code.")
    title: str = Field(description="The HTTP status in words.")
    status: int = Field(ge=400, le=599, description="The HTTP status.")
    code: str = Field(description="Stable code for programs, for example stage_lost.")
    detail: str = Field(description="What was wrong here, what was expected, and what to do.")
    instance: str | None = Field(default=None, description="URI that names this occurrence in the server's log.")
    errors: list[FaultyPlace] = Field(default=[], description="Where in the request the faults are.")
    current_epoch: int | None = Field(
        default=None, description="With epoch_conflict: the epoch that the job has, where the request expected another."
    )


class Health(BaseModel):
    """Whether the service works, and how busy it is."""

    status: str = Field(description="ok, or why not.")
    version: str = Field(description="Version of RePlan.")
    solver_processes_ready: int = Field(ge=0, description="Solver processes that are warm, busy or not.")
    requests_waiting: int = Field(ge=0, description="Requests that wait for a solver process.")


def pointer(location: Sequence[int | str]) -> str:
    """RFC 6901 JSON pointer of a place in a document.

    Examples
    --------
    >>> pointer(("job", "stages", 0))
    '/job/stages/0'
    """
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in location)


def read_form(form: type[F], document: Any) -> F:
    """Check the form of a parsed request body.

    Raises
    ------
    RequestError
        If it has another form; names each place.
    """
    try:
        return form.model_validate(document)
    except ValidationError as error:
        places = [
            {"pointer": _pointer_in(document, e["loc"], is_missing=e["type"] == "missing"), "detail": e["msg"]}
            for e in error.errors(include_url=False, include_context=False)[:_SHOWN_PLACES]
        ]
        shown = "; ".join(f"{place['pointer'] or '/'}: {place['detail']}" for place in places[:4])
        raise RequestError(f"the request does not have the form it should: {shown}", places=places) from error


def _pointer_in(document: Any, location: Sequence[int | str], *, is_missing: bool) -> str:
    """Pointer to a fault; to what holds it where its name is too long to be repeated."""
    steps, _ = place_of(location, document, is_missing=is_missing)
    while len(text := pointer(steps)) > _SHOWN_POINTER:
        steps = steps[:-1]
    return text


def request_digest(canonical: bytes, *, version: str) -> str:
    """sha256 under which a request is remembered, together with the version of RePlan that answers it."""
    return hashlib.sha256(version.encode() + b"\0" + canonical).hexdigest()
