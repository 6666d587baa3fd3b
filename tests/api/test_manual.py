"""The manual of the service, docs/api.md, names every route, every error code and the limits as they are."""

from __future__ import annotations

import re
from pathlib import Path

from api.app import create_app
from api.jobs.forms import JobEvent, PrecomputeRequest
from api.limits import MOST_OF, parse_body
from api.models import PlanOptions, PlanRequest, read_form
from api.problems import STATUS_OF_ERROR
from api.settings import Settings
from planner.formats.documents import MAX_DEPTH

ROOT = Path(__file__).parents[2]
MANUAL = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")


def test_every_code_stands_beside_its_status() -> None:
    """The table of errors holds each class's code under its status, and no code that does not exist."""
    table = MANUAL[MANUAL.index("## Errors") : MANUAL.index("## The store")]
    rows = re.findall(r"^\| (\d{3}) \| ([^|]*) \|", table, re.MULTILINE)
    shown = {code: int(status) for status, codes in rows for code in re.findall(r"`(\w+)`", codes)}
    of_http = {"route_not_found": 404, "method_not_allowed": 405, "internal": 500}
    of_connections = {"request_malformed": 400, "headers_too_large": 431}
    assert shown == {kind.code: status for kind, status in STATUS_OF_ERROR.items()} | of_http | of_connections


def test_every_route_is_named() -> None:
    """The table of routes is that of the OpenAPI document, and of the document itself."""
    routes = {
        (method.upper(), path) for path, item in create_app(Settings()).openapi()["paths"].items() for method in item
    }
    shown = set(re.findall(r"^\| \[?`(GET|POST|PUT|DELETE) ([^`]+)`", MANUAL, re.MULTILINE))
    assert shown == routes | {("GET", "/openapi.json")}


def test_options_and_limits_are_told_as_they_are() -> None:
    """Each option stands in the table, and the numbers in the text are the defaults."""
    settings = Settings()
    for name in PlanOptions.model_fields:
        assert f"| `{name}` |" in MANUAL
    assert f"above {settings.max_body_bytes // 2**20} MiB, or nested deeper than {MAX_DEPTH}" in MANUAL
    report, other = (int(form.most_bytes or 0) // 1024 for form in (JobEvent, PrecomputeRequest))
    assert f"a report above {report} KiB, an acknowledgement or a precompute request above {other};" in MANUAL
    commas, colons, brackets = MOST_OF.values()
    assert f"{commas:,} commas, {colons:,} colons or {brackets:,} opening brackets" in MANUAL
    assert (
        f"{settings.queue_limit} requests wait already, or this one waited for {settings.queue_timeout_s:g} s" in MANUAL
    )
    assert f"`--max-deadline` ({settings.max_deadline_s:g} s)" in MANUAL
    assert f"finish for up to {settings.shutdown_grace_s:g} s" in MANUAL


def test_the_example_request_is_one() -> None:
    """The request that the manual posts has the documented form."""
    body = (ROOT / "examples" / "plan-request.json").read_bytes()
    assert read_form(PlanRequest, parse_body(body, max_bytes=2**20)).failures.fail == ["n06"]
