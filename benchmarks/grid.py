"""The failure grid: 128 problems that span sizes, failures, memory, stage shapes and transfer times.

Two draws of 64. In each every attribute takes its values equally often, in an order drawn once with a fixed seed, so that no
two attributes move together. Failed workers are drawn at random; a draw that would leave a slot without a live worker is
repeated.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from planner.operation import Worker
from planner.problem import Problem, Slot, Stage

_T = TypeVar("_T")

GRID_SEEDS = (20240917, 20241104)
"""Seed of each draw; the first draw's 64 problems came first, and stay as they are."""

PROBLEMS_PER_DRAW = 64

PIPELINES = (2, 3, 4, 6, 8, 12, 16)
SLOTS = (2, 3, 4, 6, 8, 12, 16)
MICROBATCHES_PER_SLOT = (0.5, 1.0, 2.0, 3.0, 4.0)
FAILURES = (0, 1, 2, 3, 4)
MEMORY = (1.0, 1.25, 1.5, 2.0)
UNEVEN = (False, True)
TRANSFER_SHARE = (0.0, 0.05)

FORWARD_NS, INPUT_GRAD_NS, WEIGHT_GRAD_NS = 10_000, 9_800, 6_600
ACTIVATION_BYTES, WEIGHT_GRAD_BYTES = 1_000, 440


@dataclass(frozen=True, slots=True, kw_only=True)
class GridProblem:
    """One problem of the grid and the attributes it was made from."""

    index: int
    num_failures: int
    memory: float
    uneven: bool
    transfer_share: float
    problem: Problem

    @property
    def name(self) -> str:
        """Short name such as ``g07-D4-P8-M16-f2-mem1.25-uneven-comm5``."""
        p = self.problem
        return (
            f"g{self.index:02d}-D{p.num_pipelines}-P{p.num_slots}-M{p.microbatches[0]}-f{self.num_failures}"
            f"-mem{self.memory:g}-{'uneven' if self.uneven else 'equal'}-comm{self.transfer_share * 100:g}"
        )


def grid() -> Iterator[GridProblem]:
    """Yield the 128 problems, always the same."""
    for number, seed in enumerate(GRID_SEEDS):
        yield from _drawn(random.Random(seed), number * PROBLEMS_PER_DRAW)


def _drawn(draw: random.Random, first: int) -> Iterator[GridProblem]:
    """One draw's problems, numbered from ``first``."""

    def deal(values: tuple[_T, ...]) -> list[_T]:
        column = [values[i % len(values)] for i in range(PROBLEMS_PER_DRAW)]
        draw.shuffle(column)
        return column

    columns = zip(
        deal(PIPELINES),
        deal(SLOTS),
        deal(MICROBATCHES_PER_SLOT),
        deal(FAILURES),
        deal(MEMORY),
        deal(UNEVEN),
        deal(TRANSFER_SHARE),
        strict=True,
    )
    for index, (pipelines, slots, per_slot, wanted, memory, uneven, share) in enumerate(columns, start=first):
        # A slot must keep a live worker, so the smallest problems take fewer failures.
        failures = min(wanted, slots * (pipelines - 1))
        scales = [draw.choice((0.8, 0.9, 1.0, 1.1, 1.2)) if uneven else 1.0 for _ in range(slots)]
        stages = tuple(_stage(scale, share) for scale in scales)
        yield GridProblem(
            index=index,
            num_failures=failures,
            memory=memory,
            uneven=uneven,
            transfer_share=share,
            problem=Problem(
                stages=stages,
                # As many microbatches as 1F1B has in flight on the first slot, times the factor, on every slot.
                slots=tuple(
                    Slot(stages=(s,), capacity_bytes=int(memory * slots * stages[s].activation_bytes))
                    for s in range(slots)
                ),
                microbatches=(max(1, round(per_slot * slots)),) * pipelines,
                dead=_draw_dead(draw, pipelines, slots, failures),
            ),
        )


def _stage(scale: float, transfer_share: float) -> Stage:
    return Stage(
        forward_ns=round(FORWARD_NS * scale),
        input_grad_ns=round(INPUT_GRAD_NS * scale),
        weight_grad_ns=round(WEIGHT_GRAD_NS * scale),
        transfer_ns=round(FORWARD_NS * transfer_share),
        activation_bytes=round(ACTIVATION_BYTES * scale),
        weight_grad_bytes=round(WEIGHT_GRAD_BYTES * scale),
    )


def _draw_dead(draw: random.Random, pipelines: int, slots: int, failures: int) -> frozenset[Worker]:
    everyone = [Worker(k, s) for k in range(pipelines) for s in range(slots)]
    while True:
        dead = frozenset(draw.sample(everyone, failures))
        if all(sum(worker.slot == s for worker in dead) < pipelines for s in range(slots)):
            return dead
