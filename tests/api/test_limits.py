"""Request bodies that hold more than anybody needs: refused before anything is made of them, or with few faults."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from api.errors import RequestError
from api.jobs.forms import Acknowledgement, JobEvent, JobRegistration, PrecomputeRequest
from api.limits import MOST_OF, parse_body
from api.models import Form, PlanRequest, read_form
from api.settings import Settings
from planner.errors import DocumentLimitError, JobFileError
from planner.formats.job_file import job_from_document
from planner.hostlist import compress_hostlist

ROOT = Path(__file__).parents[2]
JOB: dict[str, Any] = json.loads((ROOT / "examples" / "plan-request.json").read_bytes())["job"]
JSON = {"Content-Type": "application/json"}
MEBIBYTE = 2**20


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A service whose jobs nobody has registered."""
    settings = Settings(store=str(tmp_path_factory.mktemp("limits") / "s.db"), solver_processes=1)
    with TestClient(create_app(settings)) as client:
        yield client


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("/v1/jobs/j/events", JobEvent),
        ("/v1/jobs/j/epochs/1/acknowledgements", Acknowledgement),
        ("/v1/jobs/j/precompute", PrecomputeRequest),
    ],
)
def test_only_routes_that_take_a_job_take_large_bodies(client: TestClient, path: str, form: type[Form]) -> None:
    """What a report needs is little: one byte more than its limit is refused, at the limit the body is read."""
    assert form.most_bytes is not None
    for size, status in ((form.most_bytes + 1, 413), (form.most_bytes, 422)):
        answer = client.post(path, content=b'"' + b"x" * (size - 2) + b'"', headers=JSON)
        assert answer.status_code == status, answer.text
    assert JobRegistration.most_bytes is PlanRequest.most_bytes is None


def test_an_event_of_every_node_and_many_ranks_fits() -> None:
    """Thousands of names without any order, or of ranks, are no large event."""
    assert JobEvent.most_bytes is not None
    nodes = compress_hostlist([f"rack{n % 97:02}-gpu{n:05}" for n in range(0, 32_768, 3)])
    for event in ({"nodes": nodes}, {"ranks": list(range(100_000, 131_072))}):
        body = json.dumps({"kind": "node_failed", **event}).encode()
        assert len(body) <= JobEvent.most_bytes
        assert read_form(JobEvent, parse_body(body, max_bytes=JobEvent.most_bytes)).kind == "node_failed"


@pytest.mark.parametrize("letters", MOST_OF)
def test_bodies_of_too_many_values_are_refused_before_they_are_read(letters: str) -> None:
    """Commas, colons and opening brackets bound what a body is made of; more of them are told apart from bad JSON."""
    with pytest.raises(DocumentLimitError, match=f"{MOST_OF[letters] + 1} times"):
        parse_body(letters[:1].encode() * (MOST_OF[letters] + 1), max_bytes=16 * MEBIBYTE)


def test_a_table_of_the_largest_job_is_read() -> None:
    """The bounds leave room for a table that names each of 131,072 GPUs, one a worker."""
    table = {f"{n // 16}/{n % 16}": [f"gpu{n // 8:05}:{n % 8}"] for n in range(131_072)}
    body = json.dumps({"job": {"layout": {"workers": table}}}).encode()
    assert len(parse_body(body, max_bytes=16 * MEBIBYTE)["job"]["layout"]["workers"]) == 131_072


def peak_bytes(form: type[Form], document: Any) -> int:
    """Most memory that refusing a document takes."""
    tracemalloc.start()
    try:
        with pytest.raises(RequestError) as caught:
            read_form(form, document)
        assert len(caught.value.places) <= 64
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("form", "document"),
    [
        (JobEvent, {"kind": "node_failed", "ranks": ["x"] * 30_000}),
        (JobEvent, {"kind": "node_failed", "ranks": [[]] * 100_000}),
        (JobEvent, {"kind": "node_failed", "workers": [1] * 30_000}),
        (JobEvent, {"kind": "node_failed", "nodes": [1] * 30_000}),
        (JobEvent, {f"k{n}": 1 for n in range(50_000)}),
        (PlanRequest, {"job": {}, "failures": {"fail": [1] * 100_000}}),
        (PlanRequest, {"job": {}, "failures": {f"k{n}": 1 for n in range(50_000)}}),
        (PlanRequest, {"job": {}, "options": {f"k{n}": 1 for n in range(50_000)}}),
    ],
)
def test_faults_by_the_thousand_are_told_by_a_few(form: type[Form], document: Any) -> None:
    """A fault costs about a kilobyte, so tens of thousands of them would be tens of megabytes."""
    assert peak_bytes(form, document) < 3 * MEBIBYTE


@pytest.mark.parametrize(
    "changes",
    [
        {f"k{n}": 1 for n in range(50_000)},
        {"microbatches": ["x"] * 50_000},
        {"capacity_bytes": ["x"] * 4096},
        {"stages": [{f"k{n}": 1 for n in range(50)}] * 4096},
        {"stage_overrides": {str(n): {"x": 1} for n in range(4096)}},
        {"placement": [["x"] * 100] * 4096},
        {"topology": {"nodes": [1] * 50_000, "gpus_per_node": 1}},
        {"topology": {"nodes": "n", "gpus_per_node": 1, "racks": {str(n): 1 for n in range(50_000)}}},
        {"layout": {"workers": {str(n): [[]] * 50 for n in range(2000)}}},
        {"layout": {"rank_order": [1] * 50_000}},
    ],
)
def test_faults_by_the_thousand_in_a_job_are_told_by_a_few(changes: dict[str, Any]) -> None:
    """The same for what stands in a job's document, wherever it may be long."""
    tracemalloc.start()
    try:
        with pytest.raises(JobFileError) as caught:
            job_from_document(JOB | changes)
        assert tracemalloc.get_traced_memory()[1] < 12 * MEBIBYTE
    finally:
        tracemalloc.stop()
    assert len(str(caught.value).splitlines()) <= 6


def test_pointers_lead_into_the_request() -> None:
    """Members of unions are no part of a pointer, and an index is one in the whole list."""
    for event, pointer in (
        ({"nodes": ["n1", 2]}, "/nodes/1"),
        ({"ranks": [0] * 500 + ["x"]}, "/ranks/500"),
        ({"nodes": 5}, "/nodes"),
        ({}, "/kind"),
    ):
        with pytest.raises(RequestError) as caught:
            read_form(JobEvent, {"kind": "node_failed", **event} if event else {})
        assert pointer in [place["pointer"] for place in caught.value.places]


def test_answers_do_not_repeat_what_is_long(client: TestClient) -> None:
    """A name of a megabyte is cut in what is said of it."""
    name = "x" * MEBIBYTE
    racks = {"nodes": "n[00-11]", "gpus_per_node": 1, "racks": {name: "n["}}
    for content in ({name: 1}, {"job": {name: 1}}, {"job": JOB | {"topology": racks}}):
        answer = client.put("/v1/jobs/j", json=content)
        assert answer.status_code == 422
        assert len(answer.content) < 20_000
