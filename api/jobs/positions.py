"""Who stands where: a worker that migrated runs another position's program until its own or that position's worker changes.

A *worker* is named by its home, the place its GPUs have in the job's layout; a *position* is a place in a plan. Without
migrations the two are the same. ``moved`` maps each worker that stands elsewhere to its position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from planner.failures import FailureSet
from planner.job import Job
from planner.migration import Migration
from planner.operation import Worker
from planner.problem import Problem

Moved: TypeAlias = Mapping[Worker, Worker]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A position whose worker is new there, and must load parameters and optimizer state before it runs.

    Parameters
    ----------
    worker
        Who takes it, by its home.
    position
        The position.
    copy_from
        A worker, by its home, that holds the state already; ``None`` where nobody does: only a checkpoint has it.
    num_bytes
        Bytes to load; 0 where the job does not give them.
    seconds
        Time of this copy alone; ``None`` where the job gives no bandwidth or no sizes.
    """

    worker: Worker
    position: Worker
    copy_from: Worker | None
    num_bytes: int
    seconds: float | None


def kept_moves(moved: Moved, dead: frozenset[Worker]) -> dict[Worker, Worker]:
    """Moves that still hold under a failure set: the worker is live, and nobody lives at home where it stands.

    When the worker whose place was taken recovers, both go home: each has to load a state then, but afterwards every rank
    runs what the layout says.

    Examples
    --------
    0/1 stands at 0/0, whose own worker is down: it stays. When 0/0 recovers, it goes home.
    """
    kept = {worker: position for worker, position in moved.items() if worker not in dead}
    while lost := [worker for worker, position in kept.items() if position not in dead and position not in kept]:
        for worker in lost:
            del kept[worker]
    return kept


def moved_by(moved: Moved, migrations: Sequence[Migration]) -> dict[Worker, Worker]:
    """Moves after further migrations, which name positions: whoever stands at the source goes to the target."""
    occupant = {position: worker for worker, position in moved.items()}
    result = dict(moved)
    for migration in migrations:
        worker = occupant.get(migration.source, migration.source)
        if worker == migration.target:
            del result[worker]
        else:
            result[worker] = migration.target
    return result


def problem_of(job: Job, failures: FailureSet, moved: Moved) -> Problem:
    """The planner's problem by position: a position is dead where nobody stands, and as fast as whoever stands there."""
    speeds = {moved.get(worker, worker): speed for worker, speed in failures.speeds_ppm.items()}
    return job.problem(empty_positions(failures.dead, moved), speeds)


def empty_positions(dead: frozenset[Worker], moved: Moved) -> frozenset[Worker]:
    """Positions where nobody stands."""
    return (dead | frozenset(moved)) - frozenset(moved.values())


def occupant_of(position: Worker, dead: frozenset[Worker], moved: Moved) -> Worker | None:
    """Who stands at a position, by its home; ``None`` where nobody does."""
    for worker, taken in moved.items():
        if taken == position:
            return worker
    return None if position in dead or position in moved else position


def loads(
    job: Job, before: tuple[frozenset[Worker], Moved], after: tuple[frozenset[Worker], Moved]
) -> tuple[Load, ...]:
    """What has to be loaded between two epochs: by workers that move, come home, or come back from a failure.

    Parameters
    ----------
    job
        The job.
    before, after
        Dead workers and moves of each epoch.
    """
    changed = sorted(_touched(before) | _touched(after))
    new = []
    for position in changed:
        worker = occupant_of(position, *after)
        if worker is not None and worker != occupant_of(position, *before):
            new.append((position, worker))
    holders: dict[int, list[Worker]] = {}
    served: dict[int, int] = {}
    result = []
    for position, worker in new:
        slot = position.slot
        if slot not in holders:
            holders[slot] = _holders(job, slot, before, after)
        sources = holders[slot]
        copy_from = sources[served.get(slot, 0) % len(sources)] if sources else None
        served[slot] = served.get(slot, 0) + 1
        size, rate = job.state_bytes(slot), job.recovery.copy_bytes_per_s
        known = size is not None and rate is not None and copy_from is not None
        result.append(
            Load(
                worker=worker,
                position=position,
                copy_from=copy_from,
                num_bytes=size or 0,
                seconds=(size or 0) / (rate * job.gpus_per_worker) if known and rate is not None else None,
            )
        )
    return tuple(result)


def _touched(state: tuple[frozenset[Worker], Moved]) -> set[Worker]:
    """Positions whose occupant may not be at home."""
    dead, moved = state
    return {*dead, *moved, *moved.values()}


def _holders(
    job: Job, slot: int, before: tuple[frozenset[Worker], Moved], after: tuple[frozenset[Worker], Moved]
) -> list[Worker]:
    """Workers that held a slot's state before and still do, by pipeline."""
    found = []
    for position in (Worker(k, slot) for k in range(job.num_pipelines)):
        worker = occupant_of(position, *before)
        if worker is not None and worker == occupant_of(position, *after):
            found.append(worker)
    return found
