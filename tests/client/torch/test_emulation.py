"""Waits in place of compute, one by one and as whole plans."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from statistics import fmean
from typing import Any

import pytest
import torch
from replan_client.operation import Kind, Operation, Worker, parse_operation
from replan_client.program import Compute, OptimizerStep, parse_program
from replan_client.torch.emulation import EmulatedCompute, EmulatedStage, wait_us
from replan_client.torch.emulation_run import EmulatedRun, emulate, held_stages, run_from_document
from replan_client.torch.profiler_errors import EmulationError

from planner.lowering import lower
from planner.problem import Optimizer, Problem, Slot, Stage
from solver_models import portfolio
from solver_models.result import SolveOptions
from tests.client.torch.processes import processes

STAGES = tuple(
    EmulatedStage(
        forward_us=10.0 + v,
        input_grad_us=20.0,
        weight_grad_us=5.0,
        optimizer_us=3.0,
        input_bytes=100 * v,
        gradient_bytes=9,
    )
    for v in range(3)
)


def test_operations_wait_their_length_and_give_messages_of_their_size() -> None:
    """F gives what the next stage takes, I and B what the stage before gave, W and the ends of the line nothing."""
    waits: list[float] = []
    compute = EmulatedCompute(STAGES, (2, 0, 1), wait=waits.append)
    assert (compute.stages, compute.num_stages) == ((0, 1, 2), 3)
    given = [
        compute.run(parse_operation(text), None)
        for text in ("0F0.0", "1F0.0", "2F0.0", "2B0.0", "1I0.0", "0I0.0", "1W0.0")
    ]
    assert waits == [10, 11, 12, 25, 20, 20, 5]
    assert [None if tensor is None else tensor.numel() for tensor in given] == [100, 200, None, 200, 100, None, None]
    # What is announced is what comes, on both sides of each boundary.
    for stage, size in ((1, 100), (2, 200)):
        assert compute.message_spec(Operation(Kind.F, stage, 0, 0)).shape == (size,)
        assert compute.message_spec(Operation(Kind.I, stage - 1, 0, 0)).shape == (size,)
    summed: list[int] = []
    compute.reduce(1, 0.5, lambda tensors: summed.extend(tensor.nbytes for tensor in tensors))
    # Nine bytes in whole numbers of four.
    assert summed == [12]
    compute.step(1)
    assert waits[-1] == 3
    assert compute.finish() == {}


@pytest.mark.parametrize("length_us", [0, 40, 2000])
def test_waits_are_never_short(length_us: float) -> None:
    """Neither those that are spun whole nor those that are slept."""
    began = time.perf_counter_ns()
    wait_us(length_us)
    assert time.perf_counter_ns() - began >= length_us * 1000


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_lengths_have_to_be_lengths(value: float) -> None:
    """Negative and endless ones are refused."""
    with pytest.raises(ValueError, match=r"forward_us is .*; expected at least 0"):
        replace(STAGES[0], forward_us=value)


@pytest.fixture(scope="module")
def _server() -> Iterator[None]:
    """The fork server that all tests share, which has imported what is slow to import."""
    with processes():
        yield


def planned(optimizer: Optimizer, dead: tuple[Worker, ...], held: tuple[tuple[int, ...], ...]) -> EmulatedRun:
    """Two pipelines of two slots with waits of 2 ms, planned."""
    num_stages = sum(map(len, held))
    cost = Stage(forward_ns=2_000_000, input_grad_ns=2_000_000, weight_grad_ns=2_000_000)
    problem = Problem(
        stages=(cost,) * num_stages,
        slots=tuple(Slot(stages=stages, sync_ns=1_000_000) for stages in held),
        microbatches=(2, 2),
        optimizer=optimizer,
        dead=frozenset(dead),
    )
    found = portfolio.solve(problem, SolveOptions(deadline_s=0.2))
    assert found.schedule is not None
    programs = lower(problem, found.schedule)
    stage = EmulatedStage(
        forward_us=2000,
        input_grad_us=2000,
        weight_grad_us=2000,
        optimizer_us=1000,
        input_bytes=1000,
        gradient_bytes=1000,
    )
    programs_read = [parse_program(programs.program(worker).to_text()) for worker in programs.workers()]
    return EmulatedRun(stages=(stage,) * num_stages, programs=tuple(programs_read), iterations=3, warm_up=1, runs=2)


@pytest.mark.usefixtures("_server")
@pytest.mark.parametrize(
    ("optimizer", "dead", "held"),
    [
        (Optimizer.STAGGERED, (), ((0,), (1,))),
        (Optimizer.GLOBAL, (Worker(1, 1),), ((0,), (1,))),
        (Optimizer.STAGGERED, (Worker(0, 0),), ((0, 3), (1, 2))),
    ],
    ids=["fault-free", "global, one failure", "V, one failure"],
)
def test_a_plan_runs_and_no_worker_is_faster_than_its_waits(
    optimizer: Optimizer, dead: tuple[Worker, ...], held: tuple[tuple[int, ...], ...]
) -> None:
    """One process a worker, real messages: each run has a period, and waits cannot be shorter than they are."""
    run = planned(optimizer, dead, held)
    found = emulate(run, timeout_s=120)
    # One worker's starts lie no closer together than what it waits between them: its operations, 2 ms each, and its steps.
    waits_us = [
        sum(2000 * isinstance(i, Compute) + 1000 * isinstance(i, OptimizerStep) for i in program.instructions)
        for program in run.programs
    ]
    assert len(found.period_us) == len(found.fastest_us) == len(found.slowest_us) == 2
    for period, fastest, slowest in zip(found.period_us, found.fastest_us, found.slowest_us, strict=True):
        assert fastest <= period <= slowest
        assert fastest >= min(waits_us)
        assert period >= fmean(waits_us)


def document(**changes: Any) -> dict[str, Any]:
    """A run as JSON has it."""
    run = planned(Optimizer.STAGGERED, (), ((0,), (1,)))
    fields = {name: getattr(run.stages[0], name) for name in EmulatedStage.__slots__}
    return {"stages": [fields, fields], "programs": [p.to_dict() for p in run.programs], "runs": 2, **changes}


def test_a_run_is_read_from_json() -> None:
    """With its programs as they are served; what is left out is what the class says."""
    run = run_from_document(document())
    assert (run.runs, run.iterations, run.warm_up) == (2, 10, 3)
    assert [held_stages(program) for program in run.programs] == [(0,), (1,), (0,), (1,)]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"seed": 1}, r"fields \['seed'\]"),
        ({"runs": 0}, "runs is 0; expected 1 to"),
        ({"runs": True}, "expected whole numbers"),
        ({"stages": [{"forward_us": 1}]}, "cannot be read: TypeError"),
        ({"programs": []}, "expected one of each live worker"),
        ({"programs": [{"worker": "0/0", "instructions": ["SING"]}]}, "a program of the run cannot be read"),
        ({"programs": [{"worker": "0/0", "instructions": ["OPTIMIZER_STEP 7"]}]}, r"steps the stages \(7,\)"),
        ({"programs": [{"worker": "0/0", "instructions": ["OPTIMIZER_STEP 1"]}]}, "no program has an operation"),
    ],
)
def test_what_is_no_run_is_refused(changes: dict[str, Any], expected: str) -> None:
    """The message says what was found."""
    with pytest.raises(EmulationError, match=expected):
        run_from_document(document(**changes))


@pytest.mark.usefixtures("_server")
def test_a_program_that_cannot_run_is_told_of() -> None:
    """Here one that receives from a worker that is not there."""
    run = planned(Optimizer.STAGGERED, (), ((0,), (1,)))
    with pytest.raises(EmulationError, match=r"process \d failed"):
        emulate(replace(run, programs=run.programs[:3]), timeout_s=60)


def test_messages_are_only_read() -> None:
    """All messages of a size are one tensor, so a runner must not write into them."""
    compute = EmulatedCompute(STAGES, (0, 1), wait=lambda _: None)
    first, second = (compute.run(Operation(Kind.F, 0, 0, j), None) for j in range(2))
    assert first is second
    assert isinstance(first, torch.Tensor)
