"""A damaged current epoch costs nothing that was reported: another one takes its place, with the same failures."""

from __future__ import annotations

import itertools
import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.jobs import DOCUMENT, ServedJob, check_problem
from tests.serving import Server, serving


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path, Path]]:
    """A server with its store and its log."""
    folder = tmp_path_factory.mktemp("store")
    with (folder / "log").open("w") as log, serving(folder / "s.db", "--processes", "2", log=log) as running:
        yield running, folder / "s.db", folder / "log"


class Place:
    """A job on the server that is damaged behind its back."""

    numbers = itertools.count()

    def __init__(self, place: tuple[Server, Path, Path]) -> None:
        self.server, self.store, self.log = place
        self.job = ServedJob(self.server.client, f"job{next(self.numbers)}")
        assert self.job.register().status_code == 201

    def damage(self, statement: str, *values: object) -> None:
        """Change rows of the job."""
        with closing(sqlite3.connect(self.store, timeout=20)) as connection:
            assert connection.execute(f"{statement} AND job_id = ?", (*values, self.job.id)).rowcount > 0
            connection.commit()

    def damage_epochs(self, *epochs: int) -> None:
        """Change the bodies of epochs."""
        for epoch in epochs:
            self.damage("UPDATE epochs SET body = CAST(body || x'20' AS BLOB) WHERE epoch = ?", epoch)


@pytest.fixture
def damaged(place: tuple[Server, Path, Path]) -> Place:
    """A job of three epochs: registered, one node down, a second one slow."""
    made = Place(place)
    made.job.report("node_failed", "n06", iteration=7)
    made.job.report("node_degraded", "n01", speed=0.5)
    return made


def ask(how: str, job: ServedJob) -> None:
    """Do what is the first to come upon a damaged epoch."""
    if how == "get":
        job.current()
    elif how == "event":
        assert job.report("node_failed", "n00")["failures"]["nodes"] == "n[00,06]"
    elif how == "put":
        assert job.register(tolerance=2).status_code == 200
    else:
        document = DOCUMENT | {"name": "another revision"}
        assert ServedJob(job.client, job.id, document).register().status_code == 200
        assert job.current()["revision"] == 2


@pytest.mark.parametrize("how", ["get", "event", "put", "revision"])
def test_a_damaged_current_epoch_is_made_again(damaged: Place, how: str) -> None:
    """Reading, reporting, and registering again, the same or another document: all failures are there, and the log says so."""
    good = damaged.job.current()
    damaged.damage_epochs(3)
    ask(how, damaged.job)
    found = damaged.job.get("epochs/4").json()
    assert found["cause"] == "recovered"
    failures = {"nodes": "n06", "ranks": [], "workers": [], "degraded": {"n01": 0.5}}
    assert found["failures"] == good["failures"] == failures
    assert damaged.job.current()["failures"]["degraded"] == {"n01": 0.5}
    assert found["failed_workers"] == good["failed_workers"]
    assert found["plan"]["template"]
    assert damaged.job.get("epochs/4/programs/0/0").status_code == 200
    assert 'replan_degradations_total{kind="epoch_corrupt"}' in damaged.server.client.get("/metrics").text
    assert f"epoch 3 of job {damaged.job.id} is damaged" in damaged.log.read_text()


def test_all_epochs_are_damaged(damaged: Place) -> None:
    """Without any sound epoch the reports alone say what is down."""
    good = damaged.job.current()
    damaged.damage_epochs(1, 2, 3)
    found = damaged.job.current()
    assert (found["epoch"], found["failures"], found["migrations"]) == (4, good["failures"], [])


def test_reports_that_have_been_deleted_are_told(damaged: Place) -> None:
    """Where no epoch is sound and the first ones are gone, what was reported with them cannot be known."""
    damaged.damage("DELETE FROM epochs WHERE epoch < 3")
    damaged.damage_epochs(3)
    assert damaged.job.current()["failures"]["degraded"] == {"n01": 0.5}
    assert f"job {damaged.job.id}: no epoch is sound" in damaged.log.read_text()


def test_a_report_that_is_damaged_too_is_told(damaged: Place) -> None:
    """What cannot be known is not made up: the log names the epoch whose report is lost, the others count."""
    damaged.damage_epochs(2, 3)
    damaged.damage("UPDATE events SET event = ? WHERE epoch = 2", b'{"kind":"node_failed","nodes":"n07"}')
    found = damaged.job.current()
    assert (found["failures"]["nodes"], found["failures"]["degraded"]) == ("", {"n01": 0.5})
    assert 'kind="report_lost"' in damaged.server.client.get("/metrics").text
    lines = [json.loads(line) for line in damaged.log.read_text().splitlines()]
    assert any(
        line["level"] == "critical" and damaged.job.id in line["event"] and "epochs 2 is lost" in line["event"]
        for line in lines
    )
    assert damaged.job.report("node_failed", "n06")["failures"]["nodes"] == "n06"


def test_the_report_of_a_damaged_epoch_counts_once(damaged: Place) -> None:
    """The same report again, under the same key, is not applied a second time: it gets the epoch that holds it."""
    job = damaged.job
    last = job.post("node_failed", "n00", key="k").json()["epoch"]
    damaged.damage_epochs(last)
    again = job.post("node_failed", "n00", key="k")
    assert (again.status_code, again.json()["epoch"], again.json()["cause"]) == (200, last + 1, "recovered")
    assert again.json()["failures"]["nodes"] == "n[00,06]"
    check_problem(job.post("node_failed", "n01", key="k"), 422, "idempotency_key_reused")


def test_damaged_old_epochs_are_marked_in_lists_and_streams(damaged: Place) -> None:
    """The list has a marker in their place, a stream sends one and goes on, and each alone is a problem."""
    job = damaged.job
    damaged.damage_epochs(1, 2)
    listed = job.get("epochs").json()
    assert listed[:2] == [{"job": job.id, "epoch": number, "damaged": True} for number in (1, 2)]
    assert listed[2] == job.current()
    check_problem(job.get("epochs/2"), 500, "store_corrupt")
    frames: list[str] = []
    with job.client.stream("GET", f"{job.path}/stream", params={"after": 1}) as stream:
        for line in stream.iter_lines():
            if line.startswith(("id:", "event:")):
                frames.append(line)
            if len(frames) == 4:
                break
    assert frames == ["id: 2", "event: damaged", "id: 3", "event: epoch"]


def test_a_crowd_makes_one_epoch_of_it(damaged: Place) -> None:
    """Many who ask at once for a damaged epoch get one and the same that takes its place."""
    damaged.damage_epochs(3)
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(damaged.job.current()["epoch"])) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(found) == {4}


def test_who_came_back_in_a_damaged_epoch_loads_again(damaged: Place) -> None:
    """A node that failed and recovered since the newest sound epoch may hold nothing, though it is up in both."""
    damaged.job.report("node_failed", "n07")
    damaged.job.report("node_recovered", "n07")
    damaged.damage_epochs(4, 5)
    found = damaged.job.current()
    assert (found["epoch"], found["cause"], found["failed_workers"]) == (6, "recovered", ["1/2"])
    (load,) = found["migrations"]
    assert (load["from"], load["to"], load["copy_from"]) == ("1/3", "1/3", "0/3")


def test_nobody_is_trusted_where_workers_may_have_moved(place: tuple[Server, Path, Path]) -> None:
    """Where a damaged epoch may have moved workers, all that are live are told to load, since nobody knows who holds what."""
    made = Place(place)
    made.job.document = DOCUMENT | {
        "stage_costs": DOCUMENT["stage_costs"] | {"parameter_bytes": 1000, "optimizer_state_bytes": 1000},
        "recovery": {"copy_bytes_per_s": 10**9},
    }
    assert made.job.register().status_code == 200
    made.job.report("node_failed", "n06")
    made.damage_epochs(3)
    found = made.job.current()
    assert (found["cause"], found["failed_workers"]) == ("recovered", ["1/2"])
    assert len(found["migrations"]) == 11
    assert {load["copy_from"] for load in found["migrations"]} == {None}


def test_a_wrong_number_of_the_current_epoch_keeps_nobody_busy(damaged: Place) -> None:
    """A number far ahead, as of a flipped bit, is corrected: who waits for the next epoch waits, and is told when it is there."""
    job = damaged.job
    seen = []
    with job.client.stream("GET", f"{job.path}/stream") as stream:
        for line in stream.iter_lines():
            if not line.startswith("id: "):
                continue
            seen.append(line)
            if line == "id: 3":
                damaged.damage("UPDATE jobs SET current_epoch = current_epoch + 4096 WHERE 1")
            elif line == "id: 4":
                reporter = threading.Thread(target=job.report, args=("node_failed", "n00"))
                reporter.start()
            else:
                break
    reporter.join()
    assert seen == ["id: 3", "id: 4", "id: 5"]
    assert job.get("epochs/current", params={"after": 5, "wait": 1}).status_code == 204
    waited = 'replan_wait_seconds_sum{route="/v1/jobs/{job_id}/epochs/current"} '
    metrics = damaged.server.client.get("/metrics").text
    assert float(metrics.split(waited)[1].split()[0]) >= 0.9


def test_a_damaged_document_is_mended_by_registering_it_again(damaged: Place) -> None:
    """Until then reports are refused as what they are; the same document puts it right, with what is down."""
    job = damaged.job
    damaged.damage("UPDATE job_revisions SET document = CAST(document || x'20' AS BLOB) WHERE 1")
    check_problem(job.post("node_failed", "n00"), 500, "store_corrupt")
    assert ServedJob(job.client, job.id, DOCUMENT | {"name": "other"}).register().status_code == 500
    assert job.current()["epoch"] == 3
    mended = job.register()
    assert (mended.status_code, mended.json()["revision"]) == (200, 1)
    assert job.report("node_failed", "n00")["failures"]["nodes"] == "n[00,06]"
    assert 'kind="job_corrupt"' in damaged.server.client.get("/metrics").text


def test_lists_show_what_is_damaged_and_go_on(damaged: Place) -> None:
    """One damaged row of a job or an operation leaves the lists of all readable, and alone it is a problem."""
    job, client = damaged.job, damaged.server.client
    first, second = (client.post(f"{job.path}/precompute", json={"deadline_s": 0.01}).json()["id"] for _ in range(2))
    damaged.damage("UPDATE operations SET state = 'x', done = 'x' WHERE operation_id = ?", first)
    listed = job.get("operations").json()["operations"]
    assert [entry["id"] for entry in listed] == [second, first]
    assert listed[1] == {"id": first, "damaged": True}
    check_problem(client.get(f"/v1/operations/{first}"), 500, "store_corrupt")
    damaged.damage("UPDATE job_revisions SET mode = 'x' WHERE 1")
    jobs = {entry["id"]: entry for entry in client.get("/v1/jobs", params={"limit": 1000}).json()["jobs"]}
    assert jobs[job.id] == {"id": job.id, "damaged": True}
    check_problem(client.get(job.path), 500, "store_corrupt")
