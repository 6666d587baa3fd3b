"""Workers that move: epochs whose plan presumes migrations, over real HTTP."""

from __future__ import annotations

from tests.jobs import DOCUMENT, ServedJob
from tests.serving import Server

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
    # Rank 7 is the GPU of worker 1/3, which stands at 1/2; nobody stands at 1/3, and rank 6 is down.
    program = job.get("epochs/2/programs/rank:7")
    assert program.json()["worker"] == "1/2"
    assert program.content == job.get("epochs/2/programs/1/2").content
    assert [job.get(f"epochs/2/programs/{name}").status_code for name in ("1/3", "rank:6")] == [404, 404]
    acknowledged = job.get("epochs/2/acknowledgements").json()
    assert (acknowledged["num_live"], "1/3" in acknowledged["missing"], "1/2" in acknowledged["missing"]) == (
        11,
        True,
        False,
    )
    home = job.report("node_recovered", "n06")
    assert (home["moved"], home["plan"]) == ([], first["plan"])
    assert {(load["from"], load["to"]) for load in home["migrations"]} == {("1/2", "1/2"), ("1/3", "1/3")}


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
