"""Who looks after the plans of jobs, and in which order."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from api.background import Background
from api.jobs.improvement import Improver
from api.jobs.loaded import LoadedJob
from api.jobs.solving import TemplateMaker
from api.jobs.templates import Templates
from api.observability.telemetry import Telemetry
from api.pool import SolvePool
from api.store import EpochRecord, Store
from planner.errors import NotFoundError
from planner.formats.job_file import job_from_document
from planner.job_hash import job_sha256
from tests.api.jobs.test_survival import HASTY
from tests.jobs import DOCUMENT, ServedJob
from tests.precomputing import LONG_JOB
from tests.serving import serving


def test_an_unforeseen_error_over_one_job_leaves_the_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A bug that one job brings out is told and counted, and the next job is looked at."""
    telemetry = Telemetry()
    store = Store(str(tmp_path / "s.db"))
    looked_at: list[str] = []

    async def current(job_id: str) -> tuple[EpochRecord, LoadedJob]:
        looked_at.append(job_id)
        if job_id == "bad":
            raise KeyError("a bug")
        raise NotFoundError("it was deleted")

    async def improve(_record: EpochRecord, _job: LoadedJob) -> bool:
        raise AssertionError

    async def check() -> None:
        pool = SolvePool(num_processes=1, queue_limit=0, queue_timeout_s=1, warm_up_timeout_s=1)
        templates = Templates(store, telemetry)
        improver = Improver(
            templates=templates,
            maker=TemplateMaker(store=store, pool=pool, templates=templates, telemetry=telemetry, grace_s=1),
            current=current,
            improve=improve,
            deadline_s=1,
            threshold=0,
            telemetry=telemetry,
            background=Background(telemetry),
        )
        improver.start()
        improver.look_at("bad")
        improver.look_at("good")
        while looked_at.count("bad") < 2:  # it is tried again
            await asyncio.sleep(0.01)
        await improver.close()

    with caplog.at_level(logging.ERROR):
        asyncio.run(check())
    store.close()
    assert looked_at[:2] == ["bad", "good"]
    assert "KeyError" in caplog.text
    assert telemetry.registry.get_sample_value("replan_degradations_total", {"kind": "improvement_failed"}) is not None


def test_a_damaged_plan_is_mended_while_another_job_is_improved(tmp_path: Path) -> None:
    """While the only process searches for hours for a better plan of one job, the damaged plan of another is made again."""
    store = tmp_path / "s.db"
    with serving(store, "--processes", "2", environment=HASTY | {"REPLAN_IMPROVEMENT_DEADLINE_S": "0.001"}) as server:
        unsolved = ServedJob(server.client, "a-long", LONG_JOB)
        unsolved.register()
        unsolved.report("node_failed", "n01")
        other = ServedJob(server.client, "b-other")
        other.register()
    with closing(sqlite3.connect(store)) as connection:
        digest = job_sha256(job_from_document(DOCUMENT))
        damage = "UPDATE templates SET content = CAST(substr(content, 1, 100) || x'00' AS BLOB) WHERE job_sha256 = ?"
        assert connection.execute(damage, (digest,)).rowcount > 0
        connection.commit()
    endless = HASTY | {"REPLAN_IMPROVEMENT_DEADLINE_S": "7200"}
    with serving(store, "--processes", "1", environment=endless) as server:
        mended = ServedJob(server.client, "b-other").wait_for("improved", after=1)
        assert mended["plan"]["period_us"] == 19
        assert ServedJob(server.client, "b-other").get(f"epochs/{mended['epoch']}/programs/0/0").status_code == 200
