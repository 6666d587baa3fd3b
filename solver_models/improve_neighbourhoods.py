"""Neighbourhoods of a schedule: what is freed, and the CP-SAT model in which everything else keeps its order.

A neighbourhood frees one run of consecutive operations on each of some workers, and may free the routing of slots all
of whose workers are freed whole. All times stay variables: an order improves where its critical path does, wherever that runs.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from planner.operation import Kind, Worker
from planner.problem import Problem
from planner.schedule import Schedule
from solver_models import cp_sat_model as build
from solver_models.cp_sat_model import Key, Model
from solver_models.routing import Routing
from solver_models.ticks import Ticks


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbourhood:
    """What may change.

    Parameters
    ----------
    name
        For people, for example ``"slots 2-3"``.
    freed
        Rows of the schedule whose order is free, one run on each worker that is named.
    rerouted
        Slots whose microbatches may also change workers; all their workers are freed whole.
    """

    name: str
    freed: dict[Worker, range]
    rerouted: frozenset[int] = frozenset()

    @property
    def num_freed(self) -> int:
        """Number of freed operations."""
        return sum(len(rows) for rows in self.freed.values())

    def is_everything(self, problem: Problem) -> bool:
        """Whether nothing is fixed, so that what is proved of the neighbourhood holds of the problem."""
        return len(self.rerouted) == problem.num_slots


def choose_neighbourhood(problem: Problem, schedule: Schedule, size: int, rng: random.Random) -> Neighbourhood:
    """Draw a neighbourhood of about ``size`` operations: whole slots, whole pipelines, or a window of time."""
    total = schedule.num_operations
    if total <= size:
        return slots_neighbourhood(problem, schedule, range(problem.num_slots))
    draw = rng.random()
    width = size * problem.num_slots // total
    if draw < 0.4 and width >= 1:
        first = rng.randrange(problem.num_slots - width + 1)
        return slots_neighbourhood(problem, schedule, range(first, first + width))
    pipelines = size * problem.num_pipelines // total
    if draw < 0.6 and 1 <= pipelines < problem.num_pipelines:
        chosen = sorted(rng.sample(range(problem.num_pipelines), pipelines))
        freed = {Worker(k, s): schedule.rows(Worker(k, s)) for k in chosen for s in range(problem.num_slots)}
        return Neighbourhood(name=f"pipelines {chosen}", freed=freed)
    # A window over some slots only reaches further in time than one over all of them.
    width = rng.randint(1, problem.num_slots)
    first = rng.randrange(problem.num_slots - width + 1)
    return window_neighbourhood(problem, schedule, range(first, first + width), size, rng)


def slots_neighbourhood(problem: Problem, schedule: Schedule, slots: range) -> Neighbourhood:
    """Free every operation and the routing of whole slots."""
    freed = {Worker(k, s): schedule.rows(Worker(k, s)) for s in slots for k in problem.live_pipelines(s)}
    return Neighbourhood(name=f"slots {slots.start}-{slots.stop - 1}", freed=freed, rerouted=frozenset(slots))


def window_neighbourhood(
    problem: Problem, schedule: Schedule, slots: range, size: int, rng: random.Random
) -> Neighbourhood:
    """Free the operations of some slots that start within a window of time, about ``size`` of them."""
    workers = [Worker(k, s) for s in slots for k in problem.live_pipelines(s) if schedule.rows(Worker(k, s))]
    starts = sorted(int(schedule.start_ns[row]) for worker in workers for row in schedule.rows(worker))
    count = min(size, len(starts))
    first = rng.randrange(len(starts) - count + 1)
    begin, end = starts[first], starts[first + count - 1]
    freed = {}
    for worker in workers:
        inside = [row for row in schedule.rows(worker) if begin <= schedule.start_ns[row] <= end]
        if len(inside) > 1:
            freed[worker] = range(inside[0], inside[-1] + 1)
    return Neighbourhood(name=f"slots {slots.start}-{slots.stop - 1}, {begin}..{end} ns", freed=freed)


def neighbourhood_model(
    problem: Problem, ticks: Ticks, schedule: Schedule, near: Neighbourhood, *, lower: int, upper: int
) -> Model:
    """Model of the whole schedule with a period in ``lower..upper`` in which only the neighbourhood may change."""
    model = build.new_model(problem, ticks, _routing(problem, schedule, near), lower=lower, upper=upper)
    build.add_precedence(model)
    build.add_windows(model)
    index = {home: m for m, home in enumerate(model.microbatches)}
    for s in range(problem.num_slots):
        if s in near.rerouted:
            build.add_slot_memory(model, s)
        for k in problem.live_pipelines(s):
            worker = Worker(k, s)
            if s in near.rerouted:
                model.cp.add_no_overlap(model.intervals.get(worker, []))
                continue
            keys = [_key(schedule, row, index) for row in schedule.rows(worker)]
            rows, first = near.freed.get(worker, range(0)), schedule.rows(worker).start
            _add_segment(model, worker, keys, rows.start - first if rows else 0, rows.stop - first if rows else 0)
    return model


def _routing(problem: Problem, schedule: Schedule, near: Neighbourhood) -> Routing:
    """Everyone's worker in the schedule, or any live one in the slots that are rerouted."""
    homes = [(k, j) for k, count in enumerate(problem.microbatches) for j in range(count)]
    worker = schedule.worker_of_row() // problem.num_slots
    runs = {
        (int(schedule.pipeline[row]), int(schedule.microbatch[row]), int(schedule.stage[row])): int(worker[row])
        for row in range(schedule.num_operations)
        if schedule.kind[row] == Kind.F
    }
    return tuple(
        tuple(
            problem.live_pipelines(s) if s in near.rerouted else (runs[k, j, v],)
            for v, s in enumerate(problem.slot_of_stage)
        )
        for k, j in homes
    )


def _key(schedule: Schedule, row: int, index: dict[tuple[int, int], int]) -> Key:
    op = schedule.operation(row)
    return op.kind, index[op.pipeline, op.microbatch], op.stage


def _add_segment(model: Model, worker: Worker, keys: Sequence[Key], first: int, stop: int) -> None:
    """(11) and (13) on a worker that keeps its order except for ``keys[first:stop]``."""
    before = [key for key in keys[:first] if key in model.start]
    inside = [key for key in keys[first:stop] if key in model.start]
    after = [key for key in keys[stop:] if key in model.start]
    for fixed in (before, after):
        for one, later in pairwise(fixed):
            model.cp.add(model.end[one] <= model.start[later])
    begin: Any = model.end[before[-1]] if before else 0
    end: Any = model.start[after[0]] if after else model.latest
    if before and after:
        model.cp.add(begin <= end)
    for key in inside:
        model.cp.add(model.start[key] >= begin)
        model.cp.add(model.end[key] <= end)
    if inside:
        units = [model.duration(kind, stage, worker.pipeline) for kind, _, stage in inside]
        model.cp.add_no_overlap(
            model.cp.new_fixed_size_interval_var(model.start[key], size, "")
            for key, size in zip(inside, units, strict=True)
        )
        _add_segment_memory(model, worker, (begin, end), set(before), set(inside))


def _add_segment_memory(
    model: Model, worker: Worker, span: tuple[Any, Any], before: set[Key], inside: set[Key]
) -> None:
    """(13) within a freed run: what others hold throughout is taken off the capacity, what changes has an interval."""
    problem = model.problem
    capacity = problem.slots[worker.slot].capacity_bytes
    if capacity is None:
        return
    intervals: list[Any] = []
    demands: list[int] = []
    forwards = [(m, v) for kind, m, v in before | inside if kind is Kind.F]
    for m, v in sorted(forwards):
        for start, end, held in model.holds(m, v):
            if not held or end in before:
                continue
            starts_inside = start in inside
            if not starts_inside and start not in before:
                continue
            if not starts_inside and end not in inside:
                capacity -= held
                continue
            # Held from the start of F, or from the end of I; outside the run from its beginning, or to its end.
            begin_at = (model.start if start[0] is Kind.F else model.end)[start] if starts_inside else span[0]
            end_at = model.end[end] if end in inside else span[1]
            size = model.cp.new_int_var(0, model.latest, "")
            intervals.append(model.cp.new_interval_var(begin_at, size, end_at, ""))
            demands.append(held)
    if sum(demands) > capacity:
        model.cp.add_cumulative(intervals, demands, capacity)
