"""Jobs: parts that fit together, placements, problems."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.errors import ProblemError
from planner.job import Job, JobStage, Placement, Recovery, place_stages
from planner.layout import OrderedLayout, TableLayout
from planner.operation import Worker
from planner.problem import Stage
from planner.topology import uniform_racks


def small_job() -> Job:
    """2 pipelines x 2 slots with 2 GPUs a worker and a node a pipeline."""
    costs = Stage(forward_ns=10, input_grad_ns=10, weight_grad_ns=10)
    stage = JobStage(costs=costs, all_reduce_ns=5, optimizer_ns=2, parameter_bytes=100, optimizer_state_bytes=20)
    return Job(
        name="small",
        topology=uniform_racks(("a", "b"), 4, 1),
        layout=OrderedLayout(tensor_parallel=2, pipeline_parallel=2, data_parallel=2, rank_order=("tp", "pp", "dp")),
        placement=Placement.ONE_A_SLOT,
        slot_stages=((0,), (1,)),
        stages=(stage, stage),
        capacity_bytes=(None, 1000),
        microbatches=(3, 4),
    )


def test_workers_and_nodes() -> None:
    """Worker k/s has ranks 4k + 2s and the one after it, on node k."""
    job = small_job()
    assert job.gpus_of_worker(Worker(1, 0)) == (4, 5)
    assert job.nodes_of_worker(Worker(1, 0)) == ("b",)
    assert job.worker_racks().tolist() == [0, 0, 1, 1]
    assert job.has_worker(Worker(1, 1))
    assert not job.has_worker(Worker(2, 0))
    assert not job.has_worker(Worker(0, 2))


def test_slots_pay_for_all_their_stages() -> None:
    """A slot's synchronisation is the sum over its stages of all-reduce and optimizer step."""
    job = small_job()
    assert [slot.sync_ns for slot in job.slots] == [7, 7]
    v = replace(job, placement=Placement.V, slot_stages=((0, 3), (1, 2)), stages=job.stages * 2)
    assert [slot.sync_ns for slot in v.slots] == [14, 14]
    # Two stages of 100 + 20 bytes on each of 2 GPUs.
    assert v.state_bytes(0) == 2 * 120 * 2


def test_unknown_state_has_no_size() -> None:
    """Where one stage's size is not known, neither is the slot's."""
    job = small_job()
    stages = (replace(job.stages[0], parameter_bytes=None), job.stages[1])
    assert replace(job, stages=stages).state_bytes(0) is None


def test_problem_carries_failures() -> None:
    """A job with dead and slow workers becomes that problem."""
    problem = small_job().problem(frozenset({Worker(0, 0)}), {Worker(1, 1): 500_000})
    assert problem.live_pipelines(0) == (1,)
    assert problem.speed_ppm(Worker(1, 1)) == 500_000
    assert problem.num_microbatches == 7
    with pytest.raises(ProblemError, match="does not exist"):
        small_job().problem(frozenset({Worker(2, 0)}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": ""}, "1 to 200 printable"),
        ({"name": "a\nb"}, "1 to 200 printable"),
        ({"name": "a" * 201}, "1 to 200 printable"),
        ({"capacity_bytes": (None,)}, "1 slot capacities; expected 2"),
        ({"microbatches": (1,)}, "1 microbatch counts; expected 2"),
        ({"microbatches": (0, 0)}, "one at least 1"),
        ({"microbatches": (-1, 2)}, "at least 0"),
        ({"microbatches": (666_666, 1)}, "more than 4000000 operations"),
        ({"slot_stages": ((0,), (2,))}, r"outside 0\.\.1"),
        ({"slot_stages": ((0,), (0,))}, "exactly one slot"),
        ({"slot_stages": ((0, 1),)}, "1 slots that list their stages"),
        ({"topology": uniform_racks(("a", "b", "c"), 4)}, "multiply to 8 GPUs; expected 12"),
        ({"layout": TableLayout(num_slots=2, rows=((0,), (1,), (2,), (8,)))}, "names GPU 8"),
    ],
)
def test_parts_that_do_not_fit_are_refused(change: dict[str, object], message: str) -> None:
    """A job refuses parts that do not fit together."""
    with pytest.raises(ProblemError, match=message):
        replace(small_job(), **change)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("placement", "num_slots", "num_stages", "held"),
    [
        (Placement.ONE_A_SLOT, 3, 3, ((0,), (1,), (2,))),
        (Placement.LOOP, 2, 6, ((0, 2, 4), (1, 3, 5))),
        (Placement.V, 3, 6, ((0, 5), (1, 4), (2, 3))),
    ],
)
def test_placements(placement: Placement, num_slots: int, num_stages: int, held: tuple[tuple[int, ...], ...]) -> None:
    """Named placements spread stages as they are defined."""
    assert place_stages(placement, num_slots, num_stages) == held


@pytest.mark.parametrize(
    ("placement", "num_stages"),
    [
        (Placement.ONE_A_SLOT, 3),
        (Placement.LOOP, 3),
        (Placement.V, 6),
        (Placement.EXPLICIT, 2),
        (Placement.LOOP, 0),
        (Placement.LOOP, 4098),
    ],
)
def test_counts_that_do_not_suit_a_placement_are_refused(placement: Placement, num_stages: int) -> None:
    """A placement on 2 slots refuses a number of stages that it cannot spread."""
    with pytest.raises(ProblemError):
        place_stages(placement, 2, num_stages)


@pytest.mark.parametrize(
    "values", [{"repair_s": -1.0}, {"mean_time_between_failures_s": 0.0}, {"restart_s": float("nan")}]
)
def test_impossible_recovery_figures_are_refused(values: dict[str, float]) -> None:
    """Recovery figures are finite and not negative."""
    with pytest.raises(ProblemError):
        Recovery(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["all_reduce_ns", "optimizer_ns", "parameter_bytes", "optimizer_state_bytes"])
def test_negative_stage_figures_are_refused(name: str) -> None:
    """No figure of a stage is negative."""
    with pytest.raises(ProblemError):
        replace(small_job().stages[0], **{name: -1})
