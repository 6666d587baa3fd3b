"""Which slots hang on the fewest workers, by the names that people know machines by."""

from __future__ import annotations

from api.jobs.epoch_body import EpochBody
from api.jobs.positions import Moved
from api.views.forms import WeakSlot
from planner.hostlist import expand_hostlist
from planner.job import Job
from planner.operation import Worker, parse_worker

MOST_LIVE = 3
"""Slots with more live workers than this are not told of."""
_MOST_SLOTS = 4
_MOST_NAMES = 8


def down_targets(body: EpochBody) -> list[str]:
    """What is down, as it is reported: nodes, ``rank:17``, ``worker:1/2``; at most the first eight.

    Examples
    --------
    With node n06 and GPU 3 down the result is ``["n06", "rank:3"]``.
    """
    nodes = expand_hostlist(body.failures.nodes) if body.failures.nodes else ()
    ranks = (f"rank:{rank}" for rank in body.failures.ranks)
    return [*nodes, *ranks, *(f"worker:{worker}" for worker in body.failures.workers)][:_MOST_NAMES]


def weak_slots(job: Job, body: EpochBody) -> list[WeakSlot]:
    """Slots that have the fewest live workers, where these are at most three.

    Parameters
    ----------
    job, body
        The job, and its epoch.

    Returns
    -------
    list[WeakSlot]
        At most the first four. Migrated workers count where they stand.

    Examples
    --------
    Three pipelines with n02 and n06 down, which hold 0/2 and 1/2: slot 2 lives by n10, and either of the two would help it.
    """
    dead = {parse_worker(text) for text in body.failed_workers}
    moved: Moved = {parse_worker(entry.worker): parse_worker(entry.position) for entry in body.moved}
    living: list[list[Worker]] = [[] for _ in range(job.num_slots)]
    lost: list[list[Worker]] = [[] for _ in range(job.num_slots)]
    for pipeline in range(job.num_pipelines):
        for slot in range(job.num_slots):
            worker = Worker(pipeline, slot)
            if worker in dead:
                lost[slot].append(worker)
            else:
                living[moved.get(worker, worker).slot].append(worker)
    fewest = min(map(len, living))
    if fewest > MOST_LIVE:
        return []
    named = _Named(job, body)
    return [
        WeakSlot(
            slot=slot,
            num_live=fewest,
            live=named.live(living[slot]),
            down=named.down(lost[slot]),
        )
        for slot in range(job.num_slots)
        if len(living[slot]) == fewest
    ][:_MOST_SLOTS]


class _Named:
    """Names of workers' machines."""

    def __init__(self, job: Job, body: EpochBody) -> None:
        self._job = job
        self._nodes = set(expand_hostlist(body.failures.nodes)) if body.failures.nodes else set()
        self._ranks = set(body.failures.ranks)
        self._workers = set(body.failures.workers)

    def live(self, workers: list[Worker]) -> list[str]:
        """The first node of each."""
        return list(dict.fromkeys(self._job.nodes_of_worker(worker)[0] for worker in workers))

    def down(self, workers: list[Worker]) -> list[str]:
        """What was reported of each, as one list that is reported back; at most the first eight workers."""
        return [self._reported(worker) for worker in workers[:_MOST_NAMES]]

    def _reported(self, worker: Worker) -> str:
        nodes = [node for node in self._job.nodes_of_worker(worker) if node in self._nodes]
        ranks = [f"rank:{rank}" for rank in self._job.gpus_of_worker(worker) if rank in self._ranks]
        alone = [f"worker:{worker}"] if str(worker) in self._workers else []
        return ",".join([*nodes, *ranks, *alone])
