"""Mending the fault-free schedule cell by cell."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from planner.bounds import best_bound
from planner.operation import Worker
from planner.problem import Optimizer, Problem
from planner.replay import replay
from planner.schedule import Schedule
from planner.validation import require_valid
from solver_models.cells import find_cells
from solver_models.clock import Deadline, WorkClock
from solver_models.list_scheduling.routing import balanced_routing
from solver_models.list_scheduling.search import ListRun, ListSearch
from solver_models.repair import MOST_KINDS, repair
from solver_models.result import SolveOptions
from tests.problems import tight_problem


def _repair(problem: Problem) -> tuple[Schedule, int]:
    clock = WorkClock()
    lists = ListRun(ListSearch(problem, balanced_routing(problem), 0, clock))
    # Enough for the fault-free pipelines, schedules of stretched ones, passes and annealing.
    found = repair(lists, SolveOptions(), Deadline.after(0.1, clock))
    assert found is not None
    assert found.solver == "repair"
    return found.schedule, found.period_ns


def _relative_order(schedule: Schedule, pipeline: int) -> list[tuple[int, ...]]:
    """Kind, stage and microbatch of a pipeline's operations, worker by worker, without the pipeline's number."""
    rows = np.flatnonzero(schedule.worker_of_row() // schedule.num_slots == pipeline)
    assert set(schedule.pipeline[rows].tolist()) == {pipeline}
    return list(
        zip(*(column[rows].tolist() for column in (schedule.kind, schedule.stage, schedule.microbatch)), strict=True)
    )


def test_each_failed_worker_and_its_helpers_are_a_cell() -> None:
    """Workers 0/1 and 6/3 of twelve pipelines shed four microbatches each, to four helpers of their own."""
    problem = tight_problem(12, 4, 4, dead=[Worker(0, 1), Worker(6, 3)])
    cells = [set(cell.tolist()) for cell in find_cells(problem, balanced_routing(problem))]
    assert [len(cell) for cell in cells] == [5, 5]
    assert not cells[0] & cells[1]
    assert 0 in cells[0]
    assert 6 in cells[1]


def test_cells_that_share_a_helper_are_one() -> None:
    """With three pipelines and two failures, somebody helps both."""
    problem = tight_problem(3, 4, 4, dead=[Worker(0, 1), Worker(1, 3)])
    assert [cell.tolist() for cell in find_cells(problem, balanced_routing(problem))] == [[0, 1, 2]]


def test_a_slow_worker_that_sheds_nothing_is_a_cell() -> None:
    """Worker 2/1, slower by a millionth, keeps its four microbatches, as 4.000004 time units hold them."""
    problem = replace(tight_problem(12, 4, 4), speeds_ppm={Worker(2, 1): 999_999})
    assert [cell.tolist() for cell in find_cells(problem, balanced_routing(problem))] == [[2]]


def test_a_broken_pipeline_that_runs_nothing_is_no_cell() -> None:
    """Pipeline 1 has no microbatches and no live worker: nobody helps it, and it helps nobody."""
    problem = replace(tight_problem(3, 4, 4, dead=[Worker(1, s) for s in range(4)]), microbatches=(4, 0, 4))
    assert find_cells(problem, balanced_routing(problem)) == []
    schedule, period = _repair(problem)
    require_valid(problem, schedule, period)
    assert replay(problem, schedule).period_ns == period
    hurt = replace(problem, dead=problem.dead | {Worker(2, 3)})
    assert [cell.tolist() for cell in find_cells(hurt, balanced_routing(hurt))] == [[0, 2]]


def test_pipelines_that_nothing_happened_to_run_on_as_before() -> None:
    """Worker 0/1 of twelve pipelines has four helpers: the seven others run one order, each with its own microbatches."""
    problem = tight_problem(12, 4, 4, dead=[Worker(0, 1)])
    schedule, period = _repair(problem)
    require_valid(problem, schedule, period)
    assert replay(problem, schedule).period_ns == period
    (cell,) = find_cells(problem, balanced_routing(problem))
    others = sorted(set(range(12)) - set(cell.tolist()))
    assert len(others) == 7
    assert len({tuple(_relative_order(schedule, k)) for k in others}) == 1


@pytest.mark.parametrize("seed", range(12))
def test_repaired_schedules_are_valid(seed: int) -> None:
    """Failures, slow workers, uneven microbatches, either optimizer and tight memory: validation and replay agree."""
    rng = random.Random(seed)
    everyone = [Worker(k, s) for k in range(6) for s in range(3)]
    hurt = rng.sample([worker for worker in everyone if worker.pipeline], rng.randint(1, 4))
    dead = hurt[: rng.randint(1, len(hurt))]
    problem = replace(
        tight_problem(6, 3, 4, dead=dead, capacity=rng.choice([30, 40, None])),
        microbatches=tuple(rng.choice([3, 5]) for _ in range(6)),
        speeds_ppm={worker: 700_000 for worker in hurt if worker not in dead},
        optimizer=rng.choice(list(Optimizer)),
    )
    schedule, period = _repair(problem)
    require_valid(problem, schedule, period)
    assert replay(problem, schedule).period_ns == period
    assert best_bound(problem).value_ns <= period


def test_too_many_kinds_of_pipelines_are_left_alone() -> None:
    """Four different numbers of microbatches would be four problems: somebody else has to solve this one."""
    problem = replace(tight_problem(4, 4, 4, dead=[Worker(0, 1)]), microbatches=(1, 2, 3, 4))
    assert len(set(problem.microbatches)) > MOST_KINDS
    assert repair(ListRun(ListSearch(problem, balanced_routing(problem), 0)), SolveOptions(), Deadline.after(1)) is None
