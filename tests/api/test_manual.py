"""What docs/api.md says of endpoints, codes and limits is what the service has."""

from __future__ import annotations

import re
from pathlib import Path

from api.app import create_app
from api.problems import STATUS_OF_ERROR
from api.settings import MEBIBYTE, Settings
from planner.formats.documents import MAX_DEPTH

TEXT = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
NOT_ERRORS_OF_THE_TREE = {"route_not_found": 404, "method_not_allowed": 405, "internal": 500}
"""Codes that the web framework's errors and our bugs get."""


def test_every_code_is_listed_with_its_status() -> None:
    """The table of problems has each code the service may answer with, once, and no other."""
    listed = [
        (code, int(status))
        for status, codes in re.findall(r"^\| (\d{3}) \| (`[^|]*`) \|", TEXT, re.MULTILINE)
        for code in re.findall(r"`(\w+)`", codes)
    ]
    expected = {kind.code: status for kind, status in STATUS_OF_ERROR.items()} | NOT_ERRORS_OF_THE_TREE
    assert dict(listed) == expected
    assert len(listed) == len(expected)


def test_every_endpoint_is_listed() -> None:
    """The table of endpoints has each operation of the OpenAPI document, and the document itself."""
    listed = set(re.findall(r"^\| `(GET|POST) (/\S+)` \|", TEXT, re.MULTILINE))
    paths = create_app(Settings()).openapi()["paths"]
    assert listed == {(method.upper(), path) for path, item in paths.items() for method in item} | {
        ("GET", "/openapi.json")
    }


def test_the_limits_are_the_defaults() -> None:
    """Each figure in the table of limits is the one a server starts with."""
    settings = Settings()
    limits = TEXT.partition("## Limits")[2]
    for part in (
        f"{settings.max_body_bytes // MEBIBYTE} MiB, nested at most {MAX_DEPTH} deep",
        f"| `deadline_s` | {settings.max_deadline_s:g} s;",
        f"{settings.queue_limit}, each for at most {settings.queue_timeout_s:g} s",
        f"{settings.solve_grace_s:g} s past the deadline",
        f"get {settings.shutdown_grace_s:g} s",
    ):
        assert part in limits
