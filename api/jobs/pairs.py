"""Pairs of workers that exchange messages, and those of them that an epoch brings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from api.jobs.epoch_body import PairGroup
from api.jobs.positions import Moved
from planner.job import Job
from planner.peer_pairs import new_pairs
from planner.schedule import IntColumn


def pairs_of_workers(pairs: IntColumn, job: Job, moved: Moved) -> IntColumn:
    """Pairs by the workers who stand at positions, given pairs of positions; both by index, shape ``(n, 2)``."""
    return _worker_at(job, moved)[pairs]


def groups_of_new_pairs(
    old: IntColumn | None, new: IntColumn, job: Job, moved: Moved
) -> tuple[int, tuple[PairGroup, ...]]:
    """What has to be connected.

    Parameters
    ----------
    old
        Pairs of workers connected before; ``None`` for none.
    new
        Pairs of workers to be connected.
    job, moved
        The job, and who stands elsewhere than at home now.

    Returns
    -------
    tuple[int, tuple[PairGroup, ...]]
        Number of new pairs, and these pairs by position.
    """
    added = new if old is None else new_pairs(old, new)
    position_of = np.argsort(_worker_at(job, moved))
    sender, receiver = position_of[added[:, 0]], position_of[added[:, 1]]
    slots = job.num_slots
    rows = np.stack(
        [sender % slots, receiver % slots, receiver // slots - sender // slots, sender // slots], axis=1
    ).tolist()
    groups: dict[tuple[int, int, int], list[int]] = {}
    for from_slot, to_slot, shift, pipeline in sorted(rows):
        groups.setdefault((from_slot, to_slot, shift), []).append(pipeline)
    return len(added), tuple(
        PairGroup(from_slot=from_slot, to_slot=to_slot, shift=shift, pipelines=ranges_text(pipelines))
        for (from_slot, to_slot, shift), pipelines in groups.items()
    )


def ranges_text(numbers: Sequence[int]) -> str:
    """Ascending numbers with runs joined.

    Examples
    --------
    >>> ranges_text([0, 1, 2, 7])
    '0-2,7'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _worker_at(job: Job, moved: Moved) -> IntColumn:
    """Index of the worker at each position; a permutation: positions that were left have the workers whose places were taken."""
    slots = job.num_slots
    found = np.arange(job.num_pipelines * slots)
    homes = set(moved)
    left, failed = sorted(homes - set(moved.values())), sorted(set(moved.values()) - homes)
    for worker, position in [*moved.items(), *zip(failed, left, strict=True)]:
        found[position.pipeline * slots + position.slot] = worker.pipeline * slots + worker.slot
    return found
