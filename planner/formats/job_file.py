"""Job files: YAML or JSON in, a :class:`planner.job.Job` out, and back.

Whatever is wrong with a file comes out as :class:`~planner.errors.JobFileError` that names the field, what was found and
what was expected (:class:`~planner.errors.DocumentLimitError` where the file is too large or too deep).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pydantic import ValidationError

from planner.errors import InputError, JobFileError
from planner.formats.bounded import place_of
from planner.formats.documents import Format, format_of, parse_document, read_text
from planner.formats.job_models import SCHEMA_VERSION, JobModel, LayoutModel, RecoveryModel, StageModel, TopologyModel
from planner.hostlist import compress_hostlist, expand_hostlist
from planner.job import Job, JobStage, OptimizerState, Placement, Recovery, place_stages
from planner.layout import (
    DEFAULT_RANK_ORDER,
    OrderedLayout,
    TableLayout,
    order_from_megatron,
    order_from_mesh,
)
from planner.operation import Worker, parse_worker
from planner.problem import Optimizer, Stage
from planner.topology import Topology, uniform_racks
from planner.units import ns_to_us, us_to_ns

_NODE_GPU = re.compile(r"(.+):(0|[1-9][0-9]{0,3})")
_STAGE_NUMBER = re.compile(r"0|[1-9][0-9]{0,3}")
_SHOWN_ERRORS = 5
_SHOWN_PATH = 200


def load_job(path: str | os.PathLike[str]) -> Job:
    """Read a job file; the format follows its ending, ``.yaml``, ``.yml`` or ``.json``.

    Raises
    ------
    JobFileError
        If the file cannot be read or does not describe a job.
    DocumentLimitError
        If the file is too large or nested too deep.
    """
    text = read_text(path)
    return parse_job(text, format=format_of(path, text))


def parse_job(text: str, *, format: Format = "yaml") -> Job:  # noqa: A002 - the word callers know
    """Read the text of a job file.

    Raises
    ------
    JobFileError, DocumentLimitError
        As :func:`load_job` does.
    """
    return job_from_document(parse_document(text, format=format))


def job_from_document(document: object) -> Job:
    """Job of plain data, as a YAML or JSON reader gives it.

    Raises
    ------
    JobFileError
        If the data does not describe a job.
    """
    if not isinstance(document, dict):
        raise JobFileError(f"the document is {_found(document)}; expected a mapping with the fields of a job")
    try:
        model = JobModel.model_validate(document)
    except ValidationError as error:
        raise JobFileError(_explain(error, document)) from error
    return job_from_model(model)


def job_from_model(model: JobModel) -> Job:
    """Job of a validated model.

    Raises
    ------
    JobFileError
        If the parts do not fit together.
    """
    topology = _topology(model.topology)
    layout = _layout(model.layout, topology)
    placement, slot_stages = _placement(model, layout.num_slots)
    stages = _stages(model, sum(len(held) for held in slot_stages))
    capacity, microbatches = model.capacity_bytes, model.microbatches
    with _at("job"):
        return Job(
            name=model.name,
            topology=topology,
            layout=layout,
            placement=placement,
            slot_stages=slot_stages,
            stages=stages,
            capacity_bytes=tuple(capacity) if isinstance(capacity, list) else (capacity,) * layout.num_slots,
            microbatches=tuple(microbatches)
            if isinstance(microbatches, list)
            else (microbatches,) * layout.num_pipelines,
            optimizer=Optimizer(model.optimizer),
            optimizer_state=OptimizerState(model.optimizer_state),
            recovery=Recovery(**model.recovery.model_dump()),
        )


def job_to_document(job: Job) -> dict[str, Any]:
    """Plain data of a job, which :func:`job_from_document` turns into an equal job."""
    return {
        "schema_version": SCHEMA_VERSION,
        "name": job.name,
        "topology": _topology_document(job.topology),
        "layout": _layout_document(job.layout),
        "placement": (
            [list(held) for held in job.slot_stages] if job.placement is Placement.EXPLICIT else str(job.placement)
        ),
        "stages": [_stage_document(stage) for stage in job.stages],
        "capacity_bytes": list(job.capacity_bytes),
        "microbatches": list(job.microbatches),
        "optimizer": str(job.optimizer),
        "optimizer_state": str(job.optimizer_state),
        "recovery": {name: getattr(job.recovery, name) for name in RecoveryModel.model_fields},
    }


@contextmanager
def _at(path: str) -> Iterator[None]:
    """Name the field at which a domain object refused its input."""
    try:
        yield
    except JobFileError:
        raise
    except InputError as error:
        raise JobFileError(f"{path}: {error.message}", hint=error.hint) from error


def _topology(model: TopologyModel) -> Topology:
    with _at("topology.nodes"):
        nodes = expand_hostlist(model.nodes if isinstance(model.nodes, str) else ",".join(model.nodes))
    if model.racks is None:
        with _at("topology"):
            return uniform_racks(nodes, model.gpus_per_node, model.nodes_per_rack)
    if model.nodes_per_rack is not None:
        raise JobFileError("topology: both racks and nodes_per_rack are given; expected one of them")
    rack_of: dict[str, int] = {}
    known = set(nodes)
    for r, (rack, text) in enumerate(model.racks.items()):
        path = f"topology.racks[{rack!r}]"
        with _at(path):
            names = expand_hostlist(text)
        for name in names:
            if name not in known:
                raise JobFileError(f"{path}: node {name} is not among topology.nodes")
            if name in rack_of:
                raise JobFileError(f"{path}: node {name} already stands in a rack; expected each node once")
            rack_of[name] = r
    missing = [name for name in nodes if name not in rack_of]
    if missing:
        raise JobFileError(f"topology.racks: node {missing[0]} stands in no rack; expected each node once")
    with _at("topology"):
        return Topology(
            nodes=nodes,
            gpus_per_node=model.gpus_per_node,
            racks=tuple(model.racks),
            rack_of_node=tuple(rack_of[name] for name in nodes),
        )


def _layout(model: LayoutModel, topology: Topology) -> OrderedLayout | TableLayout:
    if model.workers is not None:
        if model.model_fields_set != {"workers"}:
            others = ", ".join(sorted(model.model_fields_set - {"workers"}))
            raise JobFileError(f"layout: workers stands beside {others}; expected workers alone")
        return _table_layout(model.workers, topology)
    if model.pipeline_parallel is None or model.data_parallel is None:
        missing = "pipeline_parallel" if model.pipeline_parallel is None else "data_parallel"
        raise JobFileError(f"layout.{missing}: missing; expected a size, or workers instead of sizes")
    order = model.rank_order
    with _at("layout"):
        return OrderedLayout(
            tensor_parallel=model.tensor_parallel,
            context_parallel=model.context_parallel,
            expert_parallel=model.expert_parallel,
            pipeline_parallel=model.pipeline_parallel,
            data_parallel=model.data_parallel,
            rank_order=(
                DEFAULT_RANK_ORDER
                if order is None
                else order_from_megatron(order)
                if isinstance(order, str)
                else order_from_mesh(order)
            ),
        )


def _table_layout(table: dict[str, str | list[int | str]], topology: Topology) -> TableLayout:
    rows: dict[Worker, tuple[int, ...]] = {}
    num_named = 0
    for key, entries in table.items():
        path = f"layout.workers[{key!r}]"
        with _at(path):
            worker = parse_worker(key)
            row: list[int] = []
            for entry in [entries] if isinstance(entries, str) else entries:
                row.extend(_gpus(entry, topology, path))
                # Short hostlists stand for many GPUs, so what they name is counted before more is expanded.
                if num_named + len(row) > topology.num_gpus:
                    raise JobFileError(
                        f"{path}: the table names more than the {topology.num_gpus} GPUs there are; expected each at most once"
                    )
            rows[worker] = tuple(row)
            num_named += len(row)
    if not rows:
        raise JobFileError("layout.workers: no worker; expected at least 0/0")
    num_pipelines, num_slots = 1 + max(w.pipeline for w in rows), 1 + max(w.slot for w in rows)
    if len(rows) != num_pipelines * num_slots:
        missing = next(Worker(k, s) for k in range(num_pipelines) for s in range(num_slots) if Worker(k, s) not in rows)
        raise JobFileError(
            f"layout.workers: worker {missing} is missing; expected all of {num_pipelines} pipelines x {num_slots} slots"
        )
    with _at("layout.workers"):
        return TableLayout(num_slots=num_slots, rows=tuple(rows[worker] for worker in sorted(rows)))


def _gpus(entry: int | str, topology: Topology, path: str) -> Sequence[int]:
    """GPUs that one entry of a worker's row names."""
    if isinstance(entry, int):
        if not 0 <= entry < topology.num_gpus:
            raise JobFileError(f"{path}: GPU {entry} does not exist; expected 0 to {topology.num_gpus - 1}")
        return (entry,)
    match = _NODE_GPU.fullmatch(entry)
    names = (match[1],) if match is not None else expand_hostlist(entry)
    for name in names:
        if name not in topology.index_of_node:
            raise JobFileError(f"{path}: node {name} is not among topology.nodes")
    if match is None:
        return [gpu for name in names for gpu in topology.gpus_of_node(name)]
    if int(match[2]) >= topology.gpus_per_node:
        raise JobFileError(f"{path}: {entry} does not exist; a node has GPUs 0 to {topology.gpus_per_node - 1}")
    return (topology.gpus_of_node(match[1])[int(match[2])],)


def _placement(model: JobModel, num_slots: int) -> tuple[Placement, tuple[tuple[int, ...], ...]]:
    given = len(model.stages) if model.stages is not None else model.num_stages
    if model.stages is not None and model.num_stages not in (None, given):
        raise JobFileError(f"num_stages: found {model.num_stages}; expected {given}, the length of stages")
    if isinstance(model.placement, list):
        held = tuple(tuple(sorted(stages)) for stages in model.placement)
        count = sum(len(stages) for stages in held)
        if len(held) != num_slots:
            raise JobFileError(f"placement: lists {len(held)} slots; expected {num_slots}, the pipeline-parallel size")
        if sorted(v for stages in held for v in stages) != list(range(count)) or given not in (None, count):
            raise JobFileError(
                f"placement: the slots list {count} stages; expected each of 0..{(given or count) - 1} exactly once"
            )
        if not all(held):
            raise JobFileError(f"placement[{held.index(())}]: no stage; expected at least one in each slot")
        return Placement.EXPLICIT, held
    placement = Placement(model.placement)
    if given is None:
        if placement is Placement.LOOP:
            raise JobFileError("num_stages: missing; placement loop needs it (or one entry a stage in stages)")
        given = 2 * num_slots if placement is Placement.V else num_slots
    with _at("placement"):
        return placement, place_stages(placement, num_slots, given)


def _stages(model: JobModel, num_stages: int) -> tuple[JobStage, ...]:
    if model.stages is not None and model.stage_overrides is not None:
        raise JobFileError("stage_overrides: stands beside stages; expected one of them")
    overrides = model.stage_overrides or {}
    for key in overrides:
        if _STAGE_NUMBER.fullmatch(key) is None or int(key) >= num_stages:
            raise JobFileError(f"stage_overrides[{key!r}]: no such stage; expected 0 to {num_stages - 1}")
    default = _set_fields(model.stage_costs)
    built = []
    for v in range(num_stages):
        if model.stages is not None:
            path, own = f"stages[{v}]", model.stages[v]
        else:
            path, own = f"stage_overrides['{v}']", overrides.get(str(v), StageModel())
        if str(v) not in overrides and model.stages is None:
            path = "stage_costs"
        built.append(_stage(StageModel.model_construct(**{**default, **_set_fields(own)}), path))
    return tuple(built)


def _set_fields(model: StageModel) -> dict[str, Any]:
    return {name: getattr(model, name) for name in model.model_fields_set}


def _stage(model: StageModel, path: str) -> JobStage:
    for name in ("forward_us", "input_grad_us", "weight_grad_us"):
        if getattr(model, name) is None:
            raise JobFileError(f"{path}.{name}: missing; expected microseconds here or in stage_costs")

    def ns(name: str) -> int:
        return us_to_ns(getattr(model, name), what=name)

    with _at(path):
        return JobStage(
            costs=Stage(
                forward_ns=ns("forward_us"),
                input_grad_ns=ns("input_grad_us"),
                weight_grad_ns=ns("weight_grad_us"),
                transfer_ns=ns("transfer_us"),
                activation_bytes=model.activation_bytes,
                weight_grad_bytes=model.weight_grad_bytes,
                splittable=model.splittable,
            ),
            all_reduce_ns=ns("all_reduce_us"),
            optimizer_ns=ns("optimizer_us"),
            parameter_bytes=model.parameter_bytes,
            optimizer_state_bytes=model.optimizer_state_bytes,
        )


def _topology_document(topology: Topology) -> dict[str, Any]:
    document: dict[str, Any] = {
        "nodes": compress_hostlist(topology.nodes),
        "gpus_per_node": topology.gpus_per_node,
    }
    nodes_per_rack = topology.rack_of_node.count(topology.rack_of_node[0])
    if topology == uniform_racks(topology.nodes, topology.gpus_per_node, nodes_per_rack):
        return document if len(topology.racks) == 1 else {**document, "nodes_per_rack": nodes_per_rack}
    members: dict[int, list[str]] = {r: [] for r in range(len(topology.racks))}
    for name, r in zip(topology.nodes, topology.rack_of_node, strict=True):
        members[r].append(name)
    return {**document, "racks": {topology.racks[r]: compress_hostlist(names) for r, names in members.items()}}


def _layout_document(layout: OrderedLayout | TableLayout) -> dict[str, Any]:
    if isinstance(layout, TableLayout):
        return {
            "workers": {
                f"{index // layout.num_slots}/{index % layout.num_slots}": list(row)
                for index, row in enumerate(layout.rows)
            }
        }
    return {
        "tensor_parallel": layout.tensor_parallel,
        "context_parallel": layout.context_parallel,
        "expert_parallel": layout.expert_parallel,
        "pipeline_parallel": layout.pipeline_parallel,
        "data_parallel": layout.data_parallel,
        "rank_order": "-".join(layout.rank_order),
    }


def _stage_document(stage: JobStage) -> dict[str, Any]:
    costs = stage.costs
    return {
        "forward_us": ns_to_us(costs.forward_ns),
        "input_grad_us": ns_to_us(costs.input_grad_ns),
        "weight_grad_us": ns_to_us(costs.weight_grad_ns),
        "splittable": costs.splittable,
        "transfer_us": ns_to_us(costs.transfer_ns),
        "activation_bytes": costs.activation_bytes,
        "weight_grad_bytes": costs.weight_grad_bytes,
        "all_reduce_us": ns_to_us(stage.all_reduce_ns),
        "optimizer_us": ns_to_us(stage.optimizer_ns),
        "parameter_bytes": stage.parameter_bytes,
        "optimizer_state_bytes": stage.optimizer_state_bytes,
    }


def _explain(error: ValidationError, document: dict[str, Any]) -> str:
    """What is wrong, one line a field: its path, what was found, what was expected."""
    expected: dict[str, list[str]] = {}
    found: dict[str, str] = {}
    for item in error.errors(include_url=False):
        path, value = _path(item["loc"], document, missing=item["type"] == "missing")
        if item["type"] == "missing":
            found[path], wanted = "missing", "a value"
        elif item["type"] == "extra_forbidden":
            found[path], wanted = "unknown key", "one of the documented fields"
        else:
            found[path], wanted = f"found {_found(value)}", item["msg"].removeprefix("Value error, expected ")
        wanted = wanted.removeprefix("Input should be ").removeprefix("a valid ")
        expected.setdefault(path, [])
        if wanted not in expected[path]:
            expected[path].append(wanted)
    lines = [f"{path}: {found[path]}; expected {' or '.join(wanted)}" for path, wanted in expected.items()]
    if len(lines) > _SHOWN_ERRORS:
        lines = [*lines[:_SHOWN_ERRORS], f"and {len(lines) - _SHOWN_ERRORS} more"]
    return "\n".join(lines)


def _path(loc: tuple[int | str, ...], document: dict[str, Any], *, missing: bool) -> tuple[str, Any]:
    """Path of a field in the document, and what stands there; names of union members in ``loc`` are no part of it."""
    path = ""
    steps, value = place_of(loc, document, is_missing=missing)
    for step in steps:
        plain = isinstance(step, str) and step.isidentifier()
        path += (f".{step}" if path else str(step)) if plain else f"[{step!r}]"
    return path if len(path) <= _SHOWN_PATH else f"{path[:_SHOWN_PATH]}...", value


def _found(value: object) -> str:
    """A value as it is shown in a message, cut to a readable length."""
    if isinstance(value, (dict, list)):
        return f"a {'mapping' if isinstance(value, dict) else 'list'} of {len(value)}"
    text = repr(value) if value is not None else "null"
    return text if len(text) <= 60 else f"{text[:57]}..."
