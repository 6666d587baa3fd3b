"""Small problems that tests share: one whose costs are all alike, and random ones tiny enough for exhaustive search."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace

from planner.operation import Worker
from planner.problem import Optimizer, Problem, Slot, Stage


def unit_problem(
    pipelines: int,
    slots: int,
    microbatches: int,
    *,
    dead: Iterable[tuple[int, int]] = (),
    capacity: int | None = None,
    optimizer: Optimizer = Optimizer.STAGGERED,
) -> Problem:
    """Problem whose F, I and W all take 1 us; a microbatch holds 1 byte, all of it up to its W."""
    stage = Stage(forward_ns=1000, input_grad_ns=1000, weight_grad_ns=1000, activation_bytes=1, weight_grad_bytes=1)
    return Problem(
        stages=(stage,) * slots,
        slots=tuple(Slot(stages=(s,), capacity_bytes=capacity) for s in range(slots)),
        microbatches=(microbatches,) * pipelines,
        optimizer=optimizer,
        dead=frozenset(Worker(k, s) for k, s in dead),
    )


def tight_problem(
    pipelines: int, slots: int, microbatches: int, *, dead: Iterable[Worker] = (), capacity: int | None = 40
) -> Problem:
    """Problem whose F, I and W take 10, 11 and 9 ns, with transfers and sync; a microbatch holds 10 bytes, its W 9 of them."""
    stage = Stage(
        forward_ns=10, input_grad_ns=11, weight_grad_ns=9, transfer_ns=1, activation_bytes=10, weight_grad_bytes=9
    )
    return Problem(
        stages=(stage,) * slots,
        slots=tuple(Slot(stages=(s,), sync_ns=3, capacity_bytes=capacity) for s in range(slots)),
        microbatches=(microbatches,) * pipelines,
        dead=frozenset(dead),
    )


def tiny_problem(rng: random.Random) -> Problem:
    """Draw a plannable problem of at most about 40 operations, with costs of 0 to 3 ns.

    Some put several stages in a slot (loop, V or uneven placement). Dead and degraded workers, uneven homes, fused stages,
    tight and no memory, transfers, sync and both optimizers all occur.
    """
    num_slots = rng.choice((1, 2, 2, 2, 3))
    num_pipelines = rng.choice((1, 1, 2, 2, 3)) if num_slots < 3 else rng.choice((1, 1, 2))
    placement = [(s,) for s in range(num_slots)]
    if num_slots < 3 and rng.random() < 0.3:
        placement = rng.choice(
            ([(0, 2), (1,)], [(0, 2), (1, 3)], [(0, 3), (1, 2)], [(0,), (1, 2)], [(0, 1)], [(0, 1, 2)])
        )
    num_stages = sum(map(len, placement))
    most = max(1, 40 // (3 * num_stages))
    total = rng.randint(1, min(most, 6))
    homes = [rng.randrange(num_pipelines) for _ in range(total)]
    uniform = rng.random() < 0.4
    costs = [(1, 1, 1)] * num_stages if uniform else [_costs(rng) for _ in range(num_stages)]
    transfer = rng.choice((0, 0, 1, 2))
    memory = rng.choice(((2, 1), (1, 1), (1, 0), (3, 2), (3, 1), (0, 0)))
    stages = tuple(
        Stage(
            forward_ns=f,
            input_grad_ns=i,
            weight_grad_ns=w,
            transfer_ns=transfer if rng.random() < 0.8 else rng.randint(0, 2),
            activation_bytes=memory[0],
            weight_grad_bytes=memory[1],
            splittable=rng.random() < 0.85,
        )
        for f, i, w in costs
    )
    slots = tuple(
        Slot(
            stages=held,
            sync_ns=rng.choice((0, 0, 1, 2)),
            capacity_bytes=_capacity(rng, memory[0] * len(held), memory[1]),
        )
        for held in placement
    )
    workers = [Worker(k, s) for k in range(num_pipelines) for s in range(len(slots))]
    dead = {w for w in workers if num_pipelines > 1 and rng.random() < 0.25}
    for s in range(len(slots)):
        if all(Worker(k, s) in dead for k in range(num_pipelines)):
            dead.discard(Worker(rng.randrange(num_pipelines), s))
    speeds = {w: rng.choice((400_000, 500_000, 700_000)) for w in workers if w not in dead and rng.random() < 0.12}
    return Problem(
        stages=stages,
        slots=slots,
        microbatches=tuple(homes.count(k) for k in range(num_pipelines)),
        optimizer=rng.choice((Optimizer.STAGGERED, Optimizer.STAGGERED, Optimizer.GLOBAL)),
        dead=frozenset(dead),
        speeds_ppm=speeds,
    )


def worn_problem(rng: random.Random) -> Problem:
    """Draw a problem of several pipelines with dead workers: about 45 operations, more than exhaustive search bears."""
    placement = rng.choice(
        ([(0,), (1,)],) * 4 + ([(0,), (1,), (2,)],) * 4 + ([(0, 2), (1,)], [(0, 2), (1, 3)], [(0, 3), (1, 2)])
    )
    num_stages, num_slots = sum(map(len, placement)), len(placement)
    num_pipelines = rng.randint(2, 4 if num_stages == 2 else 3)
    total = rng.randint(num_pipelines, max(num_pipelines, 15 // num_stages))
    everywhere = _costs(rng) if rng.random() < 0.5 else None
    memory, transfer = rng.choice(((2, 1), (1, 1), (1, 0), (3, 1), (3, 2))), rng.choice((0, 0, 1))
    stages = tuple(
        Stage(
            forward_ns=f,
            input_grad_ns=i,
            weight_grad_ns=w,
            transfer_ns=transfer,
            activation_bytes=memory[0],
            weight_grad_bytes=memory[1],
            splittable=rng.random() < 0.9,
        )
        for f, i, w in (everywhere or _costs(rng) for _ in range(num_stages))
    )
    slots = tuple(
        Slot(
            stages=held,
            sync_ns=rng.choice((0, 0, 1)),
            capacity_bytes=_capacity(rng, memory[0] * len(held), memory[1]),
        )
        for held in placement
    )
    workers = [Worker(k, s) for k in range(num_pipelines) for s in range(num_slots)]
    dead = set(rng.sample(workers, rng.randint(1, 3)))
    for s in range(num_slots):
        if all(Worker(k, s) in dead for k in range(num_pipelines)):
            dead.discard(Worker(rng.randrange(num_pipelines), s))
    return Problem(
        stages=stages,
        slots=slots,
        microbatches=tuple(total // num_pipelines + (k < total % num_pipelines) for k in range(num_pipelines)),
        optimizer=rng.choice((Optimizer.STAGGERED,) * 4 + (Optimizer.GLOBAL,)),
        dead=frozenset(dead),
        speeds_ppm={w: 700_000 for w in workers if w not in dead and rng.random() < 0.05},
    )


def tiny_problem_without_length(rng: random.Random) -> Problem:
    """Draw a problem half of whose costs are 0 and whose slots hold little more than one microbatch.

    There the order of operations that start together decides whether memory holds.
    """
    problem = tiny_problem(rng)
    bytes_held = [rng.choice(((2, 1), (1, 1), (1, 0), (3, 2), (3, 1), (3, 3))) for _ in problem.stages]
    stages = tuple(
        replace(
            stage,
            forward_ns=rng.choice((0, stage.forward_ns)),
            input_grad_ns=rng.choice((0, stage.input_grad_ns)),
            weight_grad_ns=rng.choice((0, stage.weight_grad_ns)),
            activation_bytes=activation,
            weight_grad_bytes=kept,
        )
        for stage, (activation, kept) in zip(problem.stages, bytes_held, strict=True)
    )
    slots = tuple(
        replace(slot, capacity_bytes=sum(bytes_held[v][0] for v in slot.stages) + rng.choice((0, 0, 1, 2, 3)))
        for slot in problem.slots
    )
    return replace(problem, stages=stages, slots=slots)


def _costs(rng: random.Random) -> tuple[int, int, int]:
    f, i, w = rng.randint(0, 3), rng.randint(0, 3), rng.randint(0, 3)
    return (f, i, w) if f + i + w else (1, 1, 1)


def _capacity(rng: random.Random, least: int, extra: int) -> int | None:
    return None if rng.random() < 0.2 else least + rng.randint(0, 3) * max(1, extra) + rng.choice((0, 0, least))
