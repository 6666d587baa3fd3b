"""Events over real HTTP with the real planner: one epoch each, durable, in order, whatever is reported."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from api.jobs.epoch_body import EpochBody
from planner.deadlock import require_deadlock_free
from planner.formats.plan_file import load_plan
from planner.operation import Worker
from planner.plan_check import check_plan
from planner.program import program_from_dict
from planner.programs import join_programs
from tests.jobs import DOCUMENT, ServedJob, check_problem
from tests.serving import Server


def test_registration_makes_the_fault_free_epoch(job: ServedJob) -> None:
    """The first epoch has the plan with everybody live: 6 microbatches of 3 us and the idling of the last slot, 19 us."""
    body = EpochBody.model_validate(job.current())
    assert (body.epoch, body.cause, body.failed_workers) == (1, "registered", [])
    assert body.plan is not None
    assert (body.plan.period_us, body.plan.status) == (19, "optimal")
    # Forwards go from each slot to the next and gradients back, in each of 3 pipelines: 2 * 3 * 3 pairs.
    assert body.num_new_pairs == 18


def test_a_failed_and_recovered_node_leads_back_to_the_same_plan(job: ServedJob) -> None:
    """After a failure and its recovery the plan is the fault-free one of before, from the same template and with its programs."""
    first = job.current()
    failed = job.report("node_failed", "n06", iteration=7)
    assert (failed["epoch"], failed["failed_workers"], failed["plan"]["period_us"]) == (2, ["1/2"], 27)
    assert failed["failures"]["nodes"] == "n06"
    assert failed["from_iteration"] == 7, "a failed iteration is run again"
    recovered = job.report("node_recovered", "n06", iteration=9)
    assert (recovered["epoch"], recovered["failed_workers"], recovered["source"]) == (3, [], "store")
    assert recovered["plan"] == first["plan"]
    assert recovered["from_iteration"] == 10, "the running iteration is finished without it"
    # The recovered worker has lost its parameters: it loads them from a peer of its slot that was live all along.
    (load,) = recovered["migrations"]
    assert (load["from"], load["to"], load["copy_from"]) == ("1/2", "1/2", "0/2")
    programs = [job.get(f"epochs/{epoch}/programs/1/2").content for epoch in (1, 3)]
    assert programs[0] == programs[1]


def test_an_epochs_programs_are_those_of_its_plan_and_cannot_deadlock(job: ServedJob) -> None:
    """All programs of an epoch together are free of deadlock, and its plan file passes every check."""
    job.report("node_failed", "n06")
    plan = load_plan(job.get("epochs/2/plan").content)
    check_plan(plan)
    fetched = []
    for k in range(3):
        for s in range(4):
            program = job.get(f"epochs/2/programs/{Worker(k, s)}")
            if (k, s) == (1, 2):
                check_problem(program, 404, "not_found")
                continue
            document = program.json()
            assert document.pop("plan_id") == plan.plan_id
            # Rank 4k + s is the only GPU of worker k/s.
            assert job.get(f"epochs/2/programs/rank:{4 * k + s}").content == program.content
            fetched.append(program_from_dict(document))
    require_deadlock_free(join_programs(fetched, num_slots=4, num_stages=4, microbatches=(6, 6, 6)))


def test_two_posts_at_once_make_two_epochs_in_order(job: ServedJob) -> None:
    """Events that come together are applied one after the other: none is lost and both failures are in the last epoch."""
    nodes = ["n00", "n01", "n02", "n03"]
    with ThreadPoolExecutor(4) as threads:
        bodies = list(threads.map(lambda node: job.report("node_failed", node), nodes))
    assert sorted(body["epoch"] for body in bodies) == [2, 3, 4, 5]
    assert job.current()["failures"]["nodes"] == "n[00-03]"
    seen = [len(body["failed_workers"]) for body in job.get("epochs").json()]
    assert seen == [0, 1, 2, 3, 4]


def test_a_repeated_report_is_answered_with_its_epoch(job: ServedJob) -> None:
    """The same idempotency key and body give the same bytes again, also when other events came between; another body is 422."""
    first = job.post("node_failed", "n06", key="a")
    job.report("node_failed", "n07")
    again = job.post("node_failed", "n06", key="a")
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.content == first.content
    assert job.current()["epoch"] == 3
    assert "epoch 2" in check_problem(job.post("node_failed", "n08", key="a"), 422, "idempotency_key_reused")["detail"]
    check_problem(job.post("node_failed", "n08", key="with spaces"), 422, "request_invalid")


def test_posts_with_one_key_at_once_make_one_epoch(job: ServedJob) -> None:
    """Retries that overtake each other are one event."""
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda _: job.post("node_failed", "n05", key="once"), range(4)))
    assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 201]
    assert len({answer.content for answer in answers}) == 1
    assert job.current()["epoch"] == 2


def test_a_stale_expected_epoch_is_refused_with_the_current_one(job: ServedJob) -> None:
    """Compare-and-set: only the present epoch passes, and the refusal names it."""
    job.report("node_failed", "n06", expected_epoch=1)
    refused = check_problem(job.post("node_failed", "n07", expected_epoch=1), 409, "epoch_conflict")
    assert refused["current_epoch"] == 2
    assert job.current()["epoch"] == 2


@pytest.mark.parametrize(
    ("kind", "fields", "status", "code", "part"),
    [
        ("node_failed", {"nodes": "n12"}, 422, "unknown_node", "n12"),
        ("node_failed", {"nodes": "n[00"}, 422, "hostlist_malformed", "n[00"),
        ("node_failed", {"ranks": [12]}, 422, "failure_invalid", "12"),
        ("node_failed", {"workers": ["3/0"]}, 422, "failure_invalid", "3/0"),
        ("node_failed", {"workers": ["x"]}, 422, "failure_invalid", "x"),
        ("node_failed", {}, 422, "failure_invalid", "no node"),
        ("node_failed", {"nodes": "n01", "speed": 0.5}, 422, "failure_invalid", "speed"),
        ("node_degraded", {"nodes": "n01"}, 422, "failure_invalid", "speed"),
        ("node_degraded", {"nodes": "n01", "speed": 1.0}, 422, "request_invalid", "/speed"),
        ("node_recovered", {"nodes": "n01"}, 409, "not_failed", "n01"),
        ("shards_restored", {"nodes": "n01"}, 422, "failure_invalid", "none"),
        ("node_melted", {"nodes": "n01"}, 422, "request_invalid", "/kind"),
        ("node_failed", {"nodes": "n01", "iteration": -1}, 422, "request_invalid", "/iteration"),
        ("node_failed", {"nodes": "n01", "expected_epoch": 0}, 422, "request_invalid", "/expected_epoch"),
    ],
)
def test_events_that_do_not_fit_are_refused(
    job: ServedJob, kind: str, fields: dict[str, Any], status: int, code: str, part: str
) -> None:
    """Each is a problem with its own code that names what is wrong, and makes no epoch."""
    assert part in check_problem(job.post(kind, **fields), status, code)["detail"]
    assert job.current()["epoch"] == 1


def test_a_failure_that_is_known_already_is_refused(job: ServedJob) -> None:
    """Reporting the same failure without a key is 409; together with something new it is accepted."""
    job.report("node_failed", "n06")
    check_problem(job.post("node_failed", "n06"), 409, "already_failed")
    assert job.report("node_failed", "n[06,07]")["failed_workers"] == ["1/2", "1/3"]


def test_a_lost_stage_is_an_epoch_without_a_plan(job: ServedJob) -> None:
    """When nobody holds a stage any more the failures are kept, the answer says what is left to do, and recovery goes on."""
    lost = job.report("node_failed", "n[02,06,10]")
    assert (lost["plan"], lost["problem"]["code"], lost["source"]) == (None, "stage_lost", None)
    assert lost["chosen"] == "restart_from_checkpoint"
    assert "slots [2]" in check_problem(job.get("epochs/2/programs/0/0"), 409, "no_plan")["detail"]
    back = job.report("node_recovered", "n02")
    assert back["failed_workers"] == ["1/2", "2/2"]
    # 18 microbatches of 3 us on the one worker that is left.
    assert back["plan"]["period_us"] == 54
    (load,) = back["migrations"]
    assert (load["to"], load["copy_from"]) == ("0/2", None), "only a checkpoint has its parameters"


def test_lost_shards_are_told_until_they_are_restored(server: Server) -> None:
    """With sharded optimizer state a failure has no plan until the shards are restored, and neither has the next."""
    job = ServedJob(server.client, "sharded", DOCUMENT | {"optimizer_state": "sharded"})
    assert job.register().status_code == 201
    assert job.report("node_failed", "n06")["problem"]["code"] == "optimizer_shard_lost"
    assert job.report("shards_restored")["plan"]["period_us"] == 27
    assert job.report("node_degraded", "n07", speed=0.9)["plan"] is not None
    assert job.report("node_failed", "n05")["problem"]["code"] == "optimizer_shard_lost"


def test_unknown_jobs_and_epochs_are_not_found(job: ServedJob) -> None:
    """What is not there is 404, what cannot be a name or number is 422."""
    other = ServedJob(job.client, "nobody")
    check_problem(other.post("node_failed", "n06"), 404, "not_found")
    for path in ("epochs/current", "epochs/1", "epochs", "stream", "epochs/1/programs/0/0", "epochs/1/plan"):
        check_problem(other.get(path), 404, "not_found")
    for path in ("epochs/7", "epochs/7/programs/0/0", "epochs/7/acknowledgements"):
        check_problem(job.get(path), 404, "not_found")
    for path in ("epochs/x", "epochs/0", "epochs/current?after=x", "epochs/current?wait=99", "epochs/99999999999"):
        check_problem(job.get(path), 422, "request_invalid")
    check_problem(job.client.get("/v1/jobs/-x/epochs/current"), 422, "request_invalid")
