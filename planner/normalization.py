"""Failure normalization: plan once for a failure key, then put the plan onto the real workers.

A plan is made for the canonical problem of a :class:`~planner.failure_key.FailureKey` and put onto the real workers by a
:class:`Relabelling`. ``docs/normalization.md`` says why that is exact, with a worked example.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from planner.errors import ProblemError
from planner.failure_key import FailureKey, canonical_problem, failure_key, parse_failure_key, problem_for_key
from planner.matching import assumed_reroutes, match_workers, reroutes_of
from planner.operation import Worker
from planner.problem import Problem
from planner.schedule import Schedule

__all__ = [
    "FailureKey",
    "Relabelling",
    "canonical_problem",
    "failure_key",
    "parse_failure_key",
    "problem_for_key",
    "relabel",
    "relabelling",
]

IntArray: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Relabelling:
    """Who plays whom: from the canonical problem's workers and microbatches to the real ones.

    Two maps, since a worker and a microbatch's home are different things. Microbatch ``j`` of canonical pipeline ``c`` is
    microbatch ``j`` of real pipeline ``home[c]``, whose data loader delivers it; so both have the same number of microbatches.
    The part of canonical worker ``(c, s)`` is played by real worker ``(played_by[s, c], s)``. Where ``played_by[s, c]``
    is ``home[c]`` the worker stays at home; all else is a swap within the slot.

    Parameters
    ----------
    home
        Shape ``(D,)``, a permutation: real home of each canonical pipeline's microbatches.
    played_by
        Shape ``(P, D)``, a permutation in each row: real pipeline whose worker of slot ``s`` plays canonical pipeline ``c``.
    dead
        The real dead workers, played parts of which are empty.

    Raises
    ------
    ProblemError
        If ``home`` or a row of ``played_by`` is not a permutation.
    """

    home: IntArray
    played_by: IntArray
    dead: frozenset[Worker]

    def __post_init__(self) -> None:
        for name in ("home", "played_by"):
            array = np.array(getattr(self, name), dtype=np.int64)
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        if self.home.ndim != 1 or self.played_by.ndim != 2 or self.played_by.shape[1] != self.home.shape[0]:
            raise ProblemError(
                f"a relabelling has shapes {self.home.shape} and {self.played_by.shape}; expected (D,) and (P, D)"
            )
        if bool(np.any(np.sort(np.vstack([self.home, self.played_by]), axis=1) != np.arange(self.num_pipelines))):
            raise ProblemError("a relabelling's home or one of its slots is not a permutation of the pipelines")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Relabelling):
            return NotImplemented
        return (
            np.array_equal(self.home, other.home)
            and np.array_equal(self.played_by, other.played_by)
            and self.dead == other.dead
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def num_pipelines(self) -> int:
        """``D``, the number of pipelines."""
        return int(self.home.shape[0])

    @property
    def num_slots(self) -> int:
        """``P``, the number of slots."""
        return int(self.played_by.shape[0])

    def worker(self, canonical: Worker) -> Worker:
        """Real worker that plays a canonical worker."""
        return Worker(int(self.played_by[canonical.slot, canonical.pipeline]), canonical.slot)

    @property
    def moved_workers(self) -> tuple[Worker, ...]:
        """Live real workers that play another pipeline's part than their own, ascending."""
        slots, canonical = np.nonzero(self.played_by != self.home)
        moved = (Worker(int(self.played_by[s, c]), int(s)) for s, c in zip(slots, canonical, strict=True))
        return tuple(sorted(worker for worker in moved if worker not in self.dead))


def relabel(schedule: Schedule, relabelling: Relabelling) -> Schedule:
    """Put a schedule of the canonical problem onto the real workers.

    Orders and times stay as they are, so it is valid for the real problem wherever the schedule is for the canonical one, with
    the same period and the same memory peaks.

    Raises
    ------
    ProblemError
        If the relabelling is for another number of pipelines or slots, or a microbatch's home is none of them.
    """
    pipelines, slots = relabelling.num_pipelines, relabelling.num_slots
    _require_shape(schedule, pipelines, slots)
    source = np.empty(pipelines * slots, dtype=np.int64)
    canonical_index = np.arange(pipelines * slots, dtype=np.int64).reshape(pipelines, slots)
    source[relabelling.played_by.T * slots + np.arange(slots)] = canonical_index
    lengths = np.diff(schedule.offsets)[source]
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
    rows = np.arange(schedule.num_operations) + np.repeat(schedule.offsets[source] - offsets[:-1], lengths)
    return replace(
        schedule,
        offsets=offsets,
        kind=schedule.kind[rows],
        stage=schedule.stage[rows],
        pipeline=relabelling.home[schedule.pipeline[rows]],
        microbatch=schedule.microbatch[rows],
        start_ns=schedule.start_ns[rows],
        end_ns=schedule.end_ns[rows],
    )


def relabelling(
    problem: Problem, rack_of_worker: IntArray | None = None, *, schedule: Schedule | None = None
) -> Relabelling:
    """Choose which real workers play the canonical problem's, moving as few as possible and over the nearest racks.

    First ``home`` is chosen among permutations that keep microbatch counts so that the fewest live workers leave their
    home (an assignment problem over the pipelines with failures, exact). Then the canonical pipelines that help
    are given, those with the most rerouted microbatches first, the free real pipelines nearest to those they help. Last,
    each slot swaps the workers that ``home`` leaves mismatched, nearest first.

    Parameters
    ----------
    problem
        The real problem.
    rack_of_worker
        Shape ``(D, P)``: rack of each real worker, racks numbered so that near numbers are near; ``None`` where racks
        do not matter, and then pipelines keep their own numbers wherever they can.
    schedule
        A schedule of the canonical problem, whose rerouted microbatches tell who helps whom. Without it, a dead worker's
        microbatches are taken to go one each to the live peers that follow its pipeline.

    Returns
    -------
    Relabelling
        From the canonical problem to the real one.

    Raises
    ------
    ProblemError
        If ``rack_of_worker`` or ``schedule`` does not have the problem's shape.
    """
    shape = (problem.num_pipelines, problem.num_slots)
    if rack_of_worker is not None and rack_of_worker.shape != shape:
        raise ProblemError(f"rack_of_worker has shape {rack_of_worker.shape}; expected {shape}")
    if schedule is not None:
        _require_shape(schedule, *shape)
    canonical = canonical_problem(problem)
    reroutes = assumed_reroutes(canonical) if schedule is None else reroutes_of(schedule)
    home, played_by = match_workers(problem, canonical, rack_of_worker, reroutes)
    return Relabelling(home=home, played_by=played_by, dead=problem.dead)


def _require_shape(schedule: Schedule, num_pipelines: int, num_slots: int) -> None:
    if (schedule.num_pipelines, schedule.num_slots) != (num_pipelines, num_slots):
        raise ProblemError(
            f"a schedule has {schedule.num_pipelines} pipelines x {schedule.num_slots} slots; "
            f"expected {num_pipelines} x {num_slots}"
        )
    if schedule.num_operations and int(schedule.pipeline.max()) >= num_pipelines:
        raise ProblemError(
            f"a schedule has a microbatch of pipeline {int(schedule.pipeline.max())}; expected 0..{num_pipelines - 1}"
        )
