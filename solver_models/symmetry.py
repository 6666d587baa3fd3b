"""Intact pipelines are copies of each other: solve one, repeat it.

Without failures that is the whole problem. With failures it is one way to answer: the pipelines that lost a worker stop,
and every other one runs more microbatches, from end to end. It costs the healthy workers of the broken pipelines, but where
the largest load comes out the same as with rerouting in place, nothing is lost, and what is left is a fault-free problem.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.problem import Problem
from planner.schedule import IntColumn, Schedule


def single_pipeline(problem: Problem) -> Problem | None:
    """The problem of one pipeline where all are alike and nothing failed; ``None`` elsewhere or where there is only one."""
    alike = not problem.dead and not problem.speeds_ppm and len(set(problem.microbatches)) == 1
    if not alike or problem.num_pipelines == 1:
        return None
    return replace(problem, microbatches=problem.microbatches[:1])


def repeat_pipeline(schedule: Schedule, num_pipelines: int) -> Schedule:
    """Run the schedule of one pipeline on every pipeline, each with its own microbatches.

    Parameters
    ----------
    schedule
        Of exactly one pipeline.
    num_pipelines
        ``D``, at least 1.
    """
    assert schedule.num_pipelines == 1
    rows = schedule.num_operations
    shift = np.arange(num_pipelines, dtype=np.int64)[:, None]
    return Schedule(
        num_pipelines=num_pipelines,
        num_slots=schedule.num_slots,
        offsets=np.concatenate([(schedule.offsets[:-1] + shift * rows).reshape(-1), [rows * num_pipelines]]),
        kind=np.tile(schedule.kind, num_pipelines),
        stage=np.tile(schedule.stage, num_pipelines),
        pipeline=np.repeat(shift[:, 0], rows),
        microbatch=np.tile(schedule.microbatch, num_pipelines),
        start_ns=np.tile(schedule.start_ns, num_pipelines),
        end_ns=np.tile(schedule.end_ns, num_pipelines),
    )


def intact_pipelines(problem: Problem) -> tuple[int, ...]:
    """Pipelines all of whose workers are live and at full speed, ascending."""
    broken = {worker.pipeline for worker in (*problem.dead, *problem.speeds_ppm)}
    return tuple(k for k in range(problem.num_pipelines) if k not in broken)


def intact_pipeline(problem: Problem) -> Problem | None:
    """The problem of one intact pipeline that carries its share of all microbatches; ``None`` where none is intact."""
    intact = intact_pipelines(problem)
    if not intact:
        return None
    load = -(-problem.num_microbatches // len(intact))
    return replace(problem, microbatches=(load,), dead=frozenset(), speeds_ppm={})


def spread_over_intact(problem: Problem, schedule: Schedule) -> Schedule:
    """Run every microbatch on an intact pipeline, each by the schedule of one.

    Pipelines keep as many of their home microbatches as the schedule has; the rest fill up the others in turn. A pipeline
    with fewer leaves out the last ones, which no other operation waits for.

    Parameters
    ----------
    schedule
        Of :func:`intact_pipeline`.

    Returns
    -------
    Schedule
        For ``problem``; its times are still to be found.
    """
    slots, intact = problem.num_slots, intact_pipelines(problem)
    load = int(schedule.microbatch.max()) + 1
    homes = _homes_by_pipeline(problem, intact, load)
    worker = schedule.worker_of_row()
    offsets, columns = [0], []
    rows_of_slot = [np.flatnonzero(worker == s) for s in range(slots)]
    for k in range(problem.num_pipelines):
        taken = homes.get(k)
        for rows in rows_of_slot:
            if taken is not None:
                kept = rows[schedule.microbatch[rows] < len(taken)]
                home = taken[schedule.microbatch[kept]]
                columns.append(np.stack([schedule.kind[kept], schedule.stage[kept], home[:, 0], home[:, 1]]))
                offsets.append(offsets[-1] + len(kept))
            else:
                offsets.append(offsets[-1])
    kind, stage, pipeline, microbatch = np.concatenate(columns, axis=1)
    zero = np.zeros(len(kind), dtype=np.int64)
    return Schedule(
        num_pipelines=problem.num_pipelines,
        num_slots=slots,
        offsets=np.array(offsets, dtype=np.int64),
        kind=kind,
        stage=stage,
        pipeline=pipeline,
        microbatch=microbatch,
        start_ns=zero,
        end_ns=zero,
    )


def _homes_by_pipeline(problem: Problem, intact: tuple[int, ...], load: int) -> dict[int, IntColumn]:
    """Home and index of the microbatches each intact pipeline runs, shape ``(at most load, 2)`` each."""
    taken = {k: [(k, j) for j in range(min(problem.microbatches[k], load))] for k in intact}
    left = [
        (k, j) for k, count in enumerate(problem.microbatches) for j in range(len(taken[k]) if k in taken else 0, count)
    ]
    while left:
        for k in sorted(intact, key=lambda k: len(taken[k])):
            if left and len(taken[k]) < load:
                taken[k].append(left.pop())
    return {k: np.array(pairs, dtype=np.int64).reshape(-1, 2) for k, pairs in taken.items()}
