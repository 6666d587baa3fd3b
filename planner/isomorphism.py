"""Check that a relabelling maps a canonical problem exactly onto a real one.

Nothing here is shared with :mod:`planner.matching`, which chooses relabellings, nor trusted from them: both problems are read
anew. ``docs/normalization.md`` proves that a valid plan of the one problem, relabelled, is a valid plan of the other.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from planner.errors import InvalidScheduleError
from planner.normalization import Relabelling
from planner.problem import Problem


def check_isomorphism(canonical: Problem, real: Problem, relabelling: Relabelling) -> None:
    """Check that every slot's workers are mapped one to one onto workers of the same kind, and homes likewise.

    Takes time proportional to the number of workers.

    Parameters
    ----------
    canonical, real
        The problem that a plan was made for, and the one that it is put onto.
    relabelling
        From the first to the second.

    Raises
    ------
    InvalidScheduleError
        Naming the first worker, pipeline or part of the problem that does not fit.
    """
    for name in ("stages", "slots", "optimizer"):
        if getattr(canonical, name) != getattr(real, name):
            raise InvalidScheduleError(f"the template's {name} are not the real problem's: it is a plan of another job")
    pipelines, slots = real.num_pipelines, real.num_slots
    home, played_by = np.asarray(relabelling.home), np.asarray(relabelling.played_by)
    if canonical.num_pipelines != pipelines or home.shape != (pipelines,) or played_by.shape != (slots, pipelines):
        raise InvalidScheduleError(
            f"the template has {canonical.num_pipelines} pipelines and the relabelling shapes {home.shape} and "
            f"{played_by.shape}; expected {pipelines} pipelines x {slots} slots"
        )
    _require_one_to_one(home, "home")
    for slot in range(slots):
        _require_one_to_one(played_by[slot], f"slot {slot}")
    found, expected = _speeds(real), _speeds(canonical)
    wrong = np.argwhere(found[played_by, np.arange(slots)[:, None]] != expected.T)
    if len(wrong):
        slot, part = (int(number) for number in wrong[0])
        player = int(played_by[slot, part])
        raise InvalidScheduleError(
            f"worker {player}/{slot} plays {part}/{slot}: it runs at {found[player, slot]} ppm, "
            f"its part at {expected[part, slot]} ppm (0 is dead); expected the same"
        )
    counts = np.array(real.microbatches)[home] != np.array(canonical.microbatches)
    if counts.any():
        part = int(np.argmax(counts))
        raise InvalidScheduleError(
            f"pipeline {home[part]} is home to {real.microbatches[home[part]]} microbatches, the part of pipeline {part} "
            f"has {canonical.microbatches[part]}; expected the same number"
        )
    if relabelling.dead != real.dead:
        raise InvalidScheduleError("the relabelling names other dead workers than the real problem")


def _require_one_to_one(row: npt.NDArray[np.int64], what: str) -> None:
    inside = (row >= 0) & (row < len(row))
    seen = np.zeros(len(row), dtype=np.bool_)
    seen[row[inside]] = True
    if not (inside.all() and seen.all()):
        raise InvalidScheduleError(
            f"the relabelling's {what} is not one to one: {len(row)} pipelines play {seen.sum()}"
        )


def _speeds(problem: Problem) -> npt.NDArray[np.int64]:
    """Speed of each worker in ppm, shape ``(D, P)``; 0 where it is dead."""
    speeds = np.full((problem.num_pipelines, problem.num_slots), 1_000_000, dtype=np.int64)
    for worker, speed in problem.speeds_ppm.items():
        speeds[worker.pipeline, worker.slot] = speed
    for worker in problem.dead:
        speeds[worker.pipeline, worker.slot] = 0
    return speeds
