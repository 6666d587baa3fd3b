"""Error answers: every class of the tree has a status, and server-side text stays inside."""

from __future__ import annotations

import json

import pytest

from api.errors import RequestError
from api.models import pointer
from api.problems import STATUS_OF_ERROR, problem_of
from planner.errors import ReplanError


def all_error_classes() -> list[type[ReplanError]]:
    """Every class of the tree that the product defines, the root first."""
    found, todo = [], [ReplanError]
    while todo:
        kind = todo.pop()
        found.append(kind)
        todo += kind.__subclasses__()
    return [kind for kind in found if kind.__module__.partition(".")[0] in ("planner", "solver_models", "api", "cli")]


def test_every_error_has_a_status_of_its_own() -> None:
    """The table names each class of the tree and nothing else, and each class has its own code."""
    classes = all_error_classes()
    assert set(STATUS_OF_ERROR) == set(classes)
    assert len({kind.code for kind in classes}) == len(classes)


@pytest.mark.parametrize("kind", all_error_classes(), ids=lambda kind: kind.__name__)
def test_answers_are_problem_documents(kind: type[ReplanError]) -> None:
    """Status, code and media type agree; below 500 the message is shown, from 500 on neither message nor hint."""
    answer = problem_of(kind("the message", hint="the hint"))
    document = json.loads(answer.body)
    assert answer.media_type == "application/problem+json"
    assert document["status"] == answer.status_code == STATUS_OF_ERROR[kind]
    assert document["code"] == kind.code
    assert document["type"] == f"urn:replan:problem:{kind.code}"
    shown = "the message" in document["detail"], "the hint" in document["detail"]
    assert shown == ((True, True) if answer.status_code < 500 else (False, False))
    assert ("retry-after" in answer.headers) == (answer.status_code in (429, 503))
    assert ("instance" in document) == (answer.status_code >= 500)


def test_pointers_escape_as_rfc_6901_asks() -> None:
    """A tilde is written ~0 and a slash ~1."""
    assert pointer(("a/b", "c~d", 0)) == "/a~1b/c~0d/0"


def test_messages_may_hold_any_text() -> None:
    """Half a surrogate pair from a client's JSON does not break the answer."""
    kind = next(kind for kind, status in STATUS_OF_ERROR.items() if status == 422)
    assert json.loads(problem_of(kind("node '\ud800'")).body)["code"] == kind.code


def test_what_is_repeated_of_a_request_is_cut() -> None:
    """A megabyte that a message or a place repeats does not come back whole."""
    long = "x" * 1_000_000
    answer = problem_of(RequestError(long, hint=long, places=[{"pointer": f"/{long}", "detail": long}] * 3))
    assert len(answer.body) < 10_000
    assert json.loads(answer.body)["errors"][0]["pointer"].startswith("/xxx")
