"""The benchmark that runs plans with emulated compute."""

from __future__ import annotations

import pytest

from benchmarks.emulated import Case, Lengths, Row, cases, problem_of, run_case
from planner.operation import Worker


def test_cases_are_two_shapes_with_up_to_two_failures_each() -> None:
    """Failed workers are in different slots, so that every slot keeps one."""
    found = [(case.pipelines, case.slots, len(case.dead)) for case in cases()]
    assert found == [(3, 4, 0), (3, 4, 1), (3, 4, 2), (2, 8, 0), (2, 8, 1), (2, 8, 2)]
    for case in cases():
        assert len({worker.slot for worker in case.dead}) == len(case.dead)
        problem_of(case, Lengths(), 100.0, 200.0).require_plannable()


def test_what_was_measured_goes_into_the_prediction() -> None:
    """Messages into every transfer, the all-reduce beside the optimizer into every slot's sync."""
    problem = problem_of(next(cases()), Lengths(optimizer_us=8000), 100.5, 200.25)
    assert {stage.transfer_ns for stage in problem.stages} == {100_500}
    assert {slot.sync_ns for slot in problem.slots} == {8_200_250}


def test_errors_are_relative_to_the_prediction() -> None:
    """Above it positive."""
    row = Row(case="x", predicted_us=100.0, measured_us=(104.0, 99.0))
    assert row.errors == pytest.approx([0.04, -0.01])


@pytest.mark.slow
def test_a_case_is_planned_and_run() -> None:
    """A small one with a failure, with the client's commands in processes of their own."""
    pytest.importorskip("torch", reason="torch, the extra of replan-client, is not installed")
    case = Case(pipelines=2, slots=2, microbatches=2, dead=(Worker(1, 1),))
    lengths = Lengths(forward_us=5000, input_grad_us=5000, weight_grad_us=5000, optimizer_us=1000)
    row = run_case(case, lengths, runs=2, iterations=3, deadline_s=0.5)
    # Worker 0/1 runs four microbatches of 15 ms and a step of 1 ms in a row.
    assert row.predicted_us >= 61_000
    assert len(row.measured_us) == 2
    assert row.case == "2 x 2 x 2, failed: 1/1"
