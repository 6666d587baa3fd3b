"""Suites made by rule: growth, placements, unequal speeds, and problems small enough for an integer program."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product

from benchmarks.instance import Instance
from planner.job import Placement, place_stages
from planner.operation import Worker
from planner.problem import Problem, Slot, Stage

GROWTH_PIPELINES = (2, 4, 13, 41, 130, 412, 1302, 4117, 13021)
"""Pipelines of 16 slots x 16 microbatches: 1,536 to 10,000,128 operations."""

PLACEMENT_SEED = 20250113
SPEED_SEED = 20250127

LOST_GPU_PPM = 875_000
"""A tensor-parallel group of eight that lost a GPU."""

STRAGGLER_PPM = 700_000
"""A straggler at 0.7 of a healthy worker's speed, as in the literature on slow nodes."""

_SCALES = (0.8, 0.9, 1.0, 1.1, 1.2)


def growth() -> Iterator[Instance]:
    """Equal pipelines and one failed worker in the sixth slot, in ever larger numbers."""
    stage = Stage(
        forward_ns=1000,
        input_grad_ns=1000,
        weight_grad_ns=900,
        transfer_ns=30,
        activation_bytes=10,
        weight_grad_bytes=6,
    )
    for pipelines in GROWTH_PIPELINES:
        yield Instance(
            name=f"D{pipelines}-P16-M16",
            problem=Problem(
                stages=(stage,) * 16,
                slots=tuple(Slot(stages=(s,), sync_ns=500, capacity_bytes=240) for s in range(16)),
                microbatches=(16,) * pipelines,
                dead=frozenset({Worker(0, 5)}),
            ),
        )


def placements() -> Iterator[Instance]:
    """Two stages a slot, placed as a V and as a loop: sizes, memory of 1F1B and 1.5 times it, and failures."""
    draw = random.Random(PLACEMENT_SEED)
    for placement, (pipelines, slots), memory, failures in product(
        (Placement.V, Placement.LOOP), ((1, 8), (3, 4), (4, 8)), (1.0, 1.5), (0, 1, 2)
    ):
        if failures >= pipelines:
            continue
        held = place_stages(placement, slots, 2 * slots)
        stage = _stage(0.5, transfer_ns=300)
        # 1F1B's memory: as many microbatches as slots, through both stages of a slot.
        capacity = int(memory * slots * 2 * stage.activation_bytes)
        yield Instance(
            name=f"{placement}-D{pipelines}-P{slots}-f{failures}-mem{memory:g}",
            problem=Problem(
                stages=(stage,) * (2 * slots),
                slots=tuple(Slot(stages=stages, capacity_bytes=capacity) for stages in held),
                microbatches=(2 * slots,) * pipelines,
                dead=frozenset(_some_workers(draw, pipelines, slots, failures)),
            ),
        )


def speeds() -> Iterator[Instance]:
    """Workers at 7/8 and at 0.7 of full speed, also beside a dead one, with equal and uneven stages."""
    draw = random.Random(SPEED_SEED)
    cases = {"lost-gpu": (LOST_GPU_PPM,), "straggler": (STRAGGLER_PPM,), "both": (LOST_GPU_PPM, STRAGGLER_PPM)}
    for (pipelines, slots), (name, slow), failures, uneven in product(
        ((4, 4), (8, 8)), cases.items(), (0, 1), (False, True)
    ):
        chosen = _some_workers(draw, pipelines, slots, len(slow) + failures)
        scales = [draw.choice(_SCALES) if uneven else 1.0 for _ in range(slots)]
        stages = tuple(_stage(scale, transfer_ns=500) for scale in scales)
        yield Instance(
            name=f"{name}-D{pipelines}-P{slots}-f{failures}-{'uneven' if uneven else 'equal'}",
            problem=Problem(
                stages=stages,
                slots=tuple(
                    Slot(stages=(s,), capacity_bytes=int(1.25 * slots * stages[s].activation_bytes))
                    for s in range(slots)
                ),
                microbatches=(2 * slots,) * pipelines,
                dead=frozenset(chosen[len(slow) :]),
                speeds_ppm=dict(zip(chosen, slow, strict=False)),
            ),
        )


def small() -> Iterator[Instance]:
    """Few enough operations for an integer program: the paper's costs of 1, 1, 1, memory of 1F1B and none."""
    stage = Stage(
        forward_ns=1000, input_grad_ns=1000, weight_grad_ns=1000, transfer_ns=0, activation_bytes=2, weight_grad_bytes=1
    )
    for (pipelines, slots, count), tight, failed in product(
        ((2, 2, 2), (2, 2, 4), (2, 3, 3), (3, 2, 3), (2, 4, 4), (3, 3, 3)), (False, True), (0, 1)
    ):
        capacity = 2 * slots if tight else None
        yield Instance(
            name=f"D{pipelines}-P{slots}-M{count}-f{failed}-{'1f1b' if tight else 'free'}",
            problem=Problem(
                stages=(stage,) * slots,
                slots=tuple(Slot(stages=(s,), capacity_bytes=capacity) for s in range(slots)),
                microbatches=(count,) * pipelines,
                dead=frozenset({Worker(0, slots // 2)} if failed else ()),
            ),
        )


def _stage(scale: float, transfer_ns: int) -> Stage:
    """The failure grid's stage, scaled."""
    return Stage(
        forward_ns=round(10_000 * scale),
        input_grad_ns=round(9_800 * scale),
        weight_grad_ns=round(6_600 * scale),
        transfer_ns=transfer_ns,
        activation_bytes=round(1_000 * scale),
        weight_grad_bytes=round(440 * scale),
    )


def _some_workers(draw: random.Random, pipelines: int, slots: int, number: int) -> tuple[Worker, ...]:
    """Distinct workers of which no slot has all."""
    everyone = [Worker(k, s) for k in range(pipelines) for s in range(slots)]
    while True:
        chosen = tuple(draw.sample(everyone, number))
        if all(sum(worker.slot == s for worker in chosen) < pipelines for s in range(slots)):
            return chosen
