"""The whole OpenAPI document against a real server: requests made from it, right and wrong ones, get documented answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from api.app import create_app
from api.models import ProblemDetails
from api.settings import Settings
from tests.jobs import DOCUMENT, ServedJob
from tests.serving import Server, serving

ROOT = Path(__file__).parents[2]
JOB = "job"
SCHEMA = schemathesis.openapi.from_dict(create_app(Settings()).openapi())
OPERATIONS = {operation.label: operation for found in SCHEMA.get_all_operations() if (operation := found.ok())}
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
ENVIRONMENT = {
    "REPLAN_READ_RATE": "0",
    "REPLAN_CHANGE_RATE": "0",
    "REPLAN_EVENT_DEADLINE_S": "0.02",
    "REPLAN_IMPROVEMENT_DEADLINE_S": "0.02",
    "REPLAN_MAX_DEADLINE_S": "0.1",
}
_NODES = st.sampled_from(["n00", "n01", "n02", "n[03,07]", "n[00-11]", "n11"])


@dataclass(frozen=True, slots=True)
class Target:
    """A server, and names of what there is on it."""

    server: Server
    names: dict[str, list[Any]]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A server that searches for moments only, with a job of some epochs, an operation and a plan."""
    store = tmp_path_factory.mktemp("store") / "contract.db"
    with serving(store, "--processes", "1", environment=ENVIRONMENT) as running:
        job = ServedJob(running.client, JOB)
        job.register()
        job.report("node_failed", "n06")
        job.report("node_recovered", "n06")
        operation = job.client.post(f"{job.path}/precompute", json={"tolerance": 1, "deadline_s": 0.02}).json()
        plan = job.client.post("/v1/plans", json={"job": DOCUMENT, "options": {"deadline_s": 0.05}}).json()
        names = {
            "job_id": [JOB],
            "epoch": [1, 2, 3],
            "worker": ["0/0", "2/3", "rank:6", "1/2"],
            "operation_id": [operation["id"]],
            "plan_id": [plan["plan_id"]],
            "name": ["index.html", "app.js"],
        }
        yield Target(running, names)


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    """Connections that are used again."""
    with requests.Session() as opened:
        yield opened


def documented_codes() -> dict[str, int]:
    """Status of each error code in the manual's table."""
    manual = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d{3}) \| ([^|]*) \|", manual, re.MULTILINE)
    return {code: int(status) for status, codes in rows for code in re.findall(r"`(\w+)`", codes)}


CODES = documented_codes()


def cases(label: str, mode: GenerationMode, names: dict[str, list[Any]]) -> st.SearchStrategy[Case]:
    """Requests of an operation: as the document has them, about what is there, and with nearly right bodies."""
    operation = OPERATIONS[label]
    found = [operation.as_strategy(mode)]
    if "{" in label and not label.startswith(("PUT", "DELETE")):
        found.append(
            st.builds(about, found[0], st.fixed_dictionaries({name: st.sampled_from(names[name]) for name in names}))
        )
    if label in ("POST /v1/plans", "PUT /v1/jobs/{job_id}"):
        found.append(st.builds(nearly_right, found[0], st.randoms(use_true_random=False)))
    if label.endswith(("/events", "/what-if")):
        found.append(st.builds(about_nodes, found[-1], _NODES))
    return st.one_of(found)


def about(case: Case, names: dict[str, Any]) -> Case:
    """Ask for what is there, instead of what the path names."""
    case.path_parameters = {name: names[name] for name in case.path_parameters}
    if isinstance(case.body, dict) and "worker" in case.body:
        case.body["worker"] = names["worker"]
    return case


def nearly_right(case: Case, draw: Any) -> Case:
    """Take a right job, with one part of the generated one."""
    if isinstance(case.body, dict) and isinstance(case.body.get("job"), dict):
        taken = draw.sample(sorted(case.body["job"]), k=min(1, len(case.body["job"])))
        case.body["job"] = DOCUMENT | {key: case.body["job"][key] for key in taken}
    if isinstance(case.body, dict) and isinstance(case.body.get("options"), dict):
        case.body["options"] |= {"deadline_s": 0.05}
    return case


def about_nodes(case: Case, nodes: str) -> Case:
    """Name nodes that are there."""
    if isinstance(case.body, dict):
        named = {"nodes": nodes, "ranks": [], "workers": [], "expected_epoch": None}
        events = case.body.get("events")
        for event in [case.body] if events is None else events:
            if isinstance(event, dict):
                event.update(named)
    return case


def send(case: Case, url: str, session: requests.Session) -> requests.Response:
    """Answer to a case; of a stream only its head is read, and nobody waits for epochs that do not come."""
    if case.query and str(case.query.get("wait", "")).replace(".", "").isdecimal():
        case.query["wait"] = "0.01" if float(case.query["wait"]) <= 60 else "61"
    kwargs = case.as_transport_kwargs(base_url=url)
    answer = session.request(**kwargs, stream=case.path.endswith("/stream"), timeout=60)
    if answer.status_code == 200 and case.path.endswith("/stream"):
        answer._content = next(answer.iter_content(64))
        answer.close()
    return answer


def check_problem(answer: requests.Response) -> None:
    """Check that an error is a problem document whose code stands in the manual beside its status."""
    assert answer.headers["content-type"] == "application/problem+json"
    problem = ProblemDetails.model_validate(answer.json())
    assert problem.status == answer.status_code
    assert CODES[problem.code] == answer.status_code


@pytest.mark.parametrize(
    ("label", "mode"),
    [
        (label, mode)
        for label, operation in OPERATIONS.items()
        for mode in GenerationMode
        # Where nothing is asked for nothing can be wrong.
        if mode is GenerationMode.POSITIVE or operation.body or any(True for _ in operation.iter_parameters())
    ],
)
@pytest.mark.parametrize("count", [8, pytest.param(400, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_generated_requests_get_documented_answers(
    target: Target, session: requests.Session, label: str, mode: GenerationMode, count: int
) -> None:
    """No answer is above 499, each has a documented status, type and form, and each error a documented code."""

    @settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases(label, mode, target.names))
    def check(case: Case) -> None:
        answer = send(case, str(target.server.client.base_url), session)
        case.validate_response(answer, checks=CHECKS)
        if answer.status_code >= 400:
            check_problem(answer)

    check()
