"""A job for the tests of adapters, and what must hold of every adapter."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from planner.failure_state import FailureEvent, FailureState, apply_event
from planner.job import Job, JobStage, Placement
from planner.layout import OrderedLayout
from planner.problem import Stage
from planner.topology import uniform_racks

GPUS = tuple(f"gpu{n:04d}" for n in range(1, 9))
"""Nodes of the job that tests use unless they need other names."""


def job_on(nodes: Sequence[str] = GPUS) -> Job:
    """4 pipelines x 2 slots with one worker of 2 GPUs a node: node ``2k + s`` is worker k/s; 8 nodes."""
    stage = JobStage(costs=Stage(forward_ns=1, input_grad_ns=1, weight_grad_ns=1))
    return Job(
        name="job",
        topology=uniform_racks(tuple(nodes), 2),
        layout=OrderedLayout(tensor_parallel=2, pipeline_parallel=2, data_parallel=4, rank_order=("tp", "pp", "dp")),
        placement=Placement.ONE_A_SLOT,
        slot_stages=((0,), (1,)),
        stages=(stage, stage),
        capacity_bytes=(None, None),
        microbatches=(2,) * 4,
    )


def follow(
    job: Job, state: FailureState, report: Callable[[FailureState], tuple[FailureEvent, ...]]
) -> tuple[FailureState, list[str]]:
    """Apply a report's events; returns the state and what the events say. The same report again must give none."""
    said = []
    for event in report(state):
        state = apply_event(job, state, event)
        said.append(f"{event.kind} {event.nodes or ','.join(map(str, event.workers))}")
    assert report(state) == ()
    return state, said
