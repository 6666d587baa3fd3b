"""Reading epochs over real HTTP: entity tags, long polls, streams, programs by rank, acknowledgements."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice

import httpx2
import pytest

from api.jobs.epoch_body import EpochBody
from tests.jobs import ServedJob, check_problem
from tests.serving import Server


@contextmanager
def stream(job: ServedJob, **headers: str) -> Iterator[Iterator[str]]:
    """Lines of a job's event stream that say something."""
    with job.client.stream("GET", f"{job.path}/stream", headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield (line for line in answer.iter_lines() if line and not line.startswith("retry"))


def events(lines: Iterator[str], count: int) -> list[EpochBody]:
    """The next epochs of a stream; each event's id is its epoch."""
    found = []
    for _ in range(count):
        number, kind, data = islice(lines, 3)
        body = EpochBody.model_validate(json.loads(data.removeprefix("data: ")))
        assert (number, kind) == (f"id: {body.epoch}", "event: epoch")
        found.append(body)
    return found


def test_epochs_are_cached_by_etag(job: ServedJob) -> None:
    """The current epoch is checked each time, an epoch and its documents are kept for ever; a known tag gives 304."""
    for path, cache in (
        ("current", "no-cache"),
        ("1", "immutable"),
        ("1/plan", "immutable"),
        ("1/programs/0/0", "immutable"),
    ):
        whole = job.get(f"epochs/{path}")
        assert whole.status_code == 200
        assert cache in whole.headers["cache-control"]
        again = job.get(f"epochs/{path}", headers={"If-None-Match": whole.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    tag = job.get("epochs/current").headers["etag"]
    job.report("node_failed", "n06")
    assert job.get("epochs/current", headers={"If-None-Match": tag}).status_code == 200


def digest_of(content: bytes) -> str:
    """The header for these bytes, as RFC 9530 has it."""
    return f"sha-256=:{base64.b64encode(hashlib.sha256(content).digest()).decode()}:"


def test_programs_are_sent_in_gzip_where_the_client_takes_it(job: ServedJob) -> None:
    """The same program with and without compression, under one weak tag, each with the digest of the bytes that were sent."""
    with job.client.stream("GET", f"{job.path}/epochs/1/programs/0/0", headers={"Accept-Encoding": "gzip"}) as answer:
        packed, tag = b"".join(answer.iter_raw()), answer.headers["etag"]
        assert answer.headers["content-encoding"] == "gzip"
        assert answer.headers["repr-digest"] == digest_of(packed)
    for accepted in ("identity", "gzip;q=0, br"):
        plain = job.get("epochs/1/programs/0/0", headers={"Accept-Encoding": accepted})
        assert "content-encoding" not in plain.headers
        assert plain.headers["repr-digest"] == digest_of(plain.content)
        assert gzip.decompress(packed) == plain.content
        assert plain.headers["etag"] == tag
        assert tag.startswith("W/")


def test_a_long_poll_returns_with_the_next_epoch(job: ServedJob) -> None:
    """Whoever has the current epoch waits for the next one; whoever has an older one gets the current at once."""
    with ThreadPoolExecutor() as threads:
        waiting = [threads.submit(job.get, "epochs/current", params={"after": 1, "wait": 60}) for _ in range(3)]
        job.report("node_failed", "n06")
        assert [answer.result().json()["epoch"] for answer in waiting] == [2, 2, 2]
    assert job.get("epochs/current", params={"after": 1, "wait": 60}).json()["epoch"] == 2


def test_a_long_poll_in_vain_is_empty(job: ServedJob) -> None:
    """Without a newer epoch the answer is 204, at once or after the wait; a client ahead of the store is told so."""
    assert job.get("epochs/current", params={"after": 1}).status_code == 204
    assert job.get("epochs/current", params={"after": 1, "wait": 0.2}).status_code == 204
    ahead = check_problem(job.get("epochs/current", params={"after": 5, "wait": 60}), 409, "epoch_conflict")
    assert ahead["current_epoch"] == 1


def test_waiting_is_no_time_of_requests(job: ServedJob) -> None:
    """Polls and streams that wait count that apart from what answering took; a poll that has its answer waits not at all."""
    route = "/v1/jobs/{job_id}/epochs/current"

    def seconds(metric: str, of: str) -> tuple[float, float]:
        """Sum and number of what was observed for a route."""
        text = job.client.get("/metrics").text
        lines = [line for line in text.splitlines() if line.startswith(metric) and f'route="{of}"' in line]
        sums, counts = ([float(x.split()[-1]) for x in lines if f"{metric}_{kind}" in x] for kind in ("sum", "count"))
        return sum(sums), sum(counts)

    before, began = (seconds("replan_request_seconds", route), seconds("replan_wait_seconds", route)), time.monotonic()
    assert job.get("epochs/current", params={"after": 1, "wait": 1.5}).status_code == 204
    assert job.get("epochs/current", params={"wait": 1.5}).status_code == 200
    took = time.monotonic() - began
    after = seconds("replan_request_seconds", route), seconds("replan_wait_seconds", route)
    assert after[0][1] - before[0][1] == 2
    assert after[1][1] - before[1][1] == 1
    waited, answering = after[1][0] - before[1][0], after[0][0] - before[0][0]
    # Were the wait counted in both they would be more than the time that passed.
    assert waited >= 1.4
    assert answering + waited <= took
    streams = "/v1/jobs/{job_id}/stream"
    number = seconds("replan_wait_seconds", streams)[1]
    with stream(job) as lines:
        events(lines, 1)
    while seconds("replan_wait_seconds", streams)[1] == number:
        time.sleep(0.05)


def test_a_stream_begins_with_the_current_epoch_and_follows(job: ServedJob) -> None:
    """A new client gets the current epoch first, then each later one."""
    job.report("node_failed", "n06")
    with stream(job) as lines:
        assert [body.epoch for body in events(lines, 1)] == [2]
        job.report("node_failed", "n07")
        job.report("node_recovered", "n06")
        assert [body.epoch for body in events(lines, 2)] == [3, 4]


def test_a_stream_goes_on_behind_the_last_event(job: ServedJob) -> None:
    """A client that comes again gets every epoch that it missed, in order, and no other, over more than one page."""
    for _ in range(30):
        job.report("node_failed", "n06")
        job.report("node_recovered", "n06")
    with stream(job, **{"Last-Event-ID": "2"}) as lines:
        assert [body.epoch for body in events(lines, 59)] == list(range(3, 62))
    for headers, status, code in (
        ({"Last-Event-ID": "x"}, 422, "request_invalid"),
        ({"Last-Event-ID": "99"}, 409, "epoch_conflict"),
    ):
        check_problem(job.get("stream", headers=headers), status, code)


def test_a_stream_of_a_deleted_job_ends(job: ServedJob) -> None:
    """The client is told, and the connection ends."""
    with stream(job) as lines:
        events(lines, 1)
        assert job.client.delete(job.path).status_code == 204
        assert list(lines) == ["event: deleted", "data: {}"]


def test_workers_acknowledge_epochs(job: ServedJob) -> None:
    """The job shows who has an epoch and who has not, and once all have, from which iteration they all run it."""
    job.report("node_failed", "n06")
    path = f"{job.path}/epochs/2/acknowledgements"
    assert job.client.post(path, json={"worker": "rank:0", "iteration": 7}).status_code == 204
    assert job.client.post(path, json={"worker": "0/1"}).status_code == 204
    shown = job.client.get(path).json()
    assert shown["acknowledged"] == [{"worker": "0/0", "iteration": 7}, {"worker": "0/1", "iteration": None}]
    assert (shown["num_live"], len(shown["missing"]), shown["from_iteration"]) == (11, 9, None)
    assert "1/2" not in shown["missing"], "a dead worker is not waited for"
    everyone = ["0/1", *shown["missing"]]
    with ThreadPoolExecutor(8) as threads:
        answers = threads.map(lambda w: job.client.post(path, json={"worker": w, "iteration": 9}), everyone)
        assert {answer.status_code for answer in answers} == {204}
    shown = job.client.get(path).json()
    assert (shown["missing"], shown["from_iteration"]) == ([], 9)


@pytest.mark.parametrize("worker", ["1/2", "3/0", "rank:6", "rank:99", "rank:", "x"])
def test_only_live_workers_acknowledge(job: ServedJob, worker: str) -> None:
    """A worker that is down or does not exist has nothing to acknowledge."""
    job.report("node_failed", "n06")
    answer = job.client.post(f"{job.path}/epochs/2/acknowledgements", json={"worker": worker})
    check_problem(answer, 404, "not_found")


def test_every_answer_is_in_the_openapi_document(server: Server) -> None:
    """Each route of jobs lists its problems, its parameters and the form of its answer, and every reference leads somewhere."""
    document = server.client.get("/openapi.json").json()
    text = json.dumps(document)
    references = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert references <= document["components"]["schemas"].keys()
    for path, item in document["paths"].items():
        for method, operation in item.items():
            assert operation["summary"], (method, path)
            assert "500" in operation["responses"], (method, path)
            named = {parameter["name"] for parameter in operation.get("parameters", ())}
            assert {part.partition("}")[0] for part in path.split("{")[1:]} <= named, (method, path)


def test_one_connection_is_enough_for_many_programs(job: ServedJob) -> None:
    """Many workers that fetch at once each get their own program."""
    workers = [f"{k}/{s}" for k in range(3) for s in range(4)] * 5

    def fetch(worker: str) -> httpx2.Response:
        return job.get(f"epochs/1/programs/{worker}")

    with ThreadPoolExecutor(8) as threads:
        found = [answer.json()["worker"] for answer in threads.map(fetch, workers)]
    assert found == workers
