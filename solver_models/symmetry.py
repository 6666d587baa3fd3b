"""Fault-free pipelines are copies of each other: solve one, repeat it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.problem import Problem
from planner.schedule import Schedule


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
