"""Failure sets: what people say is down or slow."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import FailureSetError, HostlistError, InputError
from planner.failures import MAX_TARGETS, FailureSet, parse_failures
from planner.job import Job, JobStage, Placement
from planner.layout import OrderedLayout, TableLayout
from planner.operation import Worker
from planner.problem import Stage
from planner.topology import uniform_racks


def job_on_nodes(*, gpus_per_node: int = 2) -> Job:
    """4 pipelines x 2 slots with 2 GPUs a worker: ranks 4k + 2s and the one after it."""
    stage = JobStage(costs=Stage(forward_ns=1, input_grad_ns=1, weight_grad_ns=1))
    return Job(
        name="job",
        topology=uniform_racks(tuple(f"n{i}" for i in range(16 // gpus_per_node)), gpus_per_node),
        layout=OrderedLayout(tensor_parallel=2, pipeline_parallel=2, data_parallel=4, rank_order=("tp", "pp", "dp")),
        placement=Placement.ONE_A_SLOT,
        slot_stages=((0,), (1,)),
        stages=(stage, stage),
        capacity_bytes=(None, None),
        microbatches=(2,) * 4,
    )


def test_nodes_ranks_and_workers() -> None:
    """Nodes, ranks and workers all resolve to workers."""
    # Node i is worker i // 2 / i % 2; rank 5 is the second GPU of worker 1/0.
    found = parse_failures(job_on_nodes(), ["n[7,0]", "rank:5", "worker:2/1"])
    assert found.nodes == ("n0", "n7")
    assert found.ranks == (5,)
    assert found.workers == (Worker(2, 1),)
    assert found.dead == {Worker(0, 0), Worker(3, 1), Worker(1, 0), Worker(2, 1)}
    assert bool(found)
    assert not FailureSet()


def test_node_smaller_and_larger_than_a_worker() -> None:
    """A node of one GPU takes its worker down; a node of 8 GPUs takes four."""
    assert parse_failures(job_on_nodes(gpus_per_node=1), ["n3"]).dead == {Worker(0, 1)}
    assert parse_failures(job_on_nodes(gpus_per_node=8), ["n0"]).dead == {
        Worker(0, 0),
        Worker(0, 1),
        Worker(1, 0),
        Worker(1, 1),
    }


def test_rank_of_a_failed_node_is_not_listed_again() -> None:
    """Ranks list what failed by itself."""
    assert parse_failures(job_on_nodes(), ["n0", "rank:1"]).ranks == ()


def test_the_slowest_word_counts_and_death_outdoes_it() -> None:
    """A worker degraded twice has the smaller factor, at full speed none, and a dead one no speed."""
    found = parse_failures(
        job_on_nodes(), ["n0"], ["n[0-1]=0.7", "worker:0/1=.5", "rank:2=0.9", "worker:1/0=1", "worker:1/1=1.0"]
    )
    assert found.dead == {Worker(0, 0)}
    assert found.speeds_ppm == {Worker(0, 1): 500_000}


@pytest.mark.parametrize(
    "factor",
    [
        "0",
        "0.0",
        "-0.5",
        "1.1",
        "1.0001",
        "2",
        "nan",
        "inf",
        "-inf",
        "1e-3",
        "",
        " 0.5",
        "0.5 ",
        "0,5",
        "٠.٥",
        "0.0000001",
    ],
)
def test_factor_outside_its_range_is_refused(factor: str) -> None:
    """A speed factor is above 0 and at most 1, written in digits."""
    with pytest.raises(FailureSetError, match="speed factor"):
        parse_failures(job_on_nodes(), [], [f"n0={factor}"])


@pytest.mark.parametrize(("factor", "speed"), [("0.7", 700_000), ("0.000001", 1), ("0.999999", 999_999)])
def test_factor_becomes_parts_per_million(factor: str, speed: int) -> None:
    """Factors are kept to a millionth."""
    assert parse_failures(job_on_nodes(), [], [f"worker:0/0={factor}"]).speeds_ppm == {Worker(0, 0): speed}


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("n8", "node n8"),
        ("n[0-20]", "and others"),
        ("rank:16", "rank '16' does not exist"),
        ("rank:-1", "does not exist"),
        ("rank:01", "does not exist"),
        ("rank:", "does not exist"),
        ("rank:99999999999999999999", "does not exist"),
        ("worker:4/0", "worker 4/0 does not exist"),
        ("worker:0/2", "worker 0/2 does not exist"),
        ("worker:0", "worker"),
        ("worker:a/b", "worker"),
        ("gpu:3", "cannot be read"),
        (":", "cannot be read"),
    ],
)
def test_unknown_target_is_refused(target: str, message: str) -> None:
    """Targets that the job does not have are refused by name."""
    with pytest.raises(FailureSetError, match=message):
        parse_failures(job_on_nodes(), [target])


@pytest.mark.parametrize("target", ["", "n[", "n[1-0]", "n0 n1", "n0,"])
def test_malformed_hostlist_is_refused(target: str) -> None:
    """A malformed hostlist is refused as such."""
    with pytest.raises(HostlistError):
        parse_failures(job_on_nodes(), [target])


def test_degraded_target_needs_a_factor() -> None:
    """A degraded target without a factor is refused."""
    with pytest.raises(FailureSetError, match="has no speed"):
        parse_failures(job_on_nodes(), [], ["n0"])


def test_too_many_targets_are_refused() -> None:
    """The number of targets is limited."""
    with pytest.raises(FailureSetError, match="expected at most"):
        parse_failures(job_on_nodes(), ["n0"] * (MAX_TARGETS + 1))


def test_targets_that_name_too_many_nodes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes are counted over all failed and degraded targets together."""
    monkeypatch.setattr("planner.failures.MAX_NAMED_NODES", 20)
    # 8 nodes a target: two targets name 16, three 24.
    parse_failures(job_on_nodes(), ["n[0-7]"], ["n[0-7]=0.5"])
    with pytest.raises(FailureSetError, match="more than 20 nodes"):
        parse_failures(job_on_nodes(), ["n[0-7]"], ["n[0-7]=0.5"] * 2)


def test_gpu_of_no_worker_takes_nothing_down() -> None:
    """A failed node whose GPUs are idle is listed and takes no worker down."""
    job = replace(job_on_nodes(), layout=TableLayout(num_slots=2, rows=((0,), (1,), (2,), (3,))), microbatches=(2, 2))
    found = parse_failures(job, ["n7"])
    assert (found.nodes, found.dead) == (("n7",), frozenset())


@given(st.lists(st.text(alphabet="n0123rankwoe:/=.[-],", max_size=12), max_size=3))
def test_any_text_is_read_or_refused(texts: list[str]) -> None:
    """No text raises anything but an input error."""
    job = job_on_nodes()
    for fail, degrade in ((texts, []), ([], texts)):
        try:
            found = parse_failures(job, fail, degrade)
        except InputError:
            continue
        assert all(0 < speed < 1_000_000 for speed in found.speeds_ppm.values())
