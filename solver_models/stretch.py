"""Stretched pipelines: single ones, sound throughout, that are as slow as a cell's workers are for its microbatches.

Where a worker runs microbatches of a broken pipeline beside its own, its slot passes each pipeline's microbatches at a lower
rate and with less memory for each. A single pipeline with that slot's costs longer and its memory smaller by the same factor
has the same rates everywhere, and is small enough to be solved well. Its times tell when each microbatch of
the cell is best run at each stage: all pipelines in step, each a little off where they share a worker. Stretched less it is
ahead of those rates where the cell has time to spare.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import mean

import numpy as np

from planner.operation import Worker
from planner.problem import FULL_SPEED_PPM, Problem
from planner.schedule import IntColumn, Schedule
from solver_models.list_scheduling.network import nodes_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """How far each slot of a pipeline is stretched.

    Parameters
    ----------
    busiest
        By the load of the slot's busiest worker, or by the mean of those that have any.
    time_share
        Share of the time that this load takes longer than a pipeline's own, at least 0. Memory is divided whatever it is.
    """

    busiest: bool = True
    time_share: float = 1.0


def stretched_pipeline(problem: Problem, routing: IntColumn, stretch: Stretch) -> Problem:
    """Build a stretched pipeline of a routed problem.

    Parameters
    ----------
    problem
        The instance.
    routing
        Shape ``(sum(M), V)``: pipeline whose worker runs each microbatch at each stage.
    stretch
        How far.

    Returns
    -------
    Problem
        Of one pipeline with as many microbatches as the largest has.
    """
    count = max(problem.microbatches)
    slots, stages = list(problem.slots), list(problem.stages)
    for s, slot in enumerate(problem.slots):
        held = [problem.stages[v] for v in slot.stages]
        work = [stage.forward_ns + stage.input_grad_ns + stage.weight_grad_ns for stage in held]
        counts = [np.bincount(routing[:, v], minlength=problem.num_pipelines) for v in slot.stages]
        loads = np.average(counts, axis=0, weights=work if any(work) else None).tolist()
        held_loads = [load for load in loads if load > 0]
        spans = [load * FULL_SPEED_PPM / problem.speed_ppm(Worker(k, s)) for k, load in enumerate(loads) if load > 0]
        load, span = (max(held_loads), max(spans)) if stretch.busiest else (mean(held_loads), mean(spans))
        time, memory = 1 + stretch.time_share * max(0.0, span / count - 1), max(1.0, load / count)
        for v in slot.stages:
            stage = problem.stages[v]
            stages[v] = replace(
                stage,
                forward_ns=math.ceil(stage.forward_ns * time),
                input_grad_ns=math.ceil(stage.input_grad_ns * time),
                weight_grad_ns=math.ceil(stage.weight_grad_ns * time),
            )
        if slot.capacity_bytes is not None:
            least = sum(problem.stages[v].activation_bytes for v in slot.stages)
            slots[s] = replace(slot, capacity_bytes=max(least, int(slot.capacity_bytes / memory)))
    return replace(
        problem, stages=tuple(stages), slots=tuple(slots), microbatches=(count,), dead=frozenset(), speeds_ppm={}
    )


def starts_in_step(problem: Problem, one: Problem, schedule: Schedule) -> IntColumn:
    """Start of each of a problem's network nodes if all its pipelines ran the schedule of one, shape ``(3 * V * sum(M),)``.

    Parameters
    ----------
    problem
        The instance.
    one, schedule
        A problem of one pipeline with at least as many microbatches as any has, and its timed schedule. A pipeline with fewer
        takes every so manieth.
    """
    count, width = one.microbatches[0], 3 * problem.num_stages
    starts = np.zeros(count * width, dtype=np.int64)
    starts[nodes_of(one, schedule)] = schedule.start_ns
    taken = np.concatenate([np.arange(m, dtype=np.int64) * count // m for m in problem.microbatches if m])
    by_microbatch: IntColumn = starts.reshape(count, width)[taken].reshape(-1)
    return by_microbatch
