"""What the page draws from, as a real service answers it."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from planner.formats.chrome_trace import trace_parts
from planner.formats.plan_file import load_plan
from planner.formats.timeline_file import dump_timeline, read_timeline
from planner.operation import Worker
from tests.jobs import ServedJob, check_problem
from tests.serving import Server, serving

NODES = [f"n{node:02}" for node in range(12)]
"""Node ``nNN`` holds worker ``NN // 4`` / ``NN % 4``."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all tests; each registers jobs of its own."""
    environment = {"REPLAN_EVENT_DEADLINE_S": "0.05", "REPLAN_IMPROVEMENT_DEADLINE_S": "0.05"}
    with serving(tmp_path_factory.mktemp("store") / "views.db", environment=environment) as running:
        yield running


@pytest.fixture
def job(server: Server, request: pytest.FixtureRequest) -> ServedJob:
    """ReCycle's worked example, registered under the test's name."""
    served = ServedJob(server.client, re.sub(r"[^A-Za-z0-9_]+", "-", request.node.name)[:100])
    assert served.register().status_code == 201
    return served


def tried(job: ServedJob, *events: dict[str, Any]) -> dict[str, Any]:
    """What these events would lead to."""
    answer = job.client.post(f"{job.path}/what-if", json={"events": list(events)})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def fail(nodes: str) -> dict[str, Any]:
    """A failure of nodes."""
    return {"kind": "node_failed", "nodes": nodes}


@pytest.mark.parametrize(
    "events",
    [
        [fail("n02")],
        [fail("n01"), {"kind": "node_degraded", "nodes": "n10", "speed": 0.5}],
        [fail("n05"), {"kind": "node_recovered", "nodes": "n06"}],
        [fail("n[02,10]")],
        [{"kind": "node_recovered", "nodes": "n06"}],
    ],
    ids=str,
)
def test_what_if_says_what_then_happens(job: ServedJob, events: list[dict[str, Any]]) -> None:
    """Whatever is tried, then reported, leads to the epoch that was told; a trial itself changes nothing."""
    job.report("node_failed", "n06")
    answer = tried(job, *events)
    assert (answer["base_epoch"], answer["base_period_us"]) == (2, 27.0)
    assert job.current()["epoch"] == 2
    for event in events:
        real = job.report(**event)
    would = answer["would_be"]
    same = {"failures", "failed_workers", "problem", "chosen", "migrations", "moved", "dropped", "shards_restored"}
    assert {name: would[name] for name in same} == {name: real[name] for name in same}
    assert would["epoch"] == 3
    if would["plan"] is None:
        assert real["plan"] is None
    else:
        assert would["plan"]["failure_key"] == real["plan"]["failure_key"]
        # The trial kept its plan, so the event found it.
        assert real["source"] == "store"
        assert real["plan"]["period_us"] <= would["plan"]["period_us"]
    if len(events) == 1:
        assert would["num_new_pairs"] == real["num_new_pairs"]


def test_reroutes_of_a_what_if_carry_what_the_dead_had(job: ServedJob) -> None:
    """Six microbatches of each dead worker's pipeline run elsewhere in its slot, on live workers."""
    answer = tried(job, fail("n[01,06]"))
    carried: dict[tuple[int, int], int] = {}
    for entry in answer["reroutes"]:
        pipeline, slot = map(int, entry["runs_on"].split("/"))
        assert slot == entry["slot"]
        assert pipeline != entry["home"]
        assert entry["runs_on"] not in ("0/1", "1/2")
        carried[entry["home"], slot] = carried.get((entry["home"], slot), 0) + entry["microbatches"]
    assert carried[0, 1] == 6
    assert carried[1, 2] == 6


def test_what_cannot_be_tried_is_refused_as_an_event_is(job: ServedJob) -> None:
    """Unknown nodes, contradictions, and an epoch that has passed; nothing, and too much."""
    path = f"{job.path}/what-if"
    check_problem(job.client.post(path, json={"events": [fail("n99")]}), 422, "unknown_node")
    check_problem(job.client.post(path, json={"events": [fail("n01"), fail("n01")]}), 409, "already_failed")
    recovery = {"kind": "node_recovered", "nodes": "n01"}
    check_problem(job.client.post(path, json={"events": [recovery]}), 409, "not_failed")
    stale = check_problem(
        job.client.post(path, json={"events": [fail("n01")], "expected_epoch": 9}), 409, "epoch_conflict"
    )
    assert stale["current_epoch"] == 1
    for events in ([], [fail("n01")] * 65):
        check_problem(job.client.post(path, json={"events": events}), 422, "request_invalid")
    check_problem(job.client.post("/v1/jobs/nobody/what-if", json={"events": [fail("n01")]}), 404, "not_found")


def test_heat_tells_of_each_node_what_its_loss_leads_to(job: ServedJob) -> None:
    """For every node the failure key, and the period once it is ready, are those of the epoch that would follow."""
    job.report("node_degraded", "n03", speed=0.5)
    job.report("node_failed", "n06")
    told = {}
    for node in NODES:
        if node != "n06":
            told[node] = tried(job, fail(node))["would_be"]
    heat = job.get("heat").json()
    assert heat["epoch"] == 3
    for node, group in zip(NODES, heat["node_groups"], strict=True):
        if node == "n06":
            assert group is None
            continue
        found = heat["groups"][group]
        assert found["failure_key"] == told[node]["plan"]["failure_key"]
        assert found["outcome"] == "ready"
        # Meanwhile a better plan may have been found.
        assert found["period_us"] <= told[node]["plan"]["period_us"]
    periods = [group["period_us"] for group in heat["groups"]]
    assert periods == sorted(periods, reverse=True)
    assert sum(group["num_nodes"] for group in heat["groups"]) == 11


def test_heat_counts_what_is_left(server: Server) -> None:
    """Three pipelines: two more workers can fail anywhere, and each that does leaves one less; ready is what was precomputed."""
    document = ServedJob(server.client, "").document
    stage_costs = document["stage_costs"] | {"forward_us": 1.5}
    job = ServedJob(server.client, "left", document | {"stage_costs": stage_costs})
    job.register()
    assert (job.get("heat").json()["certain"], job.get("heat").json()["ready"]) == (2, 0)
    made = job.client.post(f"{job.path}/precompute", json={"tolerance": 1, "mode": "all", "deadline_s": 0.01}).json()
    while job.client.get(f"/v1/operations/{made['id']}").json()["state"] != "done":
        pass
    assert (job.get("heat").json()["certain"], job.get("heat").json()["ready"]) == (2, 1)
    job.report("node_failed", "n[02,06]")
    heat = job.get("heat").json()
    assert (heat["certain"], heat["ready"]) == (0, 0)
    # Only 2/2, on n10, is left of slot 2.
    lost = heat["groups"][heat["node_groups"][10]]
    assert (lost["outcome"], lost["num_nodes"], lost["slots"]) == ("stage_lost", 1, [2])


def test_drawings_are_those_of_the_plan_file(job: ServedJob) -> None:
    """Timeline and trace are what `replan show` makes of the plan file; the fault-free one has no failure."""
    job.report("node_failed", "n06")
    plan = load_plan(job.get("epochs/2/plan").content)
    workers = [Worker(k, s) for k in range(3) for s in range(4)]
    answer = job.get("epochs/2/timeline")
    assert answer.headers["content-type"] == "application/vnd.replan.timeline"
    assert answer.content == dump_timeline(plan)
    assert job.get("epochs/2/trace").content == b"".join(trace_parts(plan, workers))
    head, _ = read_timeline(job.get("epochs/2/timeline", params={"fault_free": "true"}).content)
    assert (head["dead"], head["period_ns"]) == ([], 19_000)
    tag = {"If-None-Match": answer.headers["etag"]}
    assert job.get("epochs/2/timeline", headers=tag).status_code == 304
    job.report("node_failed", "n[02,10]")
    check_problem(job.get("epochs/3/timeline"), 409, "no_plan")


def test_the_cluster_says_who_runs_where(job: ServedJob) -> None:
    """One node a worker in the worked example, in the order of the workers; it need not be sent twice."""
    answer = job.get("cluster")
    cluster = answer.json()
    assert (cluster["num_pipelines"], cluster["num_slots"], cluster["nodes"]) == (3, 4, NODES)
    assert cluster["worker_nodes"] == [[node] for node in range(12)]
    assert job.get("cluster", headers={"If-None-Match": answer.headers["etag"]}).status_code == 304


def test_an_epoch_keeps_the_cluster_of_its_revision(job: ServedJob) -> None:
    """After a revision the old epoch still tells of the old nodes; racks and names alone make another answer too."""
    old = job.get("cluster")
    topology = job.document["topology"] | {"nodes": "m[00-11]"}
    ServedJob(job.client, job.id, job.document | {"topology": topology}).register()
    new = job.get("cluster", headers={"If-None-Match": old.headers["etag"]})
    assert (new.status_code, new.json()["nodes"][0], new.json()["revision"]) == (200, "m00", 2)
    assert job.get("cluster", params={"epoch": 1}).json() == old.json()
    assert job.get("cluster", params={"epoch": 2}).json() == new.json()
    check_problem(job.get("cluster", params={"epoch": 3}), 404, "not_found")
    check_problem(job.get("cluster", params={"epoch": 0}), 422, "request_invalid")


def test_a_cluster_registered_anew_is_not_mistaken_for_the_old_one(job: ServedJob) -> None:
    """Deleted and registered under the same id with other names, the same revision number is another cluster."""
    old = job.get("cluster")
    job.client.delete(job.path)
    topology = job.document["topology"] | {"nodes": "k[00-11]"}
    ServedJob(job.client, job.id, job.document | {"topology": topology}).register()
    new = job.get("cluster", headers={"If-None-Match": old.headers["etag"]})
    assert (new.status_code, new.json()["nodes"][0]) == (200, "k00")


def events_of(server: Server) -> Iterator[tuple[str, dict[str, Any]]]:
    """Events of the overview's stream."""
    with server.client.stream("GET", "/v1/overview/stream") as answer:
        name = ""
        for line in answer.iter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield name, json.loads(line.removeprefix("data: "))


def test_the_overview_follows_jobs(server: Server, job: ServedJob) -> None:
    """First all jobs; then a report, acknowledgements and a deletion as they come, and a beat in between."""
    events = events_of(server)
    name, first = next(events)
    assert name == "overview"
    assert job.id in [row["id"] for row in first["jobs"]]

    def following(wanted: str) -> dict[str, Any]:
        return next(data for name, data in events if name == wanted and data.get("id", job.id) == job.id)

    assert "now" in following("beat")
    epoch = job.report("node_failed", "n06")
    row = following("job")
    assert (row["epoch"], row["failed_nodes"], row["num_failed"], row["num_live"]) == (2, "n06", 1, 11)
    assert row["throughput_kept"] == pytest.approx(19 / 27)
    # Slot 2 has two workers left: any one can fail.
    assert row["certain"] == job.get("heat").json()["certain"] == 1
    assert row["weak"] == [{"slot": 2, "num_live": 2, "live": ["n02", "n10"], "down": ["n06"]}]
    assert row["down"] == ["n06"]
    assert row["last_event_at"] == row["created_at"] == epoch["created_at"]
    assert (row["num_acknowledged"], len(row["missing"])) == (0, 11)
    job.client.post(f"{job.path}/epochs/2/acknowledgements", json={"worker": "0/0"})
    row = following("job")
    assert (row["num_acknowledged"], "0/0" in row["missing"]) == (1, False)
    job.client.delete(job.path)
    assert following("gone") == {"id": job.id}
    events.close()


def test_the_overview_names_what_lost_slots_wait_for(server: Server, job: ServedJob) -> None:
    """Nodes, a GPU and a worker, as they were reported; reported back by these names the slot lives again."""
    job.report("node_failed", "n02")
    job.report("node_failed", ranks=[6])
    job.report("node_failed", workers=["2/2"])
    job.report("node_failed", "n00")
    (row,) = (row for row in server.client.get("/v1/overview").json()["jobs"] if row["id"] == job.id)
    assert row["weak"] == [{"slot": 2, "num_live": 0, "live": [], "down": ["n02", "rank:6", "worker:2/2"]}]
    assert row["down"] == ["n00", "n02", "rank:6", "worker:2/2"]


@pytest.mark.slow
def test_a_damaged_job_does_not_hide_the_others(tmp_path: Path) -> None:
    """It is named, and all others are shown."""
    store = tmp_path / "damaged.db"
    with serving(store) as server:
        for name in ("good", "bad"):
            ServedJob(server.client, name).register()
        with closing(sqlite3.connect(store)) as connection:
            connection.execute("UPDATE job_revisions SET checksum = 'x', document = '{}' WHERE job_id = 'bad'")
            connection.execute("UPDATE epochs SET checksum = 'x' WHERE job_id = 'bad'")
            connection.commit()
    with serving(store) as server:
        overview = server.client.get("/v1/overview").json()
        assert [row["id"] for row in overview["jobs"]] == ["good"]
        assert overview["damaged"] == ["bad"]
