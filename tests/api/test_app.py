"""The application over HTTP in one process, with solver processes that do what a request's job orders."""

from __future__ import annotations

import json
import sqlite3
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.testclient import TestClient

from api.app import create_app
from api.settings import Settings

FAKE = (sys.executable, "-P", str(Path(__file__).with_name("fake_worker.py")))


def client_of(path: Path, **changes: Any) -> TestClient:
    """Client of an application on a store in ``path``."""
    settings = Settings(**{"store": str(path / "plans.db"), "solver_processes": 1} | changes)
    return TestClient(create_app(settings, worker_command=FAKE), raise_server_exceptions=False)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    """Client of a running application."""
    with client_of(tmp_path) as running:
        yield running


def post(client: TestClient, options: dict[str, object] | None = None, **orders: object) -> httpx2.Response:
    """Ask for a plan of a job that is a set of orders to the fake solver process."""
    return client.post("/v1/plans", json={"job": orders, "options": options or {}})


def check_problem(answer: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    """Check that an answer is the problem document it should be; returns it."""
    assert answer.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = answer.json()
    assert (answer.status_code, document["status"], document["code"]) == (status, status, code), document
    assert {"type", "title", "detail"} <= document.keys()
    assert "secret" not in answer.text
    return document


def test_a_plan_is_made_once_and_found_at_its_location(client: TestClient) -> None:
    """The first request makes a plan (201), the same again finds it (200), and Location leads to its bytes."""
    first, again = post(client, name=1), post(client, name=1)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.content == again.content
    assert first.headers["location"] == again.headers["location"] == f"/v1/plans/{first.json()['plan_id']}"
    assert client.get(first.headers["location"]).json()["plan_id"] == first.json()["plan_id"]
    assert client.get(first.headers["location"] + "/summary").content == first.content


def test_requests_that_mean_the_same_are_the_same(client: TestClient) -> None:
    """Defaults written out, other spacing and another order of keys change nothing; another seed does."""
    first = post(client, a=1, b=2)
    body = b'{ "options": {"seed": 0, "deadline_s": 2.0}, "failures": {}, "job": {"b": 2, "a": 1}}'
    same = client.post("/v1/plans", content=body, headers={"Content-Type": "application/json; charset=utf-8"})
    assert (same.status_code, same.json()) == (200, first.json())
    assert post(client, {"seed": 1}, a=1, b=2).status_code == 201


def test_stored_documents_are_cached_by_etag(client: TestClient) -> None:
    """An entity tag sent back gives 304 without a body, alone, in a list, weak, or as a star; another one gives all."""
    location = post(client).headers["location"]
    for path in (location, f"{location}/summary", f"{location}/programs/1/0"):
        whole = client.get(path)
        etag = whole.headers["etag"]
        assert "immutable" in whole.headers["cache-control"]
        for known in (etag, f'"other", W/{etag}', "*"):
            answer = client.get(path, headers={"If-None-Match": known})
            assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", etag)
        assert client.get(path, headers={"If-None-Match": '"other"'}).content == whole.content


def test_programs_are_found_by_worker_and_by_rank(client: TestClient) -> None:
    """A worker's program comes by its text form, with an escaped slash, or by the global rank of one of its GPUs."""
    location = post(client).headers["location"]
    by_worker = client.get(f"{location}/programs/1/0")
    assert by_worker.json()["worker"] == "1/0"
    assert client.get(f"{location}/programs/1%2F0").content == by_worker.content
    assert client.get(f"{location}/programs/rank:17").content == by_worker.content
    for unknown in ("5/0", "rank:18", "rank:", "nonsense", "1/0/0", "..%2f0", "%00"):
        check_problem(client.get(f"{location}/programs/{unknown}"), 404, "not_found")


def test_unknown_plans_paths_and_methods_are_problems(client: TestClient) -> None:
    """What is not there, and methods a path does not take, get problem documents; 405 says what is allowed."""
    for path in ("/v1/plans/" + "0" * 64, "/v1/plans/x/summary", "/v1/plans/x/programs/0/0", "/v1/plans/%00"):
        check_problem(client.get(path), 404, "not_found")
    for path in ("/v2", "/v1/jobs/", "/v1/jobs/x/", "/v1/jobs/x/epochs/current/", "/healthz/"):
        check_problem(client.get(path, follow_redirects=False), 404, "route_not_found")
    answer = client.delete("/v1/plans/x")
    check_problem(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == "GET"
    assert check_problem(client.get("/v1/plans/" + "0" * 65), 422, "request_invalid")["errors"][0]["pointer"]


@pytest.mark.parametrize(
    ("body", "status", "code", "part"),
    [
        (b"", 422, "request_invalid", "line 1"),
        (b"{", 422, "request_invalid", "malformed"),
        (b"\xff{}", 422, "request_invalid", "UTF-8"),
        (b"[]", 422, "request_invalid", "/"),
        (b"{}", 422, "request_invalid", "/job"),
        (b'{"job": []}', 422, "request_invalid", "/job"),
        (b'{"job": {}, "jobs": {}}', 422, "request_invalid", "/jobs"),
        (b'{"job": {}, "job": {}}', 422, "request_invalid", "twice"),
        (b'{"job": {"a": NaN}}', 422, "request_invalid", "NaN"),
        (b'{"job": {"a": 1e999}}', 422, "request_invalid", "finite"),
        (b'{"job": {}, "options": {"seed": "1"}}', 422, "request_invalid", "/options/seed"),
        (b'{"job": {}, "options": {"seed": true}}', 422, "request_invalid", "/options/seed"),
        (b'{"job": {}, "options": {"deadline_s": 0}}', 422, "request_invalid", "/options/deadline_s"),
        (b'{"job": {}, "options": {"deadline_s": 61}}', 422, "option_invalid", "60"),
        (b'{"job": {}, "failures": {"fail": "n00"}}', 422, "request_invalid", "/failures/fail"),
        (b'{"job": ' + b"[" * 10_000 + b"]" * 10_000 + b"}", 413, "document_limit", "deep"),
        (b'{"job": ' + b'{"a":' * 10_000 + b"1" + b"}" * 10_001, 413, "document_limit", "deep"),
        (b"[" * 200_000, 413, "document_limit", "deep"),
        (b'{"job": {"a": ' + b"9" * 10_000 + b"}}", 422, "request_invalid", "digits"),
    ],
)
def test_bad_bodies_are_told_where_and_why(client: TestClient, body: bytes, status: int, code: str, part: str) -> None:
    """Each malformed body is refused with its code and a detail that names the place or the reason."""
    answer = client.post("/v1/plans", content=body, headers={"Content-Type": "application/json"})
    assert part in check_problem(answer, status, code)["detail"]


def test_other_media_types_are_refused(client: TestClient) -> None:
    """A body that is not declared as plain JSON is not read, so no web page can post one by a plain form."""
    for headers in (
        {"Content-Type": "text/plain"},
        {},
        {"Content-Type": "application/json", "Content-Encoding": "gzip"},
    ):
        answer = client.post("/v1/plans", content=b'{"job": {}}', headers=headers)
        check_problem(answer, 415, "media_type_unsupported")


def test_large_bodies_are_refused_declared_or_chunked(tmp_path: Path) -> None:
    """A body over the limit is refused by its declared length, and when it comes in chunks without one."""
    with client_of(tmp_path, max_body_bytes=2048) as client:
        body = json.dumps({"job": {"a": "x" * 4096}}).encode()
        headers = {"Content-Type": "application/json"}
        check_problem(client.post("/v1/plans", content=body, headers=headers), 413, "document_limit")
        chunks = (body[i : i + 100] for i in range(0, len(body), 100))
        check_problem(client.post("/v1/plans", content=chunks, headers=headers), 413, "document_limit")
        assert post(client, a=1).status_code == 201


def test_solver_outcomes_have_statuses_of_their_own(client: TestClient) -> None:
    """No plan is 409 with its reason; a bug, a broken schedule and a dead process are 500 without any inside text."""
    assert "checkpoint" in check_problem(post(client, stage_lost=True), 409, "stage_lost")["detail"]
    check_problem(post(client, invalid=True), 500, "schedule_invalid")
    check_problem(post(client, bug=True), 500, "solver_crashed")
    check_problem(post(client, die=True), 500, "solver_crashed")
    assert post(client).status_code == 201


def test_a_failed_request_is_tried_anew_when_it_comes_again(client: TestClient) -> None:
    """Only plans are remembered: what failed once may succeed later."""
    location = "/v1/plans/" + "0" * 64
    check_problem(post(client, stage_lost=True), 409, "stage_lost")
    check_problem(post(client, stage_lost=True), 409, "stage_lost")
    check_problem(client.get(location), 404, "not_found")


def test_an_overrun_is_stopped(tmp_path: Path) -> None:
    """A solver that runs past deadline and grace is killed, and the client is told so."""
    with client_of(tmp_path, solve_grace_s=0.1) as client:
        check_problem(post(client, {"deadline_s": 0.1}, sleep_s=60), 504, "solve_timeout")


def test_a_full_queue_says_when_to_come_again(tmp_path: Path) -> None:
    """With one busy process and no queue, another request is answered 503 with Retry-After, and health still answers."""
    with client_of(tmp_path, queue_limit=0) as client, ThreadPoolExecutor() as threads:
        while client.get("/readyz").status_code != 200:
            time.sleep(0.01)
        log, go = tmp_path / "log", tmp_path / "go"
        running = threads.submit(post, client, until=str(go), log=str(log))
        while not log.exists():
            time.sleep(0.01)
        answer = post(client, other=True)
        check_problem(answer, 503, "overloaded")
        assert int(answer.headers["retry-after"]) > 0
        assert client.get("/healthz").json()["status"] == "ok"
        go.touch()
        assert running.result().status_code == 201


def test_the_same_request_at_the_same_time_is_solved_once(tmp_path: Path) -> None:
    """Four clients ask the same at once: one solve, one 201, one answer for all."""
    log = tmp_path / "log"
    with client_of(tmp_path) as client, ThreadPoolExecutor() as threads:
        answers = list(threads.map(lambda _: post(client, sleep_s=0.5, log=str(log)), range(4)))
    assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 201]
    assert len({answer.content for answer in answers}) == 1
    assert len(log.read_text().splitlines()) == 1


def test_plans_survive_a_restart(tmp_path: Path) -> None:
    """A plan is there for the next server on the store."""
    with client_of(tmp_path) as client:
        location = post(client).headers["location"]
        content = client.get(location).content
    with client_of(tmp_path) as client:
        assert client.get(location).content == content
        assert post(client).status_code == 200


def test_a_damaged_plan_is_told_and_made_again(tmp_path: Path) -> None:
    """Whatever of a plan is damaged: it is never shown, the service says so, and asked for again the plan is there again."""
    with client_of(tmp_path) as client:
        location = post(client).headers["location"]
        program = f"{location}/programs/0/0"
        right = [client.get(path).content for path in (location, f"{location}/summary", program)]

        def damage(table: str, column: str) -> None:
            with closing(sqlite3.connect(tmp_path / "plans.db")) as connection:
                connection.execute(f"UPDATE {table} SET {column} = x'00'")
                connection.commit()

        damage("programs", "content")
        assert client.get(program).content == right[2]
        damage("ranks", "worker")
        assert client.get(f"{location}/programs/rank:17").json()["worker"] == "1/0"
        damage("plans", "summary")
        assert post(client).status_code == 201
        damage("plans", "content")
        check_problem(client.get(location), 500, "store_corrupt")
        check_problem(client.get(program), 404, "not_found")
        assert post(client).status_code == 201
        assert [client.get(path).content for path in (location, f"{location}/summary", program)] == right
        assert 'replan_degradations_total{kind="plan_corrupt"} 4.0' in client.get("/metrics").text


def test_readiness_tells_what_is_missing(tmp_path: Path) -> None:
    """Without a warm solver process the service lives but is not ready."""
    settings = Settings(store=str(tmp_path / "plans.db"))
    with TestClient(create_app(settings, worker_command=(*FAKE, "never-ready"))) as client:
        assert client.get("/healthz").status_code == 200
        answer = client.get("/readyz")
        assert answer.status_code == 503
        assert "solver process" in answer.json()["status"]


def test_a_background_task_that_has_ended_is_told(client: TestClient) -> None:
    """A server one of whose tasks is not at work is not ready, and says which one."""
    while client.get("/readyz").status_code != 200:
        time.sleep(0.01)

    async def fail() -> None:
        raise KeyError("a bug")

    async def start() -> None:
        client.app.state.background.run("failing", fail)  # type: ignore[attr-defined]

    assert client.portal is not None
    client.portal.call(start)
    while (answer := client.get("/readyz")).status_code == 200:
        time.sleep(0.01)
    assert answer.status_code == 503
    assert "failing" in answer.json()["status"]
    assert client.get("/healthz").status_code == 200


def test_unexpected_errors_show_nothing(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug in a route is a problem document with an instance to look up, and no text of the error."""

    def fail(*_: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(client.app.state.service.store, "plan", fail)  # type: ignore[attr-defined]
    answer = client.get("/v1/plans/x")
    document = check_problem(answer, 500, "internal")
    assert answer.headers["connection"] == "close", "the web server closes it"
    assert document["instance"].startswith("urn:uuid:")


def test_openapi_is_complete(client: TestClient) -> None:
    """Each operation lists problem answers, every reference leads somewhere, and every field is described."""
    document = client.get("/openapi.json").json()
    schemas = document["components"]["schemas"]
    text = json.dumps(document)
    references = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert references <= schemas.keys()
    assert "HTTPValidationError" not in text
    operations = {
        (path, method): operation for path, item in document["paths"].items() for method, operation in item.items()
    }
    assert set(operations) == {
        ("/v1/plans", "post"),
        ("/v1/plans/{plan_id}", "get"),
        ("/v1/plans/{plan_id}/summary", "get"),
        ("/v1/plans/{plan_id}/programs/{worker}", "get"),
        ("/v1/jobs", "get"),
        ("/v1/jobs/{job_id}", "put"),
        ("/v1/jobs/{job_id}", "get"),
        ("/v1/jobs/{job_id}", "delete"),
        ("/v1/jobs/{job_id}/events", "post"),
        ("/v1/jobs/{job_id}/epochs", "get"),
        ("/v1/jobs/{job_id}/epochs/current", "get"),
        ("/v1/jobs/{job_id}/epochs/{epoch}", "get"),
        ("/v1/jobs/{job_id}/epochs/{epoch}/plan", "get"),
        ("/v1/jobs/{job_id}/epochs/{epoch}/programs/{worker}", "get"),
        ("/v1/jobs/{job_id}/epochs/{epoch}/acknowledgements", "post"),
        ("/v1/jobs/{job_id}/epochs/{epoch}/acknowledgements", "get"),
        ("/v1/jobs/{job_id}/stream", "get"),
        ("/v1/jobs/{job_id}/precompute", "post"),
        ("/v1/jobs/{job_id}/operations", "get"),
        ("/v1/operations/{operation_id}", "get"),
        ("/v1/operations/{operation_id}/cancel", "post"),
        ("/v1/overview", "get"),
        ("/v1/overview/stream", "get"),
        ("/v1/jobs/{job_id}/cluster", "get"),
        ("/v1/jobs/{job_id}/epochs/{epoch}/timeline", "get"),
        ("/v1/jobs/{job_id}/epochs/{epoch}/trace", "get"),
        ("/v1/jobs/{job_id}/what-if", "post"),
        ("/v1/jobs/{job_id}/heat", "get"),
        ("/", "get"),
        ("/page/{name}", "get"),
        ("/healthz", "get"),
        ("/readyz", "get"),
        ("/metrics", "get"),
    }
    for operation in operations.values():
        assert operation["summary"]
        assert operation["responses"]["500"]["content"]["application/problem+json"]["schema"] == {
            "$ref": "#/components/schemas/ProblemDetails"
        }
    body = operations["/v1/plans", "post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body == {"$ref": "#/components/schemas/PlanRequest"}
    for name in ("PlanRequest", "FailureSetRequest", "PlanOptions", "ProblemDetails", "Health"):
        assert all("description" in field for field in schemas[name]["properties"].values()), name


def test_a_key_repeated_among_many_is_found_quickly(client: TestClient) -> None:
    """Looking for the key that stands twice takes linear time: the answer comes at all."""
    keys = ",".join(f'"{number}":0' for number in [*range(100_000), 99_999])
    answer = client.post("/v1/plans", content="{" + keys + "}", headers={"Content-Type": "application/json"})
    assert "'99999'" in check_problem(answer, 422, "request_invalid")["detail"]


def test_a_plan_that_another_try_may_improve_is_not_remembered(client: TestClient, tmp_path: Path) -> None:
    """It is stored and answered, but the same request is worked on again; nor are other plans compared as it was."""
    log = tmp_path / "log"
    first, again = (post(client, hindered=True, log=str(log)) for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    assert client.get(first.headers["location"]).status_code == 200
    assert len(log.read_text().splitlines()) == 2
    assert post(client, {"seed": 1}, hindered=True, log=str(log)).json()["compared_with"] == ""


def test_all_plans_of_a_job_are_compared_with_the_same(tmp_path: Path) -> None:
    """They are given what the first one was compared with: those that come meanwhile, later, and after a restart."""
    with client_of(tmp_path, solver_processes=2) as client, ThreadPoolExecutor(4) as threads:
        made = list(threads.map(lambda seed: post(client, {"seed": seed}, sleep_s=0.2).json(), range(4)))
        (first,) = (plan for plan in made if plan["compared_with"] == "")
        other = post(client, {"seed": 9}, sleep_s=0.1).json()
    with client_of(tmp_path) as client:
        made.append(post(client, {"seed": 4}, sleep_s=0.2).json())
    assert all(json.loads(plan["compared_with"]) == first for plan in made if plan is not first)
    assert other["compared_with"] == ""


def test_a_first_plan_that_fails_holds_nobody_up(tmp_path: Path) -> None:
    """Requests that waited for it are answered on their own, at the same time."""
    with client_of(tmp_path, solver_processes=2) as client, ThreadPoolExecutor(3) as threads:
        answers = list(threads.map(lambda seed: post(client, {"seed": seed}, sleep_s=0.2, bug=True), range(3)))
    assert [answer.status_code for answer in answers] == [500] * 3
