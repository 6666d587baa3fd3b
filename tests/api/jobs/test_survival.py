"""What must not be lost: kills, restarts, damaged rows, and plans that are made better meanwhile."""

from __future__ import annotations

import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.jobs import TIGHT, ServedJob, check_problem
from tests.serving import serving

HASTY = {"REPLAN_EVENT_DEADLINE_S": "0.001", "REPLAN_IMPROVEMENT_THRESHOLD": "0"}
PATIENT = HASTY | {"REPLAN_IMPROVEMENT_DEADLINE_S": "100"}
"""The tight job's first plans miss the bound, and a search meets it in a moment: it ends long before that."""
NEVER = HASTY | {"REPLAN_IMPROVEMENT_DEADLINE_S": "0.001"}


def test_a_better_plan_becomes_an_epoch(tmp_path: Path) -> None:
    """After a miss the plan is improved in the background: a new epoch for the same failures."""
    with serving(tmp_path / "s.db", "--processes", "2", environment=PATIENT) as server:
        job = ServedJob(server.client, "tight", TIGHT)
        job.register()
        hasty = job.report("node_failed", "n06")
        better = job.wait_for("improved", after=hasty["epoch"])
        assert (better["source"], better["failed_workers"]) == ("improved", hasty["failed_workers"])
        assert better["plan"]["period_us"] < hasty["plan"]["period_us"]
        assert (better["migrations"], better["from_iteration"]) == ([], None)
        assert job.get(f"epochs/{better['epoch']}/programs/0/0").status_code == 200


@pytest.mark.slow
def test_improvement_goes_on_after_a_restart(tmp_path: Path) -> None:
    """A server killed before the better plan was there leaves it to the next one, and every acknowledged epoch stays."""
    with serving(tmp_path / "s.db", "--processes", "2", environment=NEVER) as server:
        job = ServedJob(server.client, "tight", TIGHT)
        job.register()
        hasty = job.report("node_failed", "n06", key="only")
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
    with serving(tmp_path / "s.db", "--processes", "2", environment=PATIENT) as server:
        job = ServedJob(server.client, "tight", TIGHT)
        assert job.get(f"epochs/{hasty['epoch']}").json() == hasty
        better = job.wait_for("improved", after=hasty["epoch"])
        assert better["plan"]["period_us"] < hasty["plan"]["period_us"]
        assert better["failures"] == hasty["failures"]
        replayed = job.post("node_failed", "n06", key="only")
        assert (replayed.status_code, replayed.json()) == (200, hasty)


@pytest.mark.parametrize(
    "damage",
    ["CAST(substr(content, 1, 100) || x'00' AS BLOB)", pytest.param("CAST(content AS TEXT)", marks=pytest.mark.slow)],
)
def test_a_damaged_template_is_found_told_and_made_again(tmp_path: Path, damage: str) -> None:
    """A row changed on disk is noticed by its hash: the event gets a plan all the same, and the log and a metric say so."""
    store, log = tmp_path / "s.db", tmp_path / "log"
    with serving(store, "--processes", "2") as server:
        job = ServedJob(server.client, "job")
        job.register()
        good = job.report("node_failed", "n06")
        job.report("node_recovered", "n06")
    with closing(sqlite3.connect(store)) as connection:
        connection.execute(f"UPDATE templates SET content = {damage}")
        connection.commit()
    with log.open("w") as file, serving(store, "--processes", "2", log=file) as server:
        job = ServedJob(server.client, "job")
        # The template of the current, fault-free epoch is damaged too: another epoch takes its place.
        mended = job.wait_for("improved", after=3)
        assert mended["plan"]["period_us"] == 19
        check_problem(job.get("epochs/2/programs/0/0"), 404, "not_found")
        again = job.report("node_failed", "n06")
        assert (again["source"], again["plan"]["period_us"]) == ("solved", good["plan"]["period_us"])
        assert job.get(f"epochs/{again['epoch']}/programs/0/0").status_code == 200
        assert 'replan_degradations_total{kind="template_corrupt"}' in server.client.get("/metrics").text
    assert "failure key 0,0,1,0" in log.read_text()


@pytest.mark.slow
def test_events_go_on_while_solver_processes_die(tmp_path: Path) -> None:
    """When no plan can be made the failure is kept all the same, and an epoch with a plan follows."""
    with serving(tmp_path / "s.db", "--processes", "1") as server:
        job = ServedJob(server.client, "job")
        job.register()
        for child in server.children():
            os.kill(child, signal.SIGKILL)
        body = job.report("node_failed", "n06")
        assert body["failed_workers"] == ["1/2"]
        if body["plan"] is None:
            body = job.wait_for("improved", after=body["epoch"])
        assert body["plan"]["period_us"] == 27


@pytest.mark.slow
def test_no_acknowledged_event_is_lost_or_applied_twice(tmp_path: Path) -> None:
    """Killed at arbitrary moments during events, the service has every acknowledged epoch, and each event once."""
    acknowledged: dict[int, dict[str, object]] = {}
    expected = 1
    for round_number in range(5):
        with serving(tmp_path / "s.db", "--processes", "1") as server:
            job = ServedJob(server.client, "job")
            job.register()
            for number in range(40):
                kind = "node_failed" if number % 2 == 0 else "node_recovered"
                key = f"{round_number}-{number}"
                try:
                    answer = job.post(kind, "n06", key=key)
                    if number == 7 + 5 * round_number:
                        server.process.send_signal(signal.SIGKILL)
                except Exception:
                    break
                assert answer.status_code in (200, 201), answer.text
                acknowledged[answer.json()["epoch"]] = answer.json()
            server.process.wait()
        with serving(tmp_path / "s.db", "--processes", "1") as server:
            job = ServedJob(server.client, "job")
            stored = {body["epoch"]: body for body in job.get("epochs", params={"after": expected}).json()}
            for epoch, body in acknowledged.items():
                assert job.get(f"epochs/{epoch}").json() == body
            last = max(stored, default=expected)
            assert sorted(stored) == list(range(expected + 1, last + 1))
            expected = last
            if job.current()["failed_workers"]:
                expected = job.report("node_recovered", "n06")["epoch"]
