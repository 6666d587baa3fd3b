"""The loop that deletes what is too old, and what keeps plans from it."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from api.observability.telemetry import Telemetry
from api.retention import PlanUses, Pruner, retention_of
from api.settings import Settings
from api.store import Retention, Store
from planner.errors import NotFoundError
from tests.api.store.backends import append, register
from tests.jobs import ServedJob
from tests.serving import serving

PLAN_ID = "a" * 64


def test_what_is_too_old_is_deleted_and_counted(tmp_path: Path) -> None:
    """A round deletes all of it, and the metric says of which table how many rows."""
    store, telemetry = Store(str(tmp_path / "s.db")), Telemetry()
    register(store)
    for base in range(3):
        append(store, base)
        store.acknowledge_all("job", base + 1, {"0/0": None, "0/1": 4})
    pruner = Pruner(store, Retention(days=1, epochs=1, acknowledged_epochs=1), telemetry, first_s=0, every_s=0.01)

    async def work() -> None:
        task = asyncio.create_task(pruner.run())
        # They are counted once they have gone.
        while b'replan_pruned_rows_total{table="acknowledgements"} 4.0' not in telemetry.render():
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(work())
    assert [len(store.acknowledgements("job", epoch)) for epoch in (1, 2, 3)] == [0, 0, 2]
    store.close()


def test_a_plan_that_is_asked_for_is_of_use(tmp_path: Path) -> None:
    """Its use is written once, though it is asked for often; what is not there is no use."""
    store = Store(str(tmp_path / "s.db"))
    store.add_plan(PLAN_ID, content=b"plan", summary=b"summary", requests=[])
    uses = PlanUses(store)
    assert uses.noted(store.plan, PLAN_ID).content == b"plan"
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection, connection:
        assert connection.execute("SELECT kind, name FROM uses").fetchall() == [("plan", PLAN_ID)]
        connection.execute("DELETE FROM uses")
    uses.noted(store.plan, PLAN_ID)
    assert not uses.noted(store.has_programs, "b" * 64)
    with pytest.raises(NotFoundError):
        uses.noted(store.plan, "c" * 64)
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
        assert connection.execute("SELECT count(*) FROM uses").fetchone() == (0,)
    store.close()


def test_nothing_is_deleted_where_days_are_0() -> None:
    """The settings say what is kept; the defaults are those of the manual."""
    assert retention_of(Settings(retention_days=0)) is None
    assert retention_of(Settings()) == Retention(days=90, epochs=1000, acknowledged_epochs=100)


def test_epochs_that_have_gone(tmp_path: Path) -> None:
    """A list and a stream from before them begin with the first that is there, and the job goes on."""
    with serving(tmp_path / "s.db", "--processes", "1") as server:
        job = ServedJob(server.client, "job")
        job.register()
        job.report("node_failed", "n06")
        last = job.report("node_recovered", "n06")["epoch"]
        store = Store(str(tmp_path / "s.db"))
        with closing(sqlite3.connect(tmp_path / "s.db", timeout=20)) as connection, connection:
            connection.execute("UPDATE epochs SET created_at = 0 WHERE epoch < ?", (last,))
        assert dict(store.prune(Retention(days=1, epochs=1, acknowledged_epochs=1))) == {"epochs": last - 1}
        store.close()
        assert [body["epoch"] for body in job.get("epochs").json()] == [last]
        assert job.get("epochs/1").status_code == 404
        assert job.current()["epoch"] == last
        with job.client.stream("GET", f"{job.path}/stream", params={"after": 1}) as stream:
            assert next(line for line in stream.iter_lines() if line.startswith("id:")) == f"id: {last}"
        assert job.report("node_failed", "n06")["epoch"] == last + 1
