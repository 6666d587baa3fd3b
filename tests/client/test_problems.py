"""Problem documents as errors: every code that the service has, and those it may have tomorrow."""

from __future__ import annotations

import inspect
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replan_client import errors
from replan_client.errors import (
    AnswerError,
    ClientError,
    NoPlanError,
    ProblemError,
    RequestRefusedError,
    ServiceFaultError,
    StageLostError,
    UnavailableError,
)
from replan_client.problems import COME_AGAIN, error_of, read_problem

from api import problems as served
from planner.errors import ReplanError

BY_CODE = {
    "key_missing": "AccessError",
    "scope_too_small": "AccessError",
    "host_refused": "AccessError",
    "access_refused": "AccessError",
    "not_found": "NotFoundError",
    "epoch_conflict": "EpochConflictError",
    "already_failed": "AlreadyFailedError",
    "not_failed": "NotFailedError",
    "no_plan": "NoPlanError",
    "optimizer_shard_lost": "NoPlanError",
    "memory_too_small": "NoPlanError",
    "stage_lost": "StageLostError",
}


def document(**fields: Any) -> bytes:
    """A problem document."""
    return json.dumps({"code": "not_found", "detail": "gone", "status": 404} | fields).encode()


@pytest.mark.parametrize("kind", served.STATUS_OF_ERROR, ids=lambda kind: kind.__name__)
def test_every_error_of_the_service_has_its_place(kind: type[ReplanError]) -> None:
    """By its code, else by its status; code, status and text are the service's own."""
    status = served.STATUS_OF_ERROR[kind]
    sent = served.problem(status, kind.code, "as it is")
    error = read_problem(status, bytes(sent.body))
    assert isinstance(error, ProblemError)
    assert (error.code, error.status, error.message) == (kind.code, status, "as it is")
    by_status = (
        "UnavailableError" if status in COME_AGAIN else "ServiceFaultError" if status >= 500 else "RequestRefusedError"
    )
    assert type(error).__name__ == BY_CODE.get(kind.code, by_status)


def test_codes_of_a_later_version_are_kept() -> None:
    """In an error by their status; within an epoch they say that there is no plan."""
    for status, kind in (
        (404, RequestRefusedError),
        (418, RequestRefusedError),
        (500, ServiceFaultError),
        (503, UnavailableError),
    ):
        error = read_problem(status, document(code="made_up_tomorrow"))
        assert (type(error), error.code) == (kind, "made_up_tomorrow")
    assert type(error_of("solve_timeout", "late")) is NoPlanError
    assert error_of("solve_timeout", "late").code == "solve_timeout"
    lost = error_of("stage_lost", "slots [2]", hint="restore a checkpoint")
    assert (type(lost), str(lost)) == (StageLostError, "slots [2] (restore a checkpoint)")


def test_all_that_helps_is_kept() -> None:
    """Where in the request, under which name in the log, which epoch; each text once, and nothing that steers a terminal."""
    places = [{"pointer": f"/job/{i}", "detail": "wrong\x1b[2J"} for i in range(20)]
    error = read_problem(422, document(code="job_invalid", errors=places, instance="urn:uuid:1", current_epoch=4))
    assert isinstance(error, ProblemError)
    assert (error.instance, error.current_epoch, len(error.places)) == ("urn:uuid:1", 4, 8)
    assert "/job/0: wrong" in error.message
    assert "urn:uuid:1" in error.message
    assert "\x1b" not in str(error)
    assert "\x1b" not in str(error.places)
    once = read_problem(422, document(detail="/a: wrong", errors=[{"pointer": "/a", "detail": "/a: wrong"}]))
    assert str(once).count("wrong") == 1


@given(
    content=st.binary(max_size=60)
    | st.builds(
        lambda fields: document(**fields),
        st.dictionaries(
            st.sampled_from(["code", "detail", "errors", "instance", "current_epoch"]),
            st.none()
            | st.booleans()
            | st.integers()
            | st.text(max_size=5)
            | st.lists(st.text(max_size=3), max_size=2)
            | st.lists(
                st.dictionaries(st.sampled_from(["pointer", "detail"]), st.text(max_size=3) | st.integers()), max_size=2
            ),
        ),
    ),
    status=st.sampled_from([301, 307, 400, 404, 422, 429, 500, 502, 503]),
)
@settings(max_examples=150, deadline=None)
def test_whatever_comes_becomes_an_error(content: bytes, status: int) -> None:
    """Nothing breaks the reader; what is no problem document is said to be none, and may be asked for again where it says so."""
    error = read_problem(status, content)
    assert isinstance(error, AnswerError | ProblemError)
    assert error.code
    if isinstance(error, ProblemError):
        assert error.status == status
    else:
        assert status not in COME_AGAIN


def test_the_tree_is_drawn_as_it_is() -> None:
    """Every error stands in the module's docstring with its code, below its base; no two share a code."""
    assert errors.__doc__ is not None
    lines = errors.__doc__.splitlines()
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, ClientError)]
    assert len({kind.code for kind in kinds}) == len(kinds)
    depth_of = {
        name.strip(" |+-"): line.find(name.strip(" |+-")) for line in lines for name in line.split("  ") if name.strip()
    }
    for kind in kinds:
        assert kind.__name__ in depth_of, kind
        if kind is not ClientError:
            base = kind.__bases__[0]
            assert depth_of[kind.__name__] == depth_of[base.__name__] + 4, kind
