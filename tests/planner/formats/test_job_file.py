"""Job files: what is read, what is refused, and the round trip."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from planner.errors import DocumentLimitError, JobFileError
from planner.formats.job_file import job_from_document, job_to_document, load_job, parse_job
from planner.job import Placement
from planner.operation import Worker


def document(**changes: Any) -> dict[str, Any]:
    """2 pipelines x 2 slots with one GPU a worker, two a node; dotted paths use two underscores."""
    base: dict[str, Any] = {
        "schema_version": 1,
        "name": "job",
        "topology": {"nodes": "n[1-2]", "gpus_per_node": 2},
        "layout": {"pipeline_parallel": 2, "data_parallel": 2, "rank_order": "pp-dp"},
        "microbatches": 4,
        "stage_costs": {"forward_us": 1.5, "input_grad_us": 1, "weight_grad_us": 1},
    }
    for path, value in changes.items():
        *parents, last = path.split("__")
        at = base
        for name in parents:
            at = at[name]
        at[last] = copy.deepcopy(value)
    return base


def test_smallest_job() -> None:
    """A job of required fields only; the same from YAML and JSON."""
    job = job_from_document(document())
    assert job.stages[0].costs.forward_ns == 1500
    assert (job.microbatches, job.capacity_bytes) == ((4, 4), (None, None))
    assert job.nodes_of_worker(Worker(1, 0)) == ("n2",)
    text = json.dumps(document())
    assert parse_job(text, format="json") == parse_job(text, format="yaml") == job


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"topology__nodes_per_rack": 1},
        {"topology__racks": {"x": "n2", "y": "n1"}},
        {"layout": {"workers": {"0/0": [0], "0/1": ["n2:1"], "1/0": [1], "1/1": [2]}}},
        {"layout": {"workers": {"0/0": "n1", "1/0": ["n2"]}}},
        {"layout__rank_order": ["dp", "pp"]},
        {"placement": "v"},
        {"placement": "loop", "num_stages": 6},
        {"placement": [[0, 2], [1]]},
        {"capacity_bytes": ["1.5 GiB", None], "stage_costs__activation_bytes": 7},
        {"stage_overrides": {"1": {"splittable": False, "parameter_bytes": 5}}},
        {"optimizer": "global", "optimizer_state": "sharded", "recovery": {"repair_s": 10}},
    ],
)
def test_round_trip(changes: dict[str, Any]) -> None:
    """Writing a job and reading it gives an equal job."""
    job = job_from_document(document(**changes))
    written = job_to_document(job)
    assert job_from_document(json.loads(json.dumps(written))) == job


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"extra": 1}, "extra: unknown key"),
        ({"topology__extra": 1}, "topology.extra: unknown key"),
        ({"stage_costs__foward_us": 1}, "stage_costs.foward_us: unknown key"),
        ({"stages": [{}, {"x": 1}]}, r"stages\[1\].x: unknown key"),
        ({"schema_version": 2}, "schema_version: found 2"),
        ({"name": 5}, "name: found 5"),
        ({"name": ""}, "name"),
        ({"topology": []}, "topology: found a list"),
        ({"topology__gpus_per_node": "2"}, "topology.gpus_per_node: found '2'"),
        ({"topology__gpus_per_node": 2.5}, "topology.gpus_per_node: found 2.5"),
        ({"topology__gpus_per_node": True}, "topology.gpus_per_node: found True"),
        ({"microbatches": "4"}, "microbatches: found '4'"),
        ({"microbatches": -1}, "microbatches: found -1"),
        ({"microbatches": 0}, "one at least 1"),
        ({"microbatches": [1, 2, 3]}, "3 microbatch counts; expected 2"),
        ({"stage_costs__forward_us": -1}, "stage_costs.forward_us: found -1"),
        ({"stage_costs__forward_us": float("nan")}, "stage_costs.forward_us: found nan"),
        ({"stage_costs__forward_us": float("inf")}, "stage_costs.forward_us: found inf"),
        ({"stage_costs__forward_us": "1"}, "stage_costs.forward_us: found '1'"),
        ({"stage_costs__forward_us": None}, "forward_us: missing"),
        ({"stage_costs__transfer_us": -0.1}, "transfer_us: found -0.1"),
        ({"stage_costs__all_reduce_us": 1e13}, "all_reduce_us"),
        ({"stage_costs__activation_bytes": -1}, "activation_bytes: found -1"),
        ({"stage_costs__weight_grad_bytes": 1}, "weight-gradient bytes of 0"),
        ({"capacity_bytes": "lots"}, "capacity_bytes: found 'lots'"),
        ({"capacity_bytes": [1]}, "1 slot capacities; expected 2"),
        ({"layout__data_parallel": 3}, "multiply to 6 GPUs; expected 4"),
        ({"layout__tensor_parallel": 0}, "layout.tensor_parallel: found 0"),
        ({"layout__data_parallel": None}, "layout.data_parallel: missing"),
        ({"layout__rank_order": "pp-pp"}, "layout: rank order pp-pp names pp 2 times"),
        ({"layout__rank_order": "pp"}, "leaves out dp"),
        ({"layout__rank_order": ["dp", "pp", "zz"]}, "names 'zz'"),
        ({"layout__workers": {"0/0": [0]}}, "expected workers alone"),
        ({"layout": {"workers": {}}}, "no worker"),
        ({"layout": {"workers": {"0/0": ["n3"]}}}, "node n3 is not among topology.nodes"),
        ({"layout": {"workers": {"0/0": ["n1:2"]}}}, "has GPUs 0 to 1"),
        ({"layout": {"workers": {"0/0": [4]}}}, "GPU 4 does not exist"),
        ({"layout": {"workers": {"0/0": [2**60]}}}, "does not exist"),
        ({"layout": {"workers": {"0/1": [0]}}}, "worker 0/0 is missing"),
        ({"layout": {"workers": {"0/0": [0], "1/0": [0]}}}, "GPU 0 stands 2 times"),
        ({"layout": {"workers": {"x": [0]}}}, "layout.workers"),
        ({"layout": {"workers": {"0/0": ["n[1-2]"] * 1000}}}, "more than the 4 GPUs"),
        ({"topology__nodes": "n[1-"}, "topology.nodes: hostlist"),
        ({"topology__nodes": ""}, "topology.nodes: hostlist"),
        ({"topology__nodes": []}, "topology.nodes: hostlist"),
        ({"topology__nodes": "n[1-1000000000]"}, "stands for more than"),
        ({"topology__nodes": "n1,n1"}, "node n1 stands 2 times"),
        ({"topology__racks": {"x": "n[1-3]"}}, "node n3 is not among topology.nodes"),
        ({"topology__racks": {"x": "n1"}}, "node n2 stands in no rack"),
        ({"topology__racks": {"x": "n[1-2]", "y": "n1"}}, "already stands in a rack"),
        ({"topology__racks": {"x": "n[1-2]"}, "topology__nodes_per_rack": 1}, "expected one of them"),
        ({"placement": "w"}, "placement: found 'w'"),
        ({"placement": "loop"}, "num_stages: missing"),
        ({"placement": "loop", "num_stages": 3}, "multiple of 2 slots"),
        ({"placement": [[0], [0]]}, "exactly once"),
        ({"placement": [[0, 1], []]}, r"placement\[1\]: no stage"),
        ({"placement": [[0, 1]]}, "lists 1 slots; expected 2"),
        ({"stages": [{}]}, "1 stages for 2 slots"),
        ({"stages": [{}, {}], "num_stages": 3}, "num_stages: found 3; expected 2"),
        ({"stages": [{}, {}], "stage_overrides": {}}, "stands beside stages"),
        ({"stage_overrides": {"2": {}}}, "no such stage"),
        ({"stage_overrides": {"01": {}}}, "no such stage"),
        ({"optimizer": "later"}, "optimizer: found 'later'"),
        ({"recovery": {"repair_s": -1}}, "recovery.repair_s: found -1"),
    ],
)
def test_refusals_name_the_field(changes: dict[str, Any], message: str) -> None:
    """Whatever is wrong is refused with the field, what was found and what was expected."""
    with pytest.raises(JobFileError, match=message):
        job_from_document(document(**changes))


@pytest.mark.parametrize("data", [None, [], "text", 5])
def test_document_that_is_no_mapping_is_refused(data: object) -> None:
    """A job file is a mapping."""
    with pytest.raises(JobFileError, match="expected a mapping"):
        job_from_document(data)


def test_required_fields_are_named() -> None:
    """An empty mapping names what is missing, five lines at most."""
    with pytest.raises(JobFileError, match="schema_version: missing") as caught:
        job_from_document({})
    assert len(caught.value.message.splitlines()) <= 6


def test_explicit_placement_sorts_its_stages() -> None:
    """The order in which a slot lists its stages does not matter."""
    job = job_from_document(document(placement=[[2, 0], [1]]))
    assert (job.placement, job.slot_stages) == (Placement.EXPLICIT, ((0, 2), (1,)))


def test_stage_fields_override_the_common_ones() -> None:
    """A stage's own field wins over stage_costs, which wins over the default."""
    job = job_from_document(document(stages=[{"forward_us": 9}, {}], stage_costs__transfer_us=2))
    assert [stage.costs.forward_ns for stage in job.stages] == [9000, 1500]
    assert [stage.costs.transfer_ns for stage in job.stages] == [2000, 2000]


def test_files_with_limits(tmp_path: Path) -> None:
    """A file too large or too deep is refused; keys given twice too."""
    large = tmp_path / "large.yaml"
    with large.open("wb") as file:
        file.truncate(200_000_000)
    with pytest.raises(DocumentLimitError):
        load_job(large)
    for ending in ("yaml", "json"):
        deep = tmp_path / f"deep.{ending}"
        deep.write_text("[" * 10_000 + "]" * 10_000)
        with pytest.raises(DocumentLimitError):
            load_job(deep)
        twice = tmp_path / f"twice.{ending}"
        twice.write_text('{"name": "a", "name": "b"}')
        with pytest.raises(JobFileError, match="stands twice"):
            load_job(twice)
