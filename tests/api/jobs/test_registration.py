"""Registering, replacing and deleting jobs over real HTTP, and making their plans ready."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.jobs import DOCUMENT, ServedJob, check_problem
from tests.precomputing import LONG_JOB
from tests.serving import Server


def finished(job: ServedJob, operation: str) -> dict[str, object]:
    """An operation once it has ended; the test's own time limit ends a wait in vain."""
    while True:
        shown: dict[str, object] = job.client.get(f"/v1/operations/{operation}").json()
        if shown["state"] not in ("queued", "running"):
            return shown
        time.sleep(0.05)


def test_the_same_registration_changes_nothing(job: ServedJob) -> None:
    """Registered again, with keys in another order, the job has its revision and epoch still."""
    again = job.client.put(job.path, json={"tolerance": 1, "job": dict(reversed(DOCUMENT.items()))})
    assert (again.status_code, again.json()["revision"], again.json()["epoch"]) == (200, 1, 1)
    shown = job.client.get(job.path).json()
    assert shown["job"] == DOCUMENT
    assert (shown["name"], shown["tolerance"], shown["mode"]) == ("recycle-worked-example", 1, None)


def test_another_document_is_a_revision_that_keeps_failures(job: ServedJob) -> None:
    """A changed job goes on with what is known to be down, and the old epochs stay readable with their programs."""
    job.report("node_failed", "n06")
    before = [job.get(f"epochs/2{path}").content for path in ("", "/programs/0/2")]
    job.document = DOCUMENT | {"microbatches": 3}
    answer = job.register()
    assert (answer.status_code, answer.json()["revision"], answer.json()["epoch"]) == (200, 2, 3)
    body = job.current()
    assert (body["cause"], body["revision"], body["failed_workers"], body["dropped"]) == ("revised", 2, ["1/2"], [])
    assert body["plan"]["period_us"] < 27, "half the microbatches take less time"
    assert body["migrations"] == []
    assert [job.get(f"epochs/2{path}").content for path in ("", "/programs/0/2")] == before


def test_another_tolerance_or_mode_makes_no_epoch(job: ServedJob) -> None:
    """They are changed and nothing else is; left out, both stay as they are, and null takes the mode away."""
    job.report("node_failed", "n06")
    before = job.current()
    seen = []
    for fields in ({"tolerance": 0, "mode": "all"}, {}, {"tolerance": None}, {"mode": None}, {"tolerance": 2}):
        answer = job.register(**fields).json()
        seen.append((answer["tolerance"], answer["mode"]))
        assert (answer["revision"], answer["epoch"]) == (1, 2)
    assert seen == [(0, "all"), (0, "all"), (0, "all"), (0, None), (2, None)]
    assert job.client.get(job.path).json()["tolerance"] == 2
    assert job.current() == before


def test_failures_that_a_revision_does_not_have_are_dropped(job: ServedJob) -> None:
    """A node that left the job is named as dropped and is not down any more."""
    job.report("node_failed", "n11")
    smaller = DOCUMENT | {
        "topology": DOCUMENT["topology"] | {"nodes": "n[00-07]"},
        "layout": DOCUMENT["layout"] | {"data_parallel": 2},
    }
    job.document = smaller
    assert job.register().status_code == 200
    body = job.current()
    assert (body["dropped"], body["failed_workers"], body["failures"]["nodes"]) == (["n11"], [], "")


def test_jobs_are_listed_and_deleted(server: Server) -> None:
    """The list goes page by page in the order of ids; a deleted job is gone, and its next life counts its epochs on."""
    jobs = [ServedJob(server.client, f"list-{number}") for number in range(3)]
    for job in jobs:
        job.register()
    page = server.client.get("/v1/jobs", params={"after": "list-", "limit": 2}).json()
    assert ([job["id"] for job in page["jobs"]], page["next"]) == (["list-0", "list-1"], "list-1")
    rest = server.client.get("/v1/jobs", params={"after": page["next"], "limit": 1}).json()
    assert [job["id"] for job in rest["jobs"]] == ["list-2"]
    jobs[0].report("node_failed", "n06")
    assert server.client.delete(jobs[0].path).status_code == 204
    check_problem(server.client.delete(jobs[0].path), 404, "not_found")
    check_problem(jobs[0].get("epochs/2/programs/0/0"), 404, "not_found")
    assert jobs[0].register().json()["epoch"] == 3, "a worker that still waits behind epoch 2 is not left behind"


@pytest.mark.parametrize(
    ("document", "status", "code"),
    [
        ({}, 422, "job_invalid"),
        (DOCUMENT | {"colour": "red"}, 422, "job_invalid"),
        (
            DOCUMENT | {"stage_costs": DOCUMENT["stage_costs"] | {"activation_bytes": 10}, "capacity_bytes": 4},
            409,
            "memory_too_small",
        ),
    ],
)
def test_jobs_without_a_plan_are_not_registered(
    server: Server, document: dict[str, object], status: int, code: str
) -> None:
    """What is no job, or can never run, is refused and leaves nothing behind."""
    job = ServedJob(server.client, "refused", document)
    check_problem(job.register(), status, code)
    check_problem(server.client.get(job.path), 404, "not_found")


def test_registration_makes_plans_ready(server: Server) -> None:
    """With a mode the plans are made in the background, once; an event then finds its plan in the store."""
    job = ServedJob(server.client, "ready", DOCUMENT | {"name": "ready"})
    operation = job.register(tolerance=1, mode="all").json()["operation"]
    # Four slots: nothing failed, or one of them.
    assert finished(job, operation)["total"] == 5
    assert job.register(tolerance=1, mode="all").json()["operation"] is None
    assert job.report("node_failed", "n02")["source"] == "store"
    assert [shown["id"] for shown in job.get("operations").json()["operations"]] == [operation]


def test_a_cancelled_operation_is_begun_again(server: Server) -> None:
    """Registrations at once begin one operation between them; after that was cancelled the next registration begins another."""
    job = ServedJob(server.client, "again", LONG_JOB | {"name": "again"})
    job.register()
    with ThreadPoolExecutor(6) as threads:
        answers = list(threads.map(lambda _: job.register(tolerance=4, mode="all").json(), range(6)))
    (operation,) = {answer["operation"] for answer in answers} - {None}
    assert [answer["operation"] for answer in answers].count(None) == 5
    job.client.post(f"/v1/operations/{operation}/cancel")
    second = job.register().json()["operation"]
    assert second not in (None, operation)
    job.client.post(f"/v1/operations/{second}/cancel")
    page = job.get("operations", params={"limit": 1}).json()
    assert ([shown["id"] for shown in page["operations"]], page["next"]) == ([second], second)
    rest = job.get("operations", params={"after": second}).json()
    assert ([shown["id"] for shown in rest["operations"]], rest["next"]) == ([operation], None)
    check_problem(job.get("operations", params={"after": "x"}), 404, "not_found")


def test_plans_are_made_ready_when_asked(server: Server) -> None:
    """The operation takes the job's tolerance unless told otherwise, skips what is there, and can be cancelled."""
    job = ServedJob(server.client, "asked", LONG_JOB | {"name": "asked"})
    job.register()
    answer = job.client.post(f"{job.path}/precompute", json={"deadline_s": 0.05})
    assert answer.status_code == 202
    shown = finished(job, answer.headers["location"].rpartition("/")[2])
    assert (shown["state"], shown["mode"], shown["total"], shown["skipped"]) == ("done", "all", 5, 1)
    more = job.client.post(f"{job.path}/precompute", json={"tolerance": 4, "deadline_s": 0.5}).json()
    assert job.client.post(f"/v1/operations/{more['id']}/cancel").json()["cancel_requested"]
    assert finished(job, more["id"])["state"] == "cancelled"
    check_problem(job.client.post("/v1/operations/nothing/cancel"), 404, "not_found")
    check_problem(ServedJob(server.client, "nobody").get("operations"), 404, "not_found")
