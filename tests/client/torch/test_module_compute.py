"""Real modules behind a runner: one worker that holds all stages, in this process, and several that break."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from replan_client.operation import Worker, parse_operation, parse_worker
from replan_client.program import parse_program
from replan_client.torch.errors import (
    LinkBrokenError,
    ProgramMismatchError,
    SharedParameterError,
    StageShapeError,
    UnsplittableStageError,
)
from replan_client.torch.links import Links
from replan_client.torch.module_compute import ModuleCompute
from replan_client.torch.runner import Runner
from replan_client.torch.shapes import agree_on_specs
from replan_client.torch.spec import TensorSpec
from torch import nn

from planner.job import Placement
from tests.client.torch.planned import plan_job
from tests.client.torch.processes import Here, processes
from tests.client.torch.training import (
    BATCH,
    WIDTHS,
    PlannedJob,
    arrays_of,
    build_stage,
    largest_difference,
    loss_fn,
    make_compute,
    make_data,
    make_optimizer,
    reference,
)
from tests.client.torch.unsplittable import Once

ME = Worker(0, 0)
DOUBLE = torch.float64


def _alone(**options: object) -> PlannedJob:
    """One worker with two stages and three microbatches."""
    return plan_job(1, 1, 3, placement=Placement.V, **options)  # type: ignore[arg-type]


def _modules() -> dict[int, nn.Module]:
    return {v: build_stage(v, DOUBLE) for v in range(2)}


def _links() -> Links:
    return Links(dist.HashStore(), [ME], ME)


def test_one_worker_with_all_stages_trains_too() -> None:
    """What needs no message runs through: parameters, losses, the calls before steps, and the timeline."""
    job, modules = _alone(), _modules()
    calls: list[tuple[int, int]] = []
    compute = make_compute(dist.HashStore(), job, 0, DOUBLE, modules=modules)

    def before_step(iteration: int, stage: int) -> None:
        calls.append((iteration, stage))
        # Gradients are summed by now, also those of stages that are stepped later.
        assert all(parameter.grad is not None for v in range(stage, 2) for parameter in modules[v].parameters())

    with _links() as links:
        runner = Runner(links, compute, before_step=before_step)
        results = [runner.run_iteration(iteration, job.program(ME)) for iteration in range(3)]
    expected = reference(2, (3,), 3, DOUBLE)
    assert all(largest_difference(arrays_of(modules[v]), expected.stages[v]) <= 1e-12 for v in range(2))
    assert calls == [(iteration, stage) for iteration in range(3) for stage in range(2)]
    for result in results:
        activities = [event.activity for event in result.events]
        assert activities == 18 * ["compute"] + ["flush"] + 2 * ["all_reduce"] + 2 * ["step"]
        assert all(event.start_ns <= event.end_ns for event in result.events)
        assert result.losses.keys() == {(0, 0), (0, 1), (0, 2)}
        assert result.peak_before_input_grad <= result.peak_in_flight <= 6


class _OnceModule(nn.Module):
    def __init__(self, whole: nn.Module | None = None) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.weight = nn.Parameter(torch.randn(WIDTHS[1], WIDTHS[2], dtype=DOUBLE))
        self.whole = whole

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return Once.apply(value, self.weight)


def test_a_stage_that_cannot_be_split_runs_fused() -> None:
    """Where the plan splits it the error names the stage and what to do; where the plan has B it trains."""
    modules = {0: build_stage(0, DOUBLE), 1: _OnceModule()}
    compute = make_compute(dist.HashStore(), _alone(), 0, DOUBLE, modules=modules)
    assert compute.unsplittable == {1: "IndexError: pop from empty list"}
    with _links() as links:
        with pytest.raises(
            UnsplittableStageError, match=r"has 1I0\.0, but the backward of stage 1 cannot be split"
        ) as bad:
            Runner(links, compute).run_iteration(0, _alone().program(ME))
        assert "`splittable: false` for stage 1 in the job file" in str(bad.value)
        before = modules[1].weight.detach().clone()
        Runner(links, compute).run_iteration(0, _alone(unsplittable=(1,)).program(ME))
        assert not torch.equal(before, modules[1].weight)


def test_a_program_of_others_is_refused_and_the_right_one_runs_after_it() -> None:
    """A program for another worker, or for stages not held here, changes nothing and breaks no links."""
    job = _alone()
    compute = make_compute(dist.HashStore(), job, 0, DOUBLE)
    other = plan_job(1, 2, 3)
    with _links() as links:
        runner = Runner(links, compute)
        with pytest.raises(ProgramMismatchError, match="program of worker 0/1, and this process stands at 0/0"):
            runner.run_iteration(0, other.program(Worker(0, 1)))
        text = job.program(ME).to_text().replace("COMPUTE 1F", "COMPUTE 2F")
        with pytest.raises(ProgramMismatchError, match="stage 2 is not held here; expected one of"):
            runner.run_iteration(0, parse_program(text))
        assert len(runner.run_iteration(0, job.program(ME)).losses) == 3


class _HasSpare(nn.Module):
    """Uses one of its two layers."""

    def __init__(self, stage: int) -> None:
        super().__init__()
        self.used = build_stage(stage, DOUBLE)
        self.spare = nn.Linear(2, 2, dtype=DOUBLE)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return self.used(value)


def test_unused_parameters_stay_as_they_are() -> None:
    """Weight decay takes parameters with a gradient of zeros, but none without a gradient: unused ones have none."""
    modules: dict[int, nn.Module] = {v: _HasSpare(v) for v in range(2)}
    before = {v: arrays_of(module.spare) for v, module in modules.items()}
    compute = make_compute(dist.HashStore(), _alone(), 0, DOUBLE, modules=modules)
    with _links() as links:
        runner = Runner(links, compute)
        for iteration in range(2):
            runner.run_iteration(iteration, _alone().program(ME))
    expected = reference(2, (3,), 2, DOUBLE)
    for v, module in modules.items():
        assert largest_difference(arrays_of(module.spare), before[v]) == 0
        assert largest_difference(arrays_of(module.used), expected.stages[v]) <= 1e-12


def test_shared_parameters_are_refused() -> None:
    """One parameter in two stages of a worker would be stepped by two optimizers."""
    modules = _modules()
    modules[1].extra = modules[0][0].weight
    with pytest.raises(SharedParameterError, match=r"stages 0 and 1 share the parameter extra"):
        make_compute(dist.HashStore(), _alone(), 0, DOUBLE, modules=modules)


def _bad_data(iteration: int, pipeline: int, microbatch: int) -> tuple[torch.Tensor, torch.Tensor]:
    inputs, labels = make_data(2, DOUBLE)(iteration, pipeline, microbatch)
    return (inputs[:1], labels[:1]) if microbatch == 1 else (inputs, labels)


def test_data_of_another_shape_is_refused() -> None:
    """A shorter last microbatch is named, before anybody gets a tensor that does not fit its buffer."""
    job, modules = _alone(), _modules()
    example = TensorSpec(shape=(BATCH, WIDTHS[0]), dtype=DOUBLE)
    compute = ModuleCompute(
        modules,
        {v: make_optimizer(module) for v, module in modules.items()},
        agree_on_specs(dist.HashStore(), modules, example, num_stages=2),
        num_stages=2,
        data=_bad_data,
        loss_fn=loss_fn,
    )
    with _links() as links:
        with pytest.raises(
            StageShapeError, match=r"the data gives \[1, 5\] float64 for microbatch 0\.1 of iteration 7; "
        ):
            Runner(links, compute).run_iteration(7, job.program(ME))
        # The links are closed: others would learn of it.
        with pytest.raises(LinkBrokenError, match="its links are closed"):
            links.wait(parse_operation("1F0.0"))


class _Fails(nn.Module):
    """Does something when called for the n-th time."""

    def __init__(self, inner: nn.Module, call: int, act: Callable[[], None]) -> None:
        super().__init__()
        self.inner = inner
        self.calls = -call
        self.act = act

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        if not isinstance(value, torch._subclasses.FakeTensor):
            self.calls += 1
            if self.calls == 0:
                self.act()
        return self.inner(value)


def _raise() -> None:
    raise ZeroDivisionError("out of luck")


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _break_in_second_iteration(here: Here, job: PlannedJob, how: str) -> tuple[int, str, float]:
    """Train until worker 1/1 fails in its second iteration; iterations completed, the error, how far parameters are off."""
    me, store = parse_worker(here.name), here.store()
    module = inner = build_stage(me.slot, DOUBLE)
    if me == Worker(1, 1):
        # Its own microbatches are four an iteration.
        module = _Fails(inner, 4 + 2, _raise if how == "raise" else _kill)
    compute = make_compute(store, job, me.slot, DOUBLE, modules={me.slot: module})
    links = Links(dist.PrefixStore("links", store), job.positions, me, timeout_s=here.limit_s)
    runner, done, error = Runner(links, compute), 0, ""
    try:
        while done < 3:
            runner.run_iteration(done, job.program(me))
            done += 1
    except (LinkBrokenError, ZeroDivisionError) as raised:
        error = type(raised).__name__
        links.close()
    expected = reference(job.num_stages, job.microbatches, done, DOUBLE).stages[me.slot]
    return done, error, largest_difference(arrays_of(inner), expected)


@pytest.mark.parametrize("how", ["raise", "kill"])
def test_a_failure_breaks_everybody_between_two_steps(how: str) -> None:
    """All get an error and stand after whole iterations: the broken one has changed no parameter."""
    job = plan_job(2, 3, 4)
    with processes(limit_s=60) as group:
        children = group.start_all(job.positions, _break_in_second_iteration, job, how)
        found = {child.name: child.result() for child in children if how == "raise" or child.name != "1/1"}
    for name, (done, error, difference) in found.items():
        assert error == ("ZeroDivisionError" if name == "1/1" else "LinkBrokenError")
        # The first and last slot have peers that may all have finished the second iteration; the slot of the failure has not.
        assert done == 1 if name.endswith("/1") else done in (1, 2)
        assert difference <= 1e-12
