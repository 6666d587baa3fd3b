"""Squeezing an order of F and I that was wished for."""

from __future__ import annotations

import random

import numpy as np

from planner.operation import Kind
from planner.problem import Problem, Slot, Stage
from planner.timing import time_schedule
from planner.validation import require_valid
from solver_models.list_scheduling.network import build_network, order_by_turn, schedule_in_order
from solver_models.list_scheduling.routing import balanced_routing
from solver_models.list_scheduling.search import ListSearch
from solver_models.list_scheduling.squeeze import Squeezer
from tests.problems import tiny_problem

STAGE = Stage(forward_ns=4, input_grad_ns=4, weight_grad_ns=2, activation_bytes=2, weight_grad_bytes=1)


def _problem(count: int, capacity: int | None = None) -> Problem:
    return Problem(
        stages=(STAGE, STAGE),
        slots=(Slot(stages=(0,), capacity_bytes=capacity), Slot(stages=(1,), capacity_bytes=capacity)),
        microbatches=(count,),
    )


def _wish(problem: Problem, orders: dict[int, list[tuple[int, Kind]]]) -> list[str] | None:
    """Ask for an order of microbatches and kinds at each stage; what each worker then runs, as text."""
    network = build_network(problem, balanced_routing(problem))
    wished = np.zeros(len(network.worker), dtype=np.int64)
    for stage, order in orders.items():
        for place, (microbatch, kind) in enumerate(order):
            wished[(microbatch * problem.num_stages + stage) * 3 + kind] = place
    found = Squeezer(network).squeeze(wished, 1.0)
    if found is None:
        return None
    ordered = order_by_turn(network, found[1])
    schedule, period_ns = time_schedule(problem, schedule_in_order(problem, network, ordered))
    require_valid(problem, schedule, period_ns)
    texts = [f"{'FIW'[node % 3]}{node // 3 // problem.num_stages}" for node in ordered.tolist()]
    return [" ".join(texts[a:b]) for a, b in zip(schedule.offsets, schedule.offsets[1:], strict=False)]


ALL_FIRST = [(0, Kind.F), (1, Kind.F), (0, Kind.I), (1, Kind.I)]
IN_TURN = [(0, Kind.F), (0, Kind.I), (1, Kind.F), (1, Kind.I)]


def test_f_and_i_keep_the_order_wished_for_and_w_fill_gaps() -> None:
    """Slot 1 has no gap before its last I, and runs both W at its end; slot 0 waits 4 for each gradient."""
    assert _wish(_problem(2), {0: ALL_FIRST, 1: IN_TURN}) == ["F0 F1 I0 W0 I1 W1", "F0 I0 F1 I1 W0 W1"]


def test_memory_puts_the_next_input_gradient_before_a_forward() -> None:
    """With room for one microbatch its backward comes first, whatever was wished for."""
    assert _wish(_problem(2, capacity=2), {0: ALL_FIRST, 1: ALL_FIRST}) == ["F0 I0 W0 F1 I1 W1", "F0 I0 W0 F1 I1 W1"]


def test_an_order_that_waits_for_itself_is_refused() -> None:
    """Slot 0 wants the gradient of 0 before it sends 1, and slot 1 wants 1 before it returns 0."""
    first_one = [(1, Kind.F), (0, Kind.F), (0, Kind.I), (1, Kind.I)]
    assert _wish(_problem(2), {0: IN_TURN, 1: first_one}) is None


def test_what_is_squeezed_is_a_schedule() -> None:
    """Random wishes for random problems: valid where they do not come to a standstill, which most do not."""
    squeezed = 0
    for seed in range(150):
        problem = tiny_problem(random.Random(seed))
        search = ListSearch(problem, balanced_routing(problem), 0)
        own = search.by_rounds(1.0, None, 0.5).start
        shaken = own + np.random.default_rng(seed).integers(0, 3, len(own))
        trial = search.squeezed(shaken, 0.5)
        if trial is not None:
            squeezed += 1
            schedule, period_ns = time_schedule(problem, trial.order(problem))
            require_valid(problem, schedule, period_ns)
            assert period_ns <= trial.window_ns
    assert squeezed >= 100
