"""Planned programs run by real processes train like one process that runs the whole batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from planner.job import Placement
from planner.problem import Optimizer
from tests.client.torch.planned import plan_job
from tests.client.torch.processes import processes
from tests.client.torch.training import largest_difference, reference, train

TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5}

JOBS: dict[str, dict[str, Any]] = {
    "1f1b": {"baseline": True},
    "planned": {},
    "one-failure": {"dead": ("1/1",)},
    "tight-memory": {"capacity": 3},
    "tight-memory-one-failure": {"capacity": 3, "dead": ("0/2",)},
    "v": {"placement": Placement.V},
    "v-one-failure": {"placement": Placement.V, "dead": ("1/0",)},
    "loop": {"placement": Placement.LOOP},
    "loop-two-failures": {"placement": Placement.LOOP, "dead": ("0/0", "1/2")},
    "global": {"optimizer": Optimizer.GLOBAL},
    "global-two-failures": {"optimizer": Optimizer.GLOBAL, "dead": ("0/1", "1/2")},
    "fused": {"unsplittable": (0, 1, 2)},
}
QUICK = ("one-failure", "v-one-failure", "global-two-failures")


def _check(dtype: torch.dtype, *size: int, **options: Any) -> None:
    """Train for three iterations and compare parameters, losses and peaks."""
    job = plan_job(*size, **options)
    with processes(limit_s=120) as group:
        found = train(group, job, 3, dtype)
    expected = reference(job.num_stages, job.microbatches, 3, dtype)
    for worker, outcome in found.items():
        for stage, arrays in outcome.stages.items():
            difference = largest_difference(arrays, expected.stages[stage])
            assert difference <= TOLERANCES[dtype], (worker, stage)
        for result in outcome.iterations:
            assert result.peak_in_flight <= job.peak_in_flight[worker.slot]
            assert result.peak_before_input_grad <= job.peak_before_input_grad[worker.slot]
    # Every microbatch went through the last stage once, wherever that was.
    for iteration in range(3):
        losses = [pair for outcome in found.values() for pair in outcome.losses[iteration].items()]
        assert len(losses) == len(dict(losses)) == sum(job.microbatches)
        assert dict(losses) == pytest.approx(expected.losses[iteration], rel=TOLERANCES[dtype])


@pytest.mark.parametrize("name", QUICK)
def test_training_equals_one_process(name: str) -> None:
    """Two pipelines of three slots, four microbatches each, at float64."""
    _check(torch.float64, 2, 3, 4, **JOBS[name])


def test_single_precision_equals_one_process() -> None:
    """The same at float32, whose sums depend more on their order."""
    _check(torch.float32, 2, 3, 4, **JOBS["1f1b"])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("name", JOBS)
def test_every_kind_of_plan_equals_one_process(name: str, dtype: torch.dtype) -> None:
    """All kinds of plans at both precisions, with six microbatches."""
    _check(dtype, 2, 3, 6, **JOBS[name])


@pytest.mark.slow
@pytest.mark.parametrize("dead", [(), ("1/2",), ("0/2", "2/1")], ids=["0", "1", "2"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"capacity": 4},
        {"placement": Placement.V},
        {"placement": Placement.LOOP},
        {"optimizer": Optimizer.GLOBAL},
    ],
    ids=["staggered", "tight-memory", "v", "loop", "global"],
)
def test_more_pipelines_and_failures_equal_one_process(options: dict[str, Any], dead: tuple[str, ...]) -> None:
    """Three pipelines of four slots, as in ReCycle's example."""
    _check(torch.float64, 3, 4, 6, dead=dead, **options)
