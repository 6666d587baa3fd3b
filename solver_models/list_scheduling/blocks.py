"""Building blocks: where each operation of one microbatch stands, repeated for all of them (docs/decisions/building-blocks.md).

If microbatch ``m`` does everything ``m`` periods after the first one, no worker ever waits in the middle of an iteration,
provided that what it does for one microbatch fits into a period without overlap. Which stages a worker holds decides how fast
F and I should travel: going down a V they take a step ``a`` from slot to slot, going up ``k T - a``, so that every slot sees the
same pattern, shifted (after the V schedules of Qi et al. 2024). What a block says of memory is its lifespan: ``L / T``
microbatches are between F and I at once.

A block is a vector, with ``C`` chunks, the most stages that a slot holds; times are in periods:

* ``C`` steps of F from slot to slot, ``C`` of I;
* ``2 C - 1`` steps from chunk to chunk: of F, from the last F to the first I, of I;
* ``C`` paces: at the beginning, where there is nothing to return yet, F follow each other in so many periods;
* ``C`` leads: by how many microbatches more than are in flight at once that beginning lasts;
* the share of a W that a gap must hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from planner.problem import Problem
from planner.schedule import IntColumn

Block: TypeAlias = npt.NDArray[np.float64]
"""Shape ``(6 C,)``."""

_LEAST_PACE, _MOST_SHARE = 0.05, 1.2
_REGULAR_SHARE = 0.8
"""Share of draws that have the same pattern in every slot."""
_DRAWN_SHARE = 0.35
"""Share of trials that are drawn; the others vary the best so far."""
_PARENTS = 6


class Frame:
    """What blocks know of a problem: one sound pipeline of it.

    Parameters
    ----------
    problem
        The instance.
    """

    def __init__(self, problem: Problem) -> None:
        stages, slot_of = problem.stages, np.array(problem.slot_of_stage, dtype=np.int64)
        self.chunk = np.array([problem.slots[s].stages.index(v) for v, s in enumerate(slot_of)], dtype=np.int64)
        self.chunks = int(self.chunk.max()) + 1
        self.forward = np.array([stage.forward_ns for stage in stages], dtype=np.float64)
        weight = np.array([stage.weight_grad_ns for stage in stages], dtype=np.float64)
        split = np.array([stage.splittable for stage in stages])
        self.input_grad = np.array([stage.input_grad_ns for stage in stages], dtype=np.float64)
        work = np.bincount(slot_of, weights=self.forward + self.input_grad + weight)
        self.input_grad += np.where(split, 0.0, weight)
        self.period = max(1.0, float(work.max()))
        crosses = slot_of[1:] != slot_of[:-1]
        self.transfer = np.array([stage.transfer_ns for stage in stages[:-1]], dtype=np.float64) * crosses
        same = self.chunk[1:] == self.chunk[:-1]
        way = np.bincount(self.chunk[1:][same], weights=(slot_of[1:] - slot_of[:-1])[same], minlength=self.chunks)
        self.rising = way >= 0
        """Shape ``(C,)``: whether the slots of a chunk follow each other in ascending order."""

    def starts(self, block: Block, microbatches: tuple[int, ...]) -> IntColumn:
        """Starts of all network nodes as a block has them.

        Parameters
        ----------
        block
            The vector.
        microbatches
            Of each pipeline. One with fewer than the largest takes every so manieth.

        Returns
        -------
        array of int64, shape ``(3 * V * sum(M),)``
        """
        period, chunk, last = self.period, self.chunk, len(self.chunk) - 1
        steps, turns, pace, lead, _ = self.parts(block)
        forward, input_grad = np.zeros(last + 1), np.zeros(last + 1)
        for v in range(1, last + 1):
            same = chunk[v] == chunk[v - 1]
            step = steps[0, chunk[v]] if same else turns[min(chunk[v - 1], chunk[v])]
            forward[v] = forward[v - 1] + max(self.forward[v - 1] + self.transfer[v - 1], step * period)
        input_grad[last] = forward[last] + max(self.forward[last], turns[self.chunks - 1] * period)
        for v in range(last - 1, -1, -1):
            same = chunk[v] == chunk[v + 1]
            step = steps[1, chunk[v]] if same else turns[self.chunks + min(chunk[v], chunk[v + 1])]
            input_grad[v] = input_grad[v + 1] + max(self.input_grad[v + 1] + self.transfer[v], step * period)
        in_flight = (input_grad + self.input_grad - forward) / period
        early = np.minimum.accumulate(np.floor(in_flight + lead[chunk]))
        largest = max(microbatches)
        number = np.concatenate([np.arange(count) * largest // count for count in microbatches if count])[:, None]
        begin = number * period
        starts = np.empty((len(number), last + 1, 3), dtype=np.int64)
        starts[:, :, 0] = forward + begin * np.where(number < early, pace[chunk], 1.0)
        starts[:, :, 1] = input_grad + begin
        starts[:, :, 2] = starts[:, :, 1] + self.input_grad.astype(np.int64)
        return starts.reshape(-1)

    def parts(self, block: Block) -> tuple[Block, Block, Block, Block, float]:
        """Steps of shape ``(2, C)``, turns, paces, leads and the share of a W that a gap must hold."""
        c = self.chunks
        steps, turns, pace, lead = np.split(block[:-1], [2 * c, 4 * c - 1, 5 * c - 1])
        return steps.reshape(2, c), turns, pace, lead, float(block[-1])

    def draw(self, random: np.random.Generator) -> Block:
        """Draw a block."""
        c = self.chunks
        least = (
            (self.forward.mean() + self.transfer.mean()) / self.period,
            (self.input_grad.mean() + self.transfer.mean()) / self.period,
        )
        if random.random() < _REGULAR_SHARE:
            laps = random.choice([1, 1, 1, 2], 2)
            down = random.uniform(least[0], max(least[0], laps[0] - least[0]))
            steps = np.stack([np.where(self.rising, down, laps[0] - down), np.where(self.rising, laps[1] - down, down)])
        else:
            steps = random.uniform(0.8, random.choice([1.5, 2.5, 4.0]), (2, c)) * np.array(least)[:, None]
        turns = random.uniform(0, 1, 2 * c - 1) ** 2
        # With half a period to each the first F travel at twice the rate: the other half of a worker's time has no use yet.
        pace = random.uniform(0.4, 0.6, c) if random.random() < 0.5 else random.uniform(0.2, 1.0, c)
        lead = np.full(c, random.choice([-2.0, -1.0, 0.0, 0.0, 1.0]))
        return np.concatenate([steps.reshape(-1), turns, pace, lead, [random.uniform(0.2, 1.0)]])

    def vary(self, block: Block, random: np.random.Generator) -> Block:
        """Change one to three numbers of a block a little, or two steps against each other."""
        c, varied = self.chunks, block.copy()
        for _ in range(random.integers(1, 4)):
            j = random.integers(7 * c)
            fine = random.normal() * 0.1 * random.choice([1.0, 0.3, 0.1])
            if j >= 6 * c:
                row, one = c * random.integers(2), j - 6 * c
                varied[row + one] += fine
                varied[row + (one + 1) % c] -= fine
            elif j == 6 * c - 1:
                varied[j] = np.clip(varied[j] + random.normal() * 0.2, 0.0, _MOST_SHARE)
            elif j >= 5 * c - 1:
                varied[j] += random.normal()
            elif j >= 4 * c - 1:
                varied[j] = np.clip(varied[j] + random.normal() * 0.2, _LEAST_PACE, 1.0)
            else:
                varied[j] += fine
        return varied


def search_blocks(
    frame: Frame, window_of: Callable[[Block], int | None], trials: int, random: np.random.Generator
) -> Iterator[Block | None]:
    """Draw blocks, then vary the best of them.

    Parameters
    ----------
    frame
        Of the problem.
    window_of
        Largest window of the schedule that a block makes, in nanoseconds; ``None`` where it makes none.
    trials
        Blocks to try.
    random
        Draws them.

    Yields
    ------
    array or None
        Each block that is better than all before it; ``None`` for each other trial.
    """
    best: list[tuple[int, Block]] = []
    for trial in range(trials):
        if trial < _DRAWN_SHARE * trials or not best:
            block = frame.draw(random)
        else:
            block = frame.vary(best[random.integers(len(best))][1], random)
        window = window_of(block)
        better = window is not None and (not best or window < best[0][0])
        if window is not None and all(window != known for known, _ in best):
            best.append((window, block))
            best.sort(key=lambda pair: pair[0])
            del best[_PARENTS:]
        yield block if better else None
