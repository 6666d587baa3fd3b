"""How many more failures a job can take."""

from __future__ import annotations

from collections import Counter

from api.jobs.positions import Moved, empty_positions
from planner.job import Job, OptimizerState
from planner.operation import Worker


def spare_workers(job: Job, dead: frozenset[Worker], moved: Moved) -> int:
    """Workers that can fail from here on, wherever they are, and training still goes on.

    Parameters
    ----------
    job
        The job.
    dead, moved
        Who is down, by home, and who stands elsewhere than at home.

    Returns
    -------
    int
        One less than the live workers of the slot that has the fewest, at least 0; 0 where each worker holds the only copy of a
        shard of the optimizer's state.

    Examples
    --------
    Three pipelines with 1/2 down: slot 2 has two workers left, so any one more can fail, and the result is 1.
    """
    if job.optimizer_state is OptimizerState.SHARDED:
        return 0
    empty = Counter(position.slot for position in empty_positions(dead, moved))
    return max(0, job.num_pipelines - max(empty.values(), default=0) - 1)
