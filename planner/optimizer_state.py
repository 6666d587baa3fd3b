"""What failures take of the optimizer's state, by how the job keeps it."""

from __future__ import annotations

import numpy as np

from planner.errors import OptimizerShardLostError
from planner.job import Job, OptimizerState
from planner.operation import Worker


def require_optimizer_state(job: Job, dead: frozenset[Worker]) -> None:
    """Check that no failure took the only copy of a shard of the optimizer state.

    Raises
    ------
    OptimizerShardLostError
        Naming the workers and the bytes to restore.
    """
    if job.optimizer_state is not OptimizerState.SHARDED or not dead:
        return
    sizes = [
        None
        if any(job.stages[v].optimizer_state_bytes is None for v in job.slot_stages[worker.slot])
        else job.gpus_per_worker * sum(job.stages[v].optimizer_state_bytes or 0 for v in job.slot_stages[worker.slot])
        for worker in dead
    ]
    total = None if None in sizes else sum(size or 0 for size in sizes)
    names = " ".join(map(str, sorted(dead)[:16])) + (f" and {len(dead) - 16} more" if len(dead) > 16 else "")
    size_text = "an unknown number of bytes (optimizer_state_bytes is not given)" if total is None else f"{total} bytes"
    raise OptimizerShardLostError(
        f"workers {names} held the only copy of their shards of the optimizer state: {size_text} to restore",
        hint="restore these shards from the last checkpoint onto live peers of the same slots, then plan again "
        "with --shards-restored; or restart from the checkpoint",
    )


def why_nobody_moves(job: Job) -> str | None:
    """Why no worker of a job may leave its position for another slot; ``None`` where it may.

    A worker that moves is alive, but what it held of its own slot's optimizer state is held there no more.
    """
    if job.optimizer_state is OptimizerState.SHARDED:
        return "a worker that moves would take the only copy of its optimizer shard with it"
    return None


def replica_notes(job: Job, dead: frozenset[Worker]) -> list[str]:
    """What to make sure of where failures may have taken a shard and its replica together, one sentence each.

    Parameters
    ----------
    job
        The job.
    dead
        Workers that are down, and those that leave their position for another slot: a shard is gone with either.
    """
    if job.optimizer_state is not OptimizerState.SHARDED_WITH_REPLICA:
        return []
    counts = np.bincount([worker.slot for worker in dead], minlength=job.num_slots)
    several = np.flatnonzero(counts > 1).tolist()
    if not several:
        return []
    return [
        f"slots {several} lose several workers: make sure that none of them held the replica of another's optimizer shard"
    ]
