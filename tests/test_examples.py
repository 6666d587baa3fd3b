"""Every example file loads and can be planned."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.formats.job_file import job_from_document, job_to_document, load_job
from planner.hostlist import expand_hostlist
from planner.job import OptimizerState, Placement
from planner.operation import Worker
from planner.replay import replay
from planner.validation import require_valid
from solver_models.list_scheduling.solve import solve
from solver_models.result import SolveOptions

EXAMPLES = Path(__file__).parent.parent / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.yaml"))


def test_expected_examples_exist() -> None:
    """The examples that the documentation names are all there."""
    assert {
        "recycle-worked-example",
        "zb-1.5b",
        "zb-6.2b",
        "zb-14.6b",
        "zb-28.3b",
        "llama3-405b",
        "uneven-stages",
        "v-placement",
    } <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_example_loads(name: str) -> None:
    """An example loads, carries its file's name, has room for a plan and survives writing and reading."""
    job = load_job(EXAMPLES / f"{name}.yaml")
    assert job.name == name
    job.problem().require_plannable()
    assert job_from_document(job_to_document(job)) == job


@pytest.mark.parametrize("name", NAMES)
def test_example_is_planned(name: str) -> None:
    """The list schedule of an example is valid and replays in the period it claims."""
    problem = load_job(EXAMPLES / f"{name}.yaml").problem()
    # A short deadline: little more than the first list is built.
    result = solve(problem, SolveOptions(deadline_s=0.01))
    assert result.schedule is not None
    assert result.period_ns is not None
    require_valid(problem, result.schedule, result.period_ns)
    assert replay(problem, result.schedule, iterations=4).period_ns == result.period_ns


def test_llama_figures() -> None:
    """The 405B example has 16,384 GPUs, a node a worker, and memory for 1F1B on every slot."""
    job = load_job(EXAMPLES / "llama3-405b.yaml")
    assert job.topology.num_gpus == 128 * 16 * 8
    assert (job.num_pipelines, job.num_slots, job.gpus_per_worker) == (128, 16, 8)
    # Pipeline 1, slot 2 is the 19th worker: 16 of pipeline 0, then slots 0 and 1.
    assert job.nodes_of_worker(Worker(1, 2)) == ("gpu0019",)
    assert job.topology.nodes == expand_hostlist("gpu[0001-2048]")
    # 2 bytes a parameter, each worker 8 GPUs: 405,853,388,800 parameters in all.
    total = sum(8 * (stage.parameter_bytes or 0) // 2 for stage in job.stages)
    assert total == 405_853_388_800
    held = [
        (capacity or 0) // stage.costs.activation_bytes
        for capacity, stage in zip(job.capacity_bytes, job.stages, strict=True)
    ]
    # 1F1B holds P - s microbatches on slot s.
    assert all(count >= 16 - s for s, count in enumerate(held))
    assert job.optimizer_state is OptimizerState.SHARDED_WITH_REPLICA


def test_llama_costs_follow_from_the_flop_model() -> None:
    """Every cost of the 405B example is the arithmetic that its head states, to the last digit given."""
    job = load_job(EXAMPLES / "llama3-405b.yaml")
    hidden, ffn, kv_width, vocabulary, tokens, gpus, pipelines = 16384, 53248, 1024, 128256, 8192, 8, 128
    matrices = 2 * hidden * hidden + 2 * hidden * kv_width + 3 * hidden * ffn
    embedding = vocabulary * hidden
    causal = 2 * tokens * tokens * hidden
    flops = 400e12 * gpus
    network, memory = 50e9, 3.35e12
    for v, stage in enumerate(job.stages):
        layers = 7 if v in (0, 15) else 8
        head = embedding if v == 15 else 0
        linear = 2 * (layers * matrices + head) * tokens
        # Two norms a layer, one more ahead of the output head; embeddings are looked up, but stored.
        stored = layers * (matrices + 2 * hidden) + (embedding if v == 0 else 0) + (head + hidden if v == 15 else 0)
        each = stored / gpus
        logits = 2 * tokens * vocabulary // gpus if v == 15 else 0
        expected_us = {
            "forward_ns": (linear + layers * causal) / flops,
            "input_grad_ns": (linear + 2 * layers * causal) / flops,
            "weight_grad_ns": linear / flops,
            "transfer_ns": 0.0 if v == 15 else 2 * tokens * hidden / gpus / network,
        }
        for name, seconds in expected_us.items():
            assert getattr(stage.costs, name) == round(seconds * 1e9), (v, name)
        slice_bytes = tokens * hidden * layers // gpus
        assert (stage.costs.activation_bytes, stage.costs.weight_grad_bytes) == (
            34 * slice_bytes + logits,
            32 * slice_bytes + logits,
        )
        reduced_ns = round(6 * each * (pipelines - 1) / pipelines / network * 1e9)
        stepped_ns = round(28 * each / pipelines / memory * 1e9)
        assert (stage.all_reduce_ns, stage.optimizer_ns) == (reduced_ns, stepped_ns), v
        assert (stage.parameter_bytes, stage.optimizer_state_bytes) == (2 * each, 12 * each / pipelines), v
        assert job.capacity_bytes[v] == 80e9 - 2 * each - 28 * each / pipelines


def test_uneven_example_covers_its_cases() -> None:
    """The uneven example holds an unsplittable stage, a free one and unequal microbatch counts."""
    job = load_job(EXAMPLES / "uneven-stages.yaml")
    assert job.placement is Placement.EXPLICIT
    assert [stage.costs.splittable for stage in job.stages] == [True, False, True, True, True, True]
    assert job.stages[2].costs.forward_ns == 0
    assert job.microbatches == (8, 8, 6)
    assert job.topology.rack_of_node == (0, 0, 1)


def test_v_example_is_a_v() -> None:
    """Slot s of the V example holds stages s and 15 - s."""
    job = load_job(EXAMPLES / "v-placement.yaml")
    assert job.slot_stages == tuple((s, 15 - s) for s in range(8))
