"""Which workers send each other messages: what has to be connected before a plan can run.

A pair ``(a, b)`` of worker indices ``k * P + s`` says that ``a`` sends to ``b``. Pairs are rows of an array of shape
``(n, 2)``, ascending, each once.
"""

from __future__ import annotations

import numpy as np

from planner.normalization import Relabelling
from planner.operation import Kind
from planner.schedule import IntColumn, Schedule


def schedule_pairs(schedule: Schedule) -> IntColumn:
    """Pairs that a schedule's messages go over.

    Each microbatch's activations go from the worker of each stage to that of the next, and its gradients back; nothing is
    sent where both are one worker.
    """
    forwards = np.flatnonzero(schedule.kind == Kind.F)
    worker = schedule.worker_of_row()[forwards]
    most = int(schedule.microbatch.max(initial=0)) + 1
    microbatch = schedule.pipeline[forwards] * most + schedule.microbatch[forwards]
    by_microbatch = np.lexsort((schedule.stage[forwards], microbatch))
    worker, microbatch = worker[by_microbatch], microbatch[by_microbatch]
    sent = (microbatch[1:] == microbatch[:-1]) & (worker[1:] != worker[:-1])
    ahead, behind = worker[:-1][sent], worker[1:][sent]
    return _sorted_pairs(np.concatenate([ahead, behind]), np.concatenate([behind, ahead]))


def relabel_pairs(pairs: IntColumn, relabelling: Relabelling) -> IntColumn:
    """Pairs of real workers, given those of the canonical ones that they play."""
    slots = relabelling.num_slots
    real = (relabelling.played_by.T * slots + np.arange(slots)).ravel()
    return _sorted_pairs(real[pairs[:, 0]], real[pairs[:, 1]])


def peer_pairs(schedule: Schedule, relabelling: Relabelling) -> IntColumn:
    """Pairs of real workers that a canonical schedule's messages go over once it is relabelled."""
    return relabel_pairs(schedule_pairs(schedule), relabelling)


def new_pairs(old: IntColumn, new: IntColumn) -> IntColumn:
    """Pairs of ``new`` that are not among ``old``: what to connect before the new plan begins.

    Examples
    --------
    >>> new_pairs(np.array([[0, 1]]), np.array([[0, 1], [1, 0]])).tolist()
    [[1, 0]]
    """
    size = 1 + max(int(old.max(initial=0)), int(new.max(initial=0)))
    fresh = ~np.isin(new[:, 0] * size + new[:, 1], old[:, 0] * size + old[:, 1])
    return new[fresh]


def _sorted_pairs(source: IntColumn, target: IntColumn) -> IntColumn:
    size = 1 + max(int(source.max(initial=0)), int(target.max(initial=0)))
    codes = np.unique(source * size + target)
    return np.stack([codes // size, codes % size], axis=1)
