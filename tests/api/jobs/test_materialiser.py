"""Who gets a solver process first for an epoch's programs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from api.jobs.loaded import JobCache
from api.jobs.materialiser import Materialiser
from api.jobs.templates import Templates
from api.observability.telemetry import Telemetry
from api.pool import Priority, SolvePool
from api.store import Store
from tests.jobs import ServedJob
from tests.serving import Server


class Recording(SolvePool):
    """A pool that remembers how urgent its requests were."""

    def __init__(self) -> None:
        super().__init__(num_processes=1, queue_limit=8, queue_timeout_s=60, warm_up_timeout_s=120)
        self.priorities: list[Priority] = []

    async def run(
        self, request: Sequence[bytes], *, timeout_s: float, priority: Priority = Priority.REQUEST
    ) -> list[bytes]:
        """Have a request answered."""
        self.priorities.append(priority)
        return await super().run(request, timeout_s=timeout_s, priority=priority)


def test_programs_of_old_epochs_wait_behind_failures(job: ServedJob, server: Server) -> None:
    """Those of the newest epoch go with the events, since training waits for them; older ones, that somebody looks at, do not."""
    newest = job.report("node_failed", "n06")["epoch"]
    store, telemetry, unusable = Store(server.store), Telemetry(), list[str]()

    async def make() -> list[Priority]:
        pool = Recording()
        pool.start()
        materialiser = Materialiser(
            store=store,
            pool=pool,
            jobs=JobCache(),
            templates=Templates(store, telemetry),
            timeout_s=60,
            on_unusable=unusable.append,
            telemetry=telemetry,
        )
        for epoch in (newest - 1, newest):
            made = await materialiser.get(job.id, epoch)
            assert materialiser.ready(job.id, epoch) is made
        await materialiser.close()
        await pool.close()
        return pool.priorities

    assert asyncio.run(make()) == [Priority.REQUEST, Priority.EVENT]
    assert unusable == []
    store.close()
