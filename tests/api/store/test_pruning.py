"""What is deleted after its time, and what stays."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from api.store import Retention, Store
from planner.errors import NotFoundError
from tests.api.store.backends import JOB_SHA256, KEY, Backend, append, put_template, register

KEEP = Retention(days=90, epochs=3, acknowledged_epochs=2)
OLD = int((datetime.now(UTC) - timedelta(days=91)).timestamp() * 1e6)
"""A stored time before the 90 days."""


def pruned(store: Store, retention: Retention = KEEP) -> Counter[str]:
    """How many rows of each table go."""
    found: Counter[str] = Counter()
    for table, count in store.prune(retention):
        found[table] += count
    return found


def test_old_epochs_go_with_their_events_but_for_the_newest(store: Store, backend: Backend) -> None:
    """Beyond the newest three, those older than 90 days go, many at a time; the keys of their reports hold no more."""
    register(store)
    register(store, "quiet")
    append(store, 0, job_id="quiet")
    for base in range(120):
        append(store, base, event=b"{}", idempotency_key=f"k{base}", request_sha256="r")
    assert pruned(store) == {}
    backend.query("UPDATE epochs SET created_at = ? WHERE epoch <> 2", OLD)
    assert pruned(store) == {"epochs": 116}
    assert backend.query("SELECT epoch FROM epochs WHERE job_id = 'job' ORDER BY epoch") == [
        (2,),
        (118,),
        (119,),
        (120,),
    ]
    assert backend.query("SELECT count(*) FROM events") == [(4,)]
    assert backend.query("SELECT epoch FROM epochs WHERE job_id = 'quiet'") == [(1,)]
    assert store.find_event("job", "k1") is not None
    assert store.find_event("job", "k0") is None
    assert append(store, 120).record.epoch == 121


def test_acknowledgements_of_older_epochs_go(store: Store) -> None:
    """Those of the newest two epochs stay, whatever their number; those before go at any age."""
    register(store)
    for base in range(4):
        append(store, base)
        store.acknowledge_all("job", base + 1, {f"{k}/0": None for k in range(1100)})
    assert pruned(store) == {"acknowledgements": 2200}
    assert [len(store.acknowledgements("job", epoch)) for epoch in (1, 2, 3, 4)] == [0, 0, 1100, 1100]


def test_ended_operations_go(store: Store, backend: Backend) -> None:
    """Queued and running ones stay, however old."""
    register(store)
    values = {"job_id": "job", "job_sha256": JOB_SHA256, "mode": "all", "tolerance": 1, "options": b"{}"}
    first, second, third = (store.create_operation(**values).operation_id for _ in range(3))  # type: ignore[arg-type]
    store.claim_operation("me", 60, operation_id=first)
    store.finish_operation(first, "me", "done")
    store.claim_operation("me", 60, operation_id=second)
    assert pruned(store) == {}
    backend.query("UPDATE operations SET updated_at = ?", OLD)
    assert pruned(store) == {"operations": 1}
    assert {operation.operation_id for operation in store.list_operations()} == {second, third}


def test_plans_that_nobody_asked_for_go_with_their_programs(store: Store, backend: Backend) -> None:
    """A plan that was of use lately stays; one that was not leaves nothing, and its request leads nowhere."""
    for plan_id in ("a" * 64, "b" * 64):
        store.add_plan(plan_id, content=b"plan", summary=b"summary", requests=[plan_id[::-1]])
        store.add_programs(plan_id, {"0/0": b"p"}, {"0": "0/0"})
    assert pruned(store) == {}
    backend.query("UPDATE uses SET used_at = ?", OLD)
    store.touch("plan", "a" * 64)
    assert pruned(store) == {"plans": 1}
    assert store.plan("a" * 64).content == b"plan"
    with pytest.raises(NotFoundError):
        store.plan("b" * 64)
    for table in ("requests", "programs", "ranks"):
        assert backend.query(f"SELECT plan_id FROM {table}") == [("a" * 64,)]


def test_templates_of_deleted_jobs_go(store: Store, backend: Backend) -> None:
    """They stay while a job with their hash is registered, and 90 days after; those never registered as long."""
    register(store)
    put_template(store)
    for number in range(60):
        put_template(store, job_sha256="b" * 64, failure_key=f"{number},0")
    assert pruned(store) == {}
    backend.query("UPDATE uses SET used_at = ?", OLD)
    backend.query("UPDATE templates SET created_at = ?", OLD)
    assert pruned(store) == {"templates": 60}
    store.delete_job("job")
    assert pruned(store) == {}
    backend.query("UPDATE uses SET used_at = ?", OLD)
    register(store, "again")
    assert pruned(store) == {}
    assert store.template(JOB_SHA256, KEY) is not None
    store.delete_job("again")
    backend.query("UPDATE uses SET used_at = ?", OLD)
    assert pruned(store) == {"templates": 1}
    assert backend.query("SELECT count(*) FROM uses") == [(0,)]


def test_one_server_at_a_time(postgres_store: Store, postgres_backend: Backend) -> None:
    """While another server is at it, nothing is deleted here."""
    register(postgres_store)
    for base in range(4):
        append(postgres_store, base)
    postgres_store.acknowledge("job", 1, "0/0", None)
    rounds = postgres_store.prune(KEEP)
    holder = Store(postgres_backend.url)

    def while_held(_connection: object) -> int:
        assert list(rounds) == []
        return 0

    try:
        assert holder._write(lambda connection: holder._alone(connection, while_held)) == 0
    finally:
        holder.close()
    assert pruned(postgres_store) == {"acknowledgements": 1}
