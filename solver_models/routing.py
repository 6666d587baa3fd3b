"""Where microbatches may run, and which of them and of the workers are interchangeable.

A microbatch's home only names it: costs, transfers and memory do not depend on it. So microbatches with the same choices
may swap names, and so may workers of one slot and speed, which halves many times over what an exact model has to search.
"""

from __future__ import annotations

from typing import TypeAlias

from planner.operation import Worker
from planner.problem import Problem

Routing: TypeAlias = tuple[tuple[tuple[int, ...], ...], ...]
"""For each microbatch index and stage the pipelines whose workers may run it."""


def free_routing(problem: Problem) -> Routing:
    """Any live worker of the slot for every microbatch: (4) and (5), nothing else."""
    everywhere = tuple(problem.live_pipelines(s) for s in problem.slot_of_stage)
    return (everywhere,) * problem.num_microbatches


def home_routing(problem: Problem) -> Routing:
    """Microbatches stay at home where the home worker is live, at full speed, and has no more of them than its peers."""
    even = len(set(problem.microbatches)) == 1

    def choices(pipeline: int, slot: int) -> tuple[int, ...]:
        home = Worker(pipeline, slot)
        if even and problem.is_live(home) and home not in problem.speeds_ppm:
            return (pipeline,)
        return problem.live_pipelines(slot)

    return tuple(
        tuple(choices(k, s) for s in problem.slot_of_stage)
        for k, count in enumerate(problem.microbatches)
        for _ in range(count)
    )


def groups(routing: Routing) -> list[list[int]]:
    """Microbatch indices with the same choices at every stage, in index order."""
    by_choice: dict[tuple[tuple[int, ...], ...], list[int]] = {}
    for m, choices in enumerate(routing):
        by_choice.setdefault(choices, []).append(m)
    return list(by_choice.values())


def symmetric_peers(problem: Problem, routing: Routing) -> list[tuple[int, list[int]]]:
    """Slot and pipelines of every class of interchangeable workers with more than one member."""
    result = []
    for s, slot in enumerate(problem.slots):
        live = problem.live_pipelines(s)
        if {choices[v] for choices in routing for v in slot.stages} != {live}:
            continue
        for speed in sorted({problem.speed_ppm(Worker(k, s)) for k in live}):
            peers = [k for k in live if problem.speed_ppm(Worker(k, s)) == speed]
            if len(peers) > 1:
                result.append((s, peers))
    return result
