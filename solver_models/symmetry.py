"""Intact pipelines are copies of each other: solve one, repeat it.

Without failures that is the whole problem. With failures it is one way to answer: as many *chains* of sound workers, one a slot,
as the slot with the fewest has run all microbatches from end to end, and whoever else is left stops. It costs healthy
workers, but where the largest load comes out the same as with rerouting in place, nothing is lost, and what is left is a
fault-free problem. A chain is a pipeline where that is intact, and else borrows what it lacks from pipelines that stop.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from planner.problem import Problem
from planner.schedule import IntColumn, Schedule


def single_pipeline(problem: Problem) -> Problem | None:
    """The problem of one pipeline where all are alike and nothing failed; ``None`` elsewhere or where there is only one."""
    alike = not problem.dead and not problem.speeds_ppm and len(set(problem.microbatches)) == 1
    if not alike or problem.num_pipelines == 1:
        return None
    return replace(problem, microbatches=problem.microbatches[:1])


def one_pipeline(problem: Problem, microbatches: int) -> Problem:
    """The problem of one sound pipeline with this many microbatches."""
    return replace(problem, microbatches=(microbatches,), dead=frozenset(), speeds_ppm={})


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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chains:
    """Live workers at full speed that stand in for whole pipelines; no worker is part of two chains.

    Parameters
    ----------
    own
        Shape ``(C,)``: the pipeline that each chain stands for, ascending.
    parts
        Shape ``(C, P)``: pipeline whose worker of each slot is part of the chain; its own where that one is sound.
    """

    own: IntColumn
    parts: IntColumn


def sound_chains(problem: Problem) -> Chains | None:
    """As many chains as the slot with the fewest sound workers has; ``None`` where it has none.

    They stand for the pipelines with the fewest failures, and borrow what these lack from the others.
    """
    sound = np.ones((problem.num_pipelines, problem.num_slots), dtype=bool)
    for worker in (*problem.dead, *problem.speeds_ppm):
        sound[worker.pipeline, worker.slot] = False
    count = int(sound.sum(axis=0).min())
    if count == 0:
        return None
    own = np.sort(np.argsort(-sound.sum(axis=1), kind="stable")[:count])
    parts = np.repeat(own[:, None], problem.num_slots, axis=1)
    for s in range(problem.num_slots):
        lacking = np.flatnonzero(~sound[own, s])
        lenders = np.setdiff1d(np.flatnonzero(sound[:, s]), own)
        parts[lacking, s] = lenders[: len(lacking)]
    return Chains(own=own, parts=parts)


def chain_problem(problem: Problem, chains: Chains) -> Problem:
    """The problem of one chain that carries its share of all microbatches."""
    load = -(-problem.num_microbatches // len(chains.own))
    return replace(problem, microbatches=(load,), dead=frozenset(), speeds_ppm={})


def spread_over_chains(problem: Problem, chains: Chains, schedule: Schedule) -> Schedule:
    """Run every microbatch on one chain from end to end, each by the schedule of one.

    Chains keep as many of their pipelines' own microbatches as the schedule has; the rest fill up the others in turn. A chain
    with fewer leaves out the last ones, which no other operation waits for.

    Parameters
    ----------
    chains
        Of :func:`sound_chains`.
    schedule
        Of :func:`chain_problem`.

    Returns
    -------
    Schedule
        For ``problem``; its times are still to be found.
    """
    load = int(schedule.microbatch.max()) + 1
    homes = _homes_by_chain(problem, chains, load)
    part_of = {(k, s): c for c, chain in enumerate(chains.parts.tolist()) for s, k in enumerate(chain)}
    worker = schedule.worker_of_row()
    rows_of_slot = [np.flatnonzero(worker == s) for s in range(problem.num_slots)]
    offsets, columns = [0], []
    for k in range(problem.num_pipelines):
        for s, rows in enumerate(rows_of_slot):
            chain = part_of.get((k, s))
            if chain is not None:
                taken = homes[chain]
                kept = rows[schedule.microbatch[rows] < len(taken)]
                home = taken[schedule.microbatch[kept]]
                columns.append(np.stack([schedule.kind[kept], schedule.stage[kept], home[:, 0], home[:, 1]]))
            offsets.append(offsets[-1] + (0 if chain is None else len(kept)))
    kind, stage, pipeline, microbatch = np.concatenate(columns, axis=1)
    zero = np.zeros(len(kind), dtype=np.int64)
    return Schedule(
        num_pipelines=problem.num_pipelines,
        num_slots=problem.num_slots,
        offsets=np.array(offsets, dtype=np.int64),
        kind=kind,
        stage=stage,
        pipeline=pipeline,
        microbatch=microbatch,
        start_ns=zero,
        end_ns=zero,
    )


def _homes_by_chain(problem: Problem, chains: Chains, load: int) -> list[IntColumn]:
    """Home and index of the microbatches that each chain runs, shape ``(at most load, 2)`` each."""
    taken = [[(k, j) for j in range(min(problem.microbatches[k], load))] for k in chains.own.tolist()]
    kept = {pair for pairs in taken for pair in pairs}
    left = [(k, j) for k, count in enumerate(problem.microbatches) for j in range(count) if (k, j) not in kept]
    while left:
        for pairs in sorted(taken, key=len):
            if left and len(pairs) < load:
                pairs.append(left.pop())
    return [np.array(pairs, dtype=np.int64).reshape(-1, 2) for pairs in taken]
