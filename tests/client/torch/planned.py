"""Jobs planned by the planner, for the executor's tests."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from planner.baseline import one_f_one_b
from planner.failures import FailureSet
from planner.job import Job, JobStage, Placement, place_stages
from planner.layout import OrderedLayout
from planner.lowering import lower
from planner.operation import Worker
from planner.problem import Optimizer, Problem, Stage
from planner.replay import replay
from planner.schedule import Schedule
from planner.topology import uniform_racks
from solver_models.planning import make_plan
from solver_models.result import SolveOptions
from tests.client.torch.training import PlannedJob


@cache
def plan_job(
    num_pipelines: int,
    num_slots: int,
    microbatches: int,
    *,
    dead: tuple[str, ...] = (),
    placement: Placement = Placement.ONE_A_SLOT,
    capacity: int | None = None,
    optimizer: Optimizer = Optimizer.STAGGERED,
    unsplittable: tuple[int, ...] = (),
    baseline: bool = False,
) -> PlannedJob:
    """Have the planner plan a job.

    ``capacity`` is in microbatches between F and the end of I, of which each keeps half to the end of W. ``baseline`` takes
    1F1B in place of a plan.
    """
    num_stages = num_slots * (1 if placement is Placement.ONE_A_SLOT else 2)
    costs = Stage(
        forward_ns=1000, input_grad_ns=1100, weight_grad_ns=900, transfer_ns=50, activation_bytes=2, weight_grad_bytes=1
    )
    stages = tuple(JobStage(costs=replace(costs, splittable=v not in unsplittable)) for v in range(num_stages))
    job = Job(
        name="job",
        topology=uniform_racks(tuple(f"n{i}" for i in range(num_pipelines * num_slots)), 1, 2),
        layout=OrderedLayout(pipeline_parallel=num_slots, data_parallel=num_pipelines, rank_order=("pp", "dp")),
        placement=placement,
        slot_stages=place_stages(placement, num_slots, num_stages),
        stages=stages,
        capacity_bytes=(None if capacity is None else 2 * capacity,) * num_slots,
        microbatches=(microbatches,) * num_pipelines,
        optimizer=optimizer,
    )
    lost = tuple(Worker(*map(int, name.split("/"))) for name in dead)
    if baseline:
        assert not dead
        problem, schedule = job.problem(), one_f_one_b(job.problem())
    else:
        failures = FailureSet(workers=lost, dead=frozenset(lost), speeds_ppm={})
        plan = make_plan(job, failures, SolveOptions(deadline_s=0.3, workers=1), migrate=False)
        problem, schedule = plan.problem, plan.schedule
    programs = lower(problem, schedule)
    return PlannedJob(
        num_stages=num_stages,
        slot_stages=job.slot_stages,
        microbatches=problem.microbatches,
        programs={str(worker): programs.program(worker).to_text() for worker in programs.workers()},
        peak_in_flight=_peaks(problem, schedule, kept=1),
        peak_before_input_grad=_peaks(problem, schedule, kept=0),
    )


def _peaks(problem: Problem, schedule: Schedule, *, kept: int) -> tuple[int, ...]:
    """Peak of each slot where a microbatch counts one up to I and ``kept`` from there to W, as a replay has it."""
    stages = tuple(replace(stage, activation_bytes=1, weight_grad_bytes=kept) for stage in problem.stages)
    slots = tuple(replace(slot, capacity_bytes=None) for slot in problem.slots)
    return tuple(replay(replace(problem, stages=stages, slots=slots), schedule).peak_bytes)
