"""What tests of precomputing share: an example job, and executors that can be watched."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from anyio import to_thread

from api import worker
from api.planning import HANDLERS
from api.pool import SolvePool
from api.precompute.executors import Executor
from api.store import Store
from planner.formats.job_file import job_from_document
from planner.job_hash import job_sha256

JOB: dict[str, Any] = json.loads((Path(__file__).parents[1] / "examples" / "plan-request.json").read_bytes())["job"]
"""ReCycle's worked example: three pipelines of four slots; 19 us without failures, 27 us with one in slot 2."""
LONG_JOB: dict[str, Any] = JOB | {
    "name": "long",
    "microbatches": 24,
    "stage_costs": {
        "forward_us": 37,
        "input_grad_us": 41,
        "weight_grad_us": 29,
        "transfer_us": 3,
        "activation_bytes": 10,
        "weight_grad_bytes": 7,
    },
    "capacity_bytes": 50,
}
"""Around a failure in slot 1 no schedule is known that meets the bound, so that its search takes all of its time."""
DOCUMENT = json.dumps(JOB).encode()
SHA256 = job_sha256(job_from_document(JOB))
FAULT_FREE = "0,0,0,0"
ONE_FAILED = ("1,0,0,0", "0,1,0,0", "0,0,1,0", "0,0,0,1")
REFERENCE = {"fault_free_ns": 19_000, "baseline_1f1b_ns": 27_000}
"""What the example's plans are compared with: 1F1B takes 27 us."""


class Here:
    """An executor that does in a thread what a solver process does."""

    def __init__(self, capacity: int = 1) -> None:
        self.capacity = capacity

    async def run(self, request: Sequence[bytes], *, timeout_s: float) -> list[bytes]:  # noqa: ARG002 - the protocol
        """Answer a request by the real handlers."""
        name, *parts = request
        return worker.unpack(await to_thread.run_sync(worker.answer, HANDLERS[name], parts))


class Watched:
    """An executor that notes which templates it is asked for; ``before`` is awaited with the number of each."""

    def __init__(
        self, executor: Executor | None = None, before: Callable[[int], Awaitable[None]] | None = None
    ) -> None:
        self._executor = Here() if executor is None else executor
        self._before = before
        self.capacity = self._executor.capacity
        self.asked: list[str] = []
        self.references: list[object] = []

    async def run(self, request: Sequence[bytes], *, timeout_s: float) -> list[bytes]:
        """Note what is asked and have it answered."""
        if request[0] == b"template":
            form = json.loads(request[2])
            self.asked.append(form["failure_key"])
            self.references.append(form["reference"])
            if self._before is not None:
                await self._before(len(self.asked))
        return await self._executor.run(request, timeout_s=timeout_s)


def with_pool(test: Callable[[SolvePool], Awaitable[None]], num_processes: int = 1) -> None:
    """Run a test on a started pool of real solver processes."""

    async def run() -> None:
        pool = SolvePool(num_processes=num_processes, queue_limit=0, queue_timeout_s=1, warm_up_timeout_s=120)
        pool.start()
        try:
            await test(pool)
        finally:
            await pool.close()

    asyncio.run(run())


def templates(path: Path) -> dict[str, str]:
    """Hash of the template of each failure key of all jobs in a store."""
    store = Store(str(path))
    try:
        found = {}
        for digest in store.template_jobs():
            for key in store.template_keys(digest):
                record = store.template(digest, key)
                assert record is not None
                found[key] = record.sha256
        return found
    finally:
        store.close()
