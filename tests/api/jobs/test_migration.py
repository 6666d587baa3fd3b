"""Workers that move: epochs whose plan presumes migrations, over real HTTP."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.jobs import DOCUMENT, ServedJob, check_problem
from tests.serving import Server, serving

COSTS = DOCUMENT["stage_costs"] | {"parameter_bytes": 600, "optimizer_state_bytes": 400}
UNEVEN = DOCUMENT | {
    "name": "uneven",
    "stage_costs": COSTS,
    # The last slot is nearly idle, so that it bears a failure without loss.
    "stage_overrides": {"3": {"forward_us": 0.1, "input_grad_us": 0.1, "weight_grad_us": 0.1}},
    "recovery": {"copy_bytes_per_s": 1000, "repair_s": 36000},
}


def test_a_failure_moves_to_where_it_costs_least(server: Server) -> None:
    """A worker of the idle slot takes over the failed place; ranks find their programs, and recovery sends everybody home."""
    job = ServedJob(server.client, "uneven", UNEVEN)
    assert job.register().status_code == 201
    first = job.current()
    moved = job.report("node_failed", "n06")
    assert moved["chosen"] == "reroute_after_migration"
    assert moved["moved"] == [{"worker": "1/3", "position": "1/2"}]
    (load,) = moved["migrations"]
    # 600 + 400 bytes on the worker's one GPU, at 1,000 bytes a second, from a peer in the slot it enters.
    assert (load["from"], load["to"], load["bytes"], load["seconds"]) == ("1/3", "1/2", 1000, 1.0)
    assert load["copy_from"] in ("0/2", "2/2")
    assert moved["plan"]["failure_key"] == "0,0,0,1"
    by_rung = {rung["name"]: rung for rung in moved["ladder"]}
    # Without migration two workers share 18 microbatches of 3 us; standing still for a second is far cheaper within ten hours.
    assert by_rung["reroute"]["period_us"] == 27
    assert by_rung["reroute_after_migration"]["lost_s"] < by_rung["reroute"]["lost_s"]
    # Rank 7 is the GPU of worker 1/3, which stands at 1/2.
    program = job.get("epochs/2/programs/rank:7")
    assert program.json()["worker"] == "1/2"
    assert program.content == job.get("epochs/2/programs/1/3").content
    acknowledged = job.get("epochs/2/acknowledgements").json()
    assert (acknowledged["num_live"], "1/3" in acknowledged["missing"], "1/2" in acknowledged["missing"]) == (
        11,
        True,
        False,
    )
    home = job.report("node_recovered", "n06")
    assert (home["moved"], home["plan"]) == ([], first["plan"])
    assert {(load["from"], load["to"]) for load in home["migrations"]} == {("1/2", "1/2"), ("1/3", "1/3")}


def test_a_worker_has_one_name_everywhere(server: Server) -> None:
    """Programs and acknowledgements take the same names: live workers' own, wherever they stand, and their ranks."""
    job = ServedJob(server.client, "named", UNEVEN | {"name": "named"})
    job.register()
    assert job.report("node_failed", "n06")["moved"] == [{"worker": "1/3", "position": "1/2"}]
    live = job.get("epochs/2/acknowledgements").json()["missing"]
    assert len(live) == 11
    home_of = {f"{k}/{s}": f"{k}/{s}" for k in range(3) for s in range(4)}
    home_of |= {f"rank:{4 * k + s}": f"{k}/{s}" for k in range(3) for s in range(4)}
    for name in (*home_of, "3/0", "0/4", "rank:12", "rank:07", "rank:", "x"):
        program = job.get(f"epochs/2/programs/{name}")
        acknowledged = job.client.post(f"{job.path}/epochs/2/acknowledgements", json={"worker": name})
        home = home_of.get(name)
        if home in live:
            assert (program.status_code, acknowledged.status_code) == (200, 204)
            assert program.json()["worker"] == ("1/2" if home == "1/3" else home)
        else:
            details = {check_problem(answer, 404, "not_found")["detail"] for answer in (program, acknowledged)}
            assert len(details) == 1
            assert f"no live worker '{name}'" in details.pop()
    assert job.get("epochs/2/acknowledgements").json()["missing"] == []


def test_a_move_is_kept_when_something_else_fails(server: Server) -> None:
    """A later failure leaves who has moved where it is; when the moved worker dies its place is empty again."""
    job = ServedJob(server.client, "kept", UNEVEN | {"name": "kept"})
    job.register()
    job.report("node_failed", "n06")
    other = job.report("node_failed", "n01")
    assert {"worker": "1/3", "position": "1/2"} in other["moved"]
    assert all(load["to"] != "1/2" for load in other["migrations"])
    dead = job.report("node_failed", "n07")
    assert all(entry["worker"] != "1/3" for entry in dead["moved"])
    assert dead["failed_workers"] == ["0/1", "1/2", "1/3"]
    assert job.get(f"epochs/{dead['epoch']}/programs/0/0").status_code == 200


def test_a_revision_moves_nobody(server: Server) -> None:
    """Another document with the same layout leaves who has moved where it is, and connections as they were."""
    job = ServedJob(server.client, "revised", UNEVEN | {"name": "revised"})
    job.register()
    before = job.report("node_failed", "n06")
    assert before["moved"]
    assert job.register(tolerance=2).json()["epoch"] == before["epoch"]
    job.document = job.document | {"recovery": UNEVEN["recovery"] | {"repair_s": 35000}}
    assert job.register().json()["revision"] == 2
    after = job.current()
    assert (after["cause"], after["moved"], after["migrations"]) == ("revised", before["moved"], [])
    assert (after["num_new_pairs"], after["plan"]["failure_key"]) == (0, before["plan"]["failure_key"])


def test_a_revision_with_another_node_says_who_loads(server: Server) -> None:
    """The spare that takes a failed node's place is listed as having to load, and so is the worker that goes home."""
    job = ServedJob(server.client, "spare", UNEVEN | {"name": "spare"})
    job.register()
    assert job.report("node_failed", "n06")["moved"] == [{"worker": "1/3", "position": "1/2"}]
    job.document = job.document | {"topology": UNEVEN["topology"] | {"nodes": "n[00-05],n99,n[07-11]"}}
    assert job.register().status_code == 200
    after = job.current()
    assert (after["dropped"], after["failed_workers"], after["moved"]) == (["n06"], [], [])
    assert {(load["from"], load["to"]) for load in after["migrations"]} == {("1/2", "1/2"), ("1/3", "1/3")}
    assert all(load["copy_from"] is not None for load in after["migrations"])
    assert after["num_new_pairs"] > 0


def test_a_hit_is_an_event_for_which_nothing_was_solved(tmp_path: Path) -> None:
    """Where the plan in place is there, but the one that migrations lead to is not, the event is a miss."""
    store = tmp_path / "jobs.db"
    with serving(store, "--processes", "2") as server:
        job = ServedJob(server.client, "counted", UNEVEN)
        job.register()

        def look_up() -> tuple[object, object, float]:
            """Chosen answer and source of an event, and the hits so far."""
            body = job.report("node_failed", "n06")
            found = re.search(
                r'^replan_template_lookups_total\{result="hit"\} (.+)$', job.client.get("/metrics").text, re.M
            )
            assert found is not None
            job.report("node_recovered", "n06")
            return body["chosen"], body["source"], float(found[1])

        chosen = "reroute_after_migration"
        assert look_up() == (chosen, "solved", 0)
        assert look_up() == (chosen, "store", 2), "the recovery was a hit too"
        with closing(sqlite3.connect(store, isolation_level=None)) as connection:
            connection.execute("DELETE FROM templates WHERE failure_key = '0,0,0,1'")
        assert look_up() == (chosen, "solved", 3)


def test_nobody_moves_for_an_estimate_that_its_plan_does_not_keep(tmp_path: Path) -> None:
    """Bounds say that the last slot bears the failure better, but its plan takes longer than the one in place."""
    third = {"forward_us": 2, "input_grad_us": 2, "weight_grad_us": 2}
    memory = {"activation_bytes": 1, "weight_grad_bytes": 1}
    document = UNEVEN | {
        "name": "misjudged",
        "topology": {"nodes": "n[00-07]", "gpus_per_node": 1},
        "layout": DOCUMENT["layout"] | {"data_parallel": 2},
        "stage_costs": COSTS | memory | {"forward_us": 3, "input_grad_us": 3, "weight_grad_us": 3},
        "stage_overrides": {"1": third, "3": third},
        "capacity_bytes": 4,
    }
    # Both plans are found in a moment; a busy machine may take as long for it as it needs.
    with serving(tmp_path / "jobs.db", "--processes", "1", environment={"REPLAN_EVENT_DEADLINE_S": "60"}) as server:
        job = ServedJob(server.client, "misjudged", document)
        assert job.register().status_code == 201
        stayed = job.report("node_failed", "n01")
    assert stayed["plan"]["failure_key"] == "0,1,0,0"
    assert (stayed["chosen"], stayed["moved"], stayed["migrations"]) == ("reroute", [], [])
    by_rung = {rung["name"]: rung for rung in stayed["ladder"]}
    # Both proved optimal by `replan plan`; what the bounds of the slots, taken alone, say is 85 and less.
    assert by_rung["reroute"]["period_us"] == 81
    assert by_rung["reroute_after_migration"]["period_us"] == 83
    assert by_rung["reroute"]["lost_s"] < by_rung["reroute_after_migration"]["lost_s"]
