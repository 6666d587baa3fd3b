"""Building blocks for slots of several stages."""

from __future__ import annotations

import numpy as np
import pytest

from planner.bounds import best_bound
from planner.job import Placement, place_stages
from planner.problem import Problem, Slot, Stage
from planner.timing import time_schedule
from planner.validation import require_valid
from solver_models.clock import Deadline
from solver_models.list_scheduling.blocks import Frame, search_blocks
from solver_models.list_scheduling.routing import balanced_routing
from solver_models.list_scheduling.search import ListRun, ListSearch, best_timed

STAGE = Stage(
    forward_ns=100, input_grad_ns=98, weight_grad_ns=52, transfer_ns=6, activation_bytes=2, weight_grad_bytes=1
)


def _problem(placement: Placement, slots: int = 4, microbatches: tuple[int, ...] = (12,)) -> Problem:
    """Two stages a slot at 1F1B's memory."""
    held = place_stages(placement, slots, 2 * slots)
    return Problem(
        stages=(STAGE,) * (2 * slots),
        slots=tuple(Slot(stages=stages, capacity_bytes=4 * slots) for stages in held),
        microbatches=microbatches,
    )


@pytest.mark.parametrize(("placement", "rising"), [(Placement.V, [True, False]), (Placement.LOOP, [True, True])])
def test_a_frame_knows_which_way_chunks_run(placement: Placement, rising: list[bool]) -> None:
    """Down a V and up again; a loop goes the same way twice."""
    frame = Frame(_problem(placement))
    assert frame.rising.tolist() == rising
    assert frame.period == 500


@pytest.mark.parametrize("placement", [Placement.V, Placement.LOOP])
def test_a_block_repeats_and_keeps_every_wait(placement: Placement) -> None:
    """I of consecutive microbatches lie a period apart, F too once the beginning is over, and nothing comes before its input."""
    problem = _problem(placement)
    frame, random = Frame(problem), np.random.default_rng(0)
    for _ in range(20):
        block = frame.draw(random)
        block[-5:-1] = (1, 1, 0, 0)  # no other pace at the beginning
        starts = frame.starts(block, problem.microbatches).reshape(12, 8, 3)
        assert np.abs(np.diff(starts[:, :, :2], axis=0) - 500).max() <= 1
        forward, input_grad = starts[0, :, 0], starts[0, :, 1]
        assert (np.diff(forward) >= 100).all()
        assert (-np.diff(input_grad) >= 98).all()
        assert input_grad[-1] >= forward[-1] + 100


def test_a_smaller_pipeline_takes_every_so_manieth() -> None:
    """Six microbatches of twelve: the starts of the even ones."""
    frame = Frame(_problem(Placement.V))
    block = frame.draw(np.random.default_rng(1))
    starts = frame.starts(block, (12, 6)).reshape(18, -1)
    assert (starts[12:] == starts[:12:2]).all()


def test_search_reports_each_block_that_is_better() -> None:
    """Reported windows fall; other trials are reported as nothing."""
    windows = iter([9, None, 7, 8, 7, 3])
    seen: list[int | None] = []

    def window_of(_: object) -> int | None:
        seen.append(next(windows))
        return seen[-1]

    frame = Frame(_problem(Placement.V))
    found = list(search_blocks(frame, window_of, 6, np.random.default_rng(2)))
    assert [block is not None for block in found] == [True, False, True, False, False, True]


@pytest.mark.parametrize("slots", [4, 8])
def test_blocks_come_near_the_bound_where_rules_do_not(slots: int) -> None:
    """A V at 1F1B's memory: within 0.5 % of the bound from lists alone, where rules by rounds are 2 % off or more."""
    problem = _problem(Placement.V, slots, (3 * slots,))
    bound_ns = best_bound(problem).value_ns
    run = ListRun(ListSearch(problem, balanced_routing(problem), bound_ns))
    schedule, period_ns = best_timed(problem, run.until(Deadline.after(0.0), at_least=2_000))
    require_valid(problem, schedule, period_ns)
    assert period_ns <= 1.005 * bound_ns
    assert run.best_of_rule["rounds"].window_ns >= 1.02 * bound_ns


def test_slots_may_hold_different_numbers_of_stages() -> None:
    """From a slot's second stage on to the only one of the next: another chunk again, with fewer stages."""
    slots = (Slot(stages=(0,)), Slot(stages=(1, 2)), Slot(stages=(3, 4, 5)), Slot(stages=(6,)))
    problem = Problem(stages=(STAGE,) * 7, slots=slots, microbatches=(5,))
    frame = Frame(problem)
    starts = frame.starts(frame.draw(np.random.default_rng(4)), problem.microbatches).reshape(5, 7, 3)
    assert (np.diff(starts[0, :, 0]) >= 100).all()
    run = ListRun(ListSearch(problem, balanced_routing(problem), 0))
    require_valid(problem, *best_timed(problem, run.until(Deadline.after(0.0), at_least=300)))
    assert "squeezed" in run.best_of_rule


def test_blocks_serve_pipelines_with_failures_too() -> None:
    """All pipelines run the block in step, each worker what is routed to it: the schedule is valid."""
    problem = _problem(Placement.V, 4, (8, 8))
    routing = balanced_routing(problem)
    trial = ListSearch(problem, routing, 0).squeezed(
        Frame(problem).starts(Frame(problem).draw(np.random.default_rng(3)), problem.microbatches), 0.5
    )
    assert trial is not None
    require_valid(problem, *time_schedule(problem, trial.order(problem)))
