"""Which real worker plays which canonical one: fewest moves first, then nearest racks."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from planner.assignment import best_pairs
from planner.operation import Kind, Worker
from planner.problem import FULL_SPEED_PPM, Problem
from planner.schedule import Schedule

IntArray: TypeAlias = npt.NDArray[np.int64]

_DEAD = 0


def reroutes_of(schedule: Schedule) -> IntArray:
    """Rerouted microbatches of a schedule, rows ``(home, slot, helper, count)``."""
    worker = schedule.worker_of_row()
    helper, slot = worker // schedule.num_slots, worker % schedule.num_slots
    moved = (schedule.kind == Kind.F) & (schedule.pipeline != helper)
    triples = np.stack([schedule.pipeline[moved], slot[moved], helper[moved]], axis=1)
    rows, counts = np.unique(triples, axis=0, return_counts=True)
    return np.column_stack([rows, counts]).astype(np.int64)


def assumed_reroutes(canonical: Problem) -> IntArray:
    """Reroutes, rows as above, if every microbatch of a dead worker goes to another one of the next live peers."""
    rows = []
    for worker in sorted(canonical.dead):
        pipelines = range(worker.pipeline + 1, worker.pipeline + canonical.num_pipelines)
        peers = (Worker(k % canonical.num_pipelines, worker.slot) for k in pipelines)
        helpers = [peer.pipeline for peer in peers if canonical.is_live(peer)]
        for helper in helpers[: canonical.microbatches[worker.pipeline]]:
            rows.append((worker.pipeline, worker.slot, helper, 1))
    return np.array(rows, dtype=np.int64).reshape(-1, 4)


def _statuses(problem: Problem) -> IntArray:
    """Speed of each worker in ppm, shape ``(D, P)``; 0 where it is dead."""
    statuses = np.full((problem.num_pipelines, problem.num_slots), FULL_SPEED_PPM, dtype=np.int64)
    for worker in problem.dead:
        statuses[worker.pipeline, worker.slot] = _DEAD
    for worker, speed in problem.speeds_ppm.items():
        statuses[worker.pipeline, worker.slot] = speed
    return statuses


def match_workers(
    problem: Problem, canonical: Problem, rack_of_worker: IntArray | None, reroutes: IntArray
) -> tuple[IntArray, IntArray]:
    """Match the workers of a canonical problem with the real problem's.

    Parameters
    ----------
    problem, canonical
        The real problem, and the canonical one of its failure key.
    rack_of_worker
        Shape ``(D, P)``, or ``None`` where racks do not matter.
    reroutes
        Shape ``(T, 4)``: the canonical problem's rerouted microbatches, rows ``(home, slot, helper, count)``.

    Returns
    -------
    home, played_by
        As in :class:`planner.normalization.Relabelling`.
    """
    matcher = _Matcher(problem, canonical, rack_of_worker)
    matcher.match_failures()
    if rack_of_worker is not None:
        matcher.match_helpers(reroutes)
    matcher.match_rest()
    return matcher.home, matcher.swap_slots()


class _Matcher:
    """Builds ``home`` step by step: who is placed, who is free, and how far apart real workers are."""

    def __init__(self, problem: Problem, canonical: Problem, rack_of_worker: IntArray | None) -> None:
        self.wanted = _statuses(canonical)
        self.found = _statuses(problem)
        self.racks = rack_of_worker
        self.num_microbatches = np.array(problem.microbatches, dtype=np.int64)
        self.home: IntArray = np.full(problem.num_pipelines, -1, dtype=np.int64)
        self.free = np.ones(problem.num_pipelines, dtype=bool)
        self.neighbours = _neighbour_slots(problem)

    def place(self, canonical: int, real: int) -> None:
        assert self.free[real] and self.home[canonical] < 0
        assert self.num_microbatches[canonical] == self.num_microbatches[real]
        self.home[canonical] = real
        self.free[real] = False

    def match_failures(self) -> None:
        """Pair canonical pipelines with failures and real ones so that the fewest live workers leave their home.

        A live worker is moved for every slot where the canonical worker is live and the real one of its home differs
        from it. What a pair saves over pairing both with healthy pipelines is never negative, so the
        assignment with the largest saving is also the one with the fewest moves.
        """
        unhealthy = np.any(self.wanted != FULL_SPEED_PPM, axis=1), np.any(self.found != FULL_SPEED_PPM, axis=1)
        for count in np.unique(self.num_microbatches):
            canonical, real = (np.flatnonzero(rows & (self.num_microbatches == count)) for rows in unhealthy)
            if not (canonical.size and real.size):
                continue
            wanted, found = self.wanted[canonical, None, :], self.found[None, real, :]
            live = wanted != _DEAD
            saved = (
                (live & (wanted != FULL_SPEED_PPM)).sum(axis=2)
                + (found != FULL_SPEED_PPM).sum(axis=2)
                - (live & (wanted != found)).sum(axis=2)
            )
            # Among equal savings a pipeline keeps its own number.
            for row, column in best_pairs(saved * (len(canonical) + 1) + (canonical[:, None] == real[None, :])):
                if saved[row, column]:
                    self.place(int(canonical[row]), int(real[column]))

    def match_helpers(self, reroutes: IntArray) -> None:
        """Place pipelines that exchange rerouted microbatches with others near them, most microbatches first."""
        traffic = np.zeros_like(self.home)
        np.add.at(traffic, reroutes[:, 0], reroutes[:, 3])
        np.add.at(traffic, reroutes[:, 2], reroutes[:, 3])
        unhealthy = np.any(self.wanted != FULL_SPEED_PPM, axis=1)
        by_pipeline = _rows_by_pipeline(reroutes)
        for canonical in np.lexsort((np.arange(len(traffic)), -traffic, ~unhealthy)):
            if self.home[canonical] >= 0 or not traffic[canonical]:
                continue
            cost = np.zeros_like(self.home)
            for home, slot, helper, count in reroutes[by_pipeline[int(canonical)]]:
                partner = self.home[helper if home == canonical else home]
                if partner >= 0:
                    cost += count * self.distance(int(partner), int(slot))
            for slot in np.flatnonzero(self.wanted[canonical] == _DEAD):
                # Its home will lend a worker of this slot to a pipeline that lost one its part needs.
                for partner in self.short_of(int(slot)):
                    cost += self.num_microbatches[canonical] * self.distance(partner, int(slot))
            allowed = np.flatnonzero(self.free & (self.num_microbatches == self.num_microbatches[canonical]))
            order = np.lexsort((np.abs(allowed - canonical), cost[allowed]))
            self.place(int(canonical), int(allowed[order[0]]))

    def match_rest(self) -> None:
        """Give every other pipeline its own number where that is free, and else the lowest free one."""
        for canonical in np.flatnonzero(self.home < 0):
            if self.free[canonical]:
                self.place(int(canonical), int(canonical))
        for count in np.unique(self.num_microbatches):
            same = self.num_microbatches == count
            pairs = zip(np.flatnonzero((self.home < 0) & same), np.flatnonzero(self.free & same), strict=True)
            for canonical, real in list(pairs):
                self.place(int(canonical), int(real))

    def swap_slots(self) -> IntArray:
        """``played_by``: everyone at home, except where canonical and real status differ; those swap, nearest first."""
        played_by = np.tile(self.home, (self.wanted.shape[1], 1))
        wrong = self.wanted != self.found[self.home]
        for slot in np.flatnonzero(wrong.any(axis=0)):
            canonical = np.flatnonzero(wrong[:, slot])
            pool = self.home[canonical]
            for part in canonical:
                able = pool[self.found[pool, slot] == self.wanted[part, slot]]
                cost = self.distance(int(self.home[part]), int(slot))[able]
                chosen = able[np.lexsort((able, cost))[0]]
                played_by[slot, part] = chosen
                pool = pool[pool != chosen]
        return played_by

    def short_of(self, slot: int) -> list[int]:
        """Placed real pipelines whose worker of ``slot`` is dead though its part is not."""
        placed = np.flatnonzero(self.home >= 0)
        real = self.home[placed]
        short = (self.found[real, slot] == _DEAD) & (self.wanted[placed, slot] != _DEAD)
        return [int(k) for k in real[short]]

    def distance(self, pipeline: int, slot: int) -> IntArray:
        """How far each pipeline's worker of ``slot`` is from the work of ``pipeline``'s, shape ``(D,)``.

        Counted first: neighbouring slots of ``pipeline`` in another rack than the worker, with which every message
        crosses racks. Then: how many racks it is from the worker it stands in for.
        """
        if self.racks is None:
            return np.zeros_like(self.home)
        here = self.racks[:, slot]
        crossings = sum((here != self.racks[pipeline, t]).astype(np.int64) for t in self.neighbours[slot])
        span = int(self.racks.max() - self.racks.min()) + 1
        away: IntArray = crossings * span + np.abs(here - self.racks[pipeline, slot])
        return away


def _neighbour_slots(problem: Problem) -> list[tuple[int, ...]]:
    """For each slot the other slots that hold a stage before or after one of its own."""
    near: list[set[int]] = [set() for _ in problem.slots]
    for a, b in zip(problem.slot_of_stage, problem.slot_of_stage[1:], strict=False):
        if a != b:
            near[a].add(b)
            near[b].add(a)
    return [tuple(sorted(slots)) for slots in near]


def _rows_by_pipeline(reroutes: IntArray) -> dict[int, list[int]]:
    """Indices of the reroutes in which a canonical pipeline is home or helper."""
    rows: dict[int, list[int]] = {}
    for index, (home, _, helper, _) in enumerate(reroutes):
        rows.setdefault(int(home), []).append(index)
        rows.setdefault(int(helper), []).append(index)
    return rows
