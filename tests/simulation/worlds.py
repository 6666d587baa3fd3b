"""A job whose periods are easy to work out, and traces of its nodes."""

from __future__ import annotations

from dataclasses import replace

from planner.job import Job, JobStage, Placement, Recovery
from planner.layout import OrderedLayout
from planner.problem import Stage
from planner.topology import uniform_racks
from simulation.constants import Costs
from simulation.outcome import Outcome
from simulation.run import Simulation
from simulation.trace import Trace, TraceEvent, TraceEventKind
from solver_models.result import SolveOptions

S = 10**9
COSTS = Costs(
    detection_s=5, regroup_s=10, restart_s=100, checkpoint_s=50, solve_s=2, copy_bytes_per_s=100, spare_nodes=1
)
OPTIONS = SolveOptions(deadline_s=1.0, deterministic=True)
FULL = 24 / 18
"""Samples a second without failures: 24 microbatches in a period of 18 s, which is each worker's work."""


def job(pipelines: int = 4, *, gpus_per_worker: int = 1, gpus_per_node: int = 1) -> Job:
    """Two slots, 6 microbatches a pipeline, F, I and W of 1 s, no transfers, no sync, memory unlimited.

    Worker k/s stands on node n{2k+s} where a node is a worker. ``m`` microbatches on one worker take ``3 m`` s, and no more than
    that is lost to bubbles. 1F1B takes ``3 (m + 1)`` s.
    """
    workers = 2 * pipelines
    return Job(
        name="unit",
        topology=uniform_racks(
            tuple(f"n{i}" for i in range(workers * gpus_per_worker // gpus_per_node)), gpus_per_node, 4
        ),
        layout=OrderedLayout(
            tensor_parallel=gpus_per_worker, pipeline_parallel=2, data_parallel=pipelines, rank_order=("tp", "pp", "dp")
        ),
        placement=Placement.ONE_A_SLOT,
        slot_stages=((0,), (1,)),
        stages=tuple(
            JobStage(
                costs=Stage(forward_ns=S, input_grad_ns=S, weight_grad_ns=S),
                parameter_bytes=400,
                optimizer_state_bytes=600,
            )
            for _ in range(2)
        ),
        capacity_bytes=(None, None),
        microbatches=(6,) * pipelines,
        recovery=Recovery(),
    )


def events(*rows: tuple[float, str, str]) -> tuple[TraceEvent, ...]:
    """Events such as ``(900, "remove", "n0")``."""
    return tuple(TraceEvent(seconds=t, kind=TraceEventKind(kind), node=node) for t, kind, node in rows)


def trace(end_s: float, *rows: tuple[float, str, str]) -> Trace:
    """A trace of a job's nodes, watched from 0."""
    return Trace(name="trace", events=events(*rows), start_s=0.0, end_s=end_s)


UNIT = Simulation(job=job(), options=OPTIONS, costs=COSTS)
"""Four pipelines; its planned periods are kept from test to test."""


def play(policy: str, end_s: float, *rows: tuple[float, str, str], world: Simulation = UNIT) -> Outcome:
    """Play one policy."""
    (outcome,) = world.play(trace(end_s, *rows), [policy])
    return outcome


def another(made: Job, **costs: float) -> Simulation:
    """A world of another job, or with other costs."""
    return Simulation(job=made, options=OPTIONS, costs=replace(COSTS, **costs))  # type: ignore[arg-type]
