"""Comparing clients' books with what the service has in the end."""

from __future__ import annotations

import json
from typing import Any

from api.store import Store
from planner.formats.packed_plan import unpack_plan
from planner.hostlist import expand_hostlist
from planner.plan_check import check_plan
from tests.api.torture.clients import JOB, NUM_KEYS, Caller, Ledger


def check_epochs(caller: Caller, ledger: Ledger) -> int:
    """Check that every report led to exactly one epoch, the acknowledged one, and that nothing else did; the newest epoch."""
    stored = _all_epochs(caller)
    assert [body["epoch"] for body in stored] == list(range(1, len(stored) + 1)), "epochs have a gap"
    key_of_epoch = {json.loads(told)["epoch"]: key for key, told in ledger.told.items()}
    assert len(key_of_epoch) == len(ledger.told) == len(ledger.reported), "two reports led to one epoch"
    by_event = {body["epoch"] for body in stored if body["cause"] == "event"}
    assert by_event == key_of_epoch.keys(), "an acknowledged event is lost, or one was applied twice"
    states: dict[str, dict[str, Any]] = {}
    for body in stored:
        if (key := key_of_epoch.get(body["epoch"])) is not None:
            assert json.loads(ledger.told[key]) == body, f"epoch {body['epoch']} is not what was acknowledged"
            states[ledger.reported[key]["nodes"]] = ledger.reported[key]
        failed = {node for node, report in states.items() if report["kind"] == "node_failed"}
        slow = {node: report["speed"] for node, report in states.items() if report["kind"] == "node_degraded"}
        assert set(expand_hostlist(body["failures"]["nodes"]) if body["failures"]["nodes"] else ()) == failed
        assert body["failures"]["degraded"] == slow
    for epoch, shown in ledger.streamed.items():
        assert json.loads(shown) == stored[epoch - 1], f"the stream showed another epoch {epoch}"
    assert sorted(ledger.streamed) == list(range(1, len(ledger.streamed) + 1)), "the stream has left one out"
    return len(stored)


def check_operations(caller: Caller, ledger: Ledger) -> None:
    """Wait until every acknowledged operation is done, and check that it has made or found every plan; their ids."""
    for operation, name in ledger.operations.items():
        while (found := caller.get(f"/v1/operations/{operation}"))["state"] in ("queued", "running"):
            caller.pause()
        assert (found["state"], found["failed"], found["error"]) == ("done", 0, None), found
        assert found["done"] + found["skipped"] == found["total"] == NUM_KEYS, found
        assert caller.get(f"/v1/jobs/{name}")["revision"] == 1


def check_store(url: str, ledger: Ledger) -> None:
    """Open the store and check that its plans are whole: each of every operation is there, and one a job is a valid plan."""
    store = Store(url)
    try:
        for name in set(ledger.operations.values()):
            sha256 = store.job(name).job_sha256
            keys = store.template_keys(sha256)
            assert len(keys) == NUM_KEYS
            records = [store.template(sha256, key) for key in keys]
            check_plan(unpack_plan(next(record.content for record in reversed(records) if record is not None)))
            assert None not in records
    finally:
        store.close()


def _all_epochs(caller: Caller) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while page := caller.get(f"/v1/jobs/{JOB}/epochs?after={found[-1]['epoch'] if found else 0}"):
        found += page
    return found
