"""A timeline as bytes that a browser draws from without parsing: a JSON head, then columns of numbers.

::

    0   4   b"RPTL"
    4   4   length of the head, little-endian
    8   .   the head, JSON in ASCII, filled up with spaces to a multiple of 8
    .   .   columns, little-endian, each filled up with zeros to a multiple of 8

The head's ``columns`` name each column with its type (``f64``, ``u32``, ``u16`` or ``u8``), its number of values and the byte it
begins at, counted from the end of the head. Nanoseconds and bytes are ``f64``: exact, since all are below ``2**53``.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt

from planner.errors import PlanFileError
from planner.operation import Worker
from planner.plan import Plan
from planner.timeline import Timeline, timeline_of

MAGIC = b"RPTL"
VERSION = 1
MEDIA_TYPE = "application/vnd.replan.timeline"
_TYPES = {"f64": "<f8", "u32": "<u4", "u16": "<u2", "u8": "u1"}
_ALIGNED = 8


def dump_timeline(plan: Plan) -> bytes:
    """Bytes of a plan's timeline."""
    timeline = timeline_of(plan)
    columns: list[dict[str, Any]] = []
    content = bytearray()
    for name, kind, values in _columns(timeline):
        columns.append({"name": name, "type": kind, "count": len(values), "offset": len(content)})
        content += np.ascontiguousarray(values, dtype=_TYPES[kind]).tobytes()
        content += bytes(-len(content) % _ALIGNED)
    head = json.dumps({**_facts(plan, timeline), "columns": columns}, separators=(",", ":")).encode("ascii")
    head += b" " * (-len(head) % _ALIGNED)
    return MAGIC + len(head).to_bytes(4, "little") + head + bytes(content)


def read_timeline(data: bytes) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Head and columns of a timeline's bytes.

    Raises
    ------
    PlanFileError
        If they are not such bytes.
    """
    if data[:4] != MAGIC:
        raise PlanFileError("not a timeline")
    end = 8 + int.from_bytes(data[4:8], "little")
    try:
        head = json.loads(data[8:end])
        columns = {
            column["name"]: np.frombuffer(data, _TYPES[column["type"]], column["count"], end + column["offset"])
            for column in head["columns"]
        }
    except (ValueError, KeyError, TypeError) as error:
        raise PlanFileError("the timeline is damaged or cut short") from error
    return head, columns


def _columns(timeline: Timeline) -> tuple[tuple[str, str, npt.NDArray[Any]], ...]:
    schedule = timeline.schedule
    return (
        ("offsets", "u32", schedule.offsets),
        ("start_ns", "f64", timeline.start_ns),
        ("end_ns", "f64", timeline.end_ns),
        ("held_bytes", "f64", timeline.held_bytes),
        ("home", "u32", schedule.pipeline),
        ("microbatch", "u32", schedule.microbatch),
        ("stage", "u16", schedule.stage),
        ("kind", "u8", schedule.kind),
        ("rerouted", "u8", timeline.rerouted),
    )


def _facts(plan: Plan, timeline: Timeline) -> dict[str, Any]:
    problem = plan.problem

    def index(worker: Worker) -> int:
        return worker.pipeline * problem.num_slots + worker.slot

    return {
        "version": VERSION,
        "plan_id": plan.plan_id,
        "job": plan.job_name,
        "status": plan.status.value,
        "period_ns": plan.period_ns,
        "bound_ns": plan.bound_ns,
        "fault_free_ns": plan.fault_free_ns,
        "baseline_1f1b_ns": plan.baseline_1f1b_ns,
        "failures": plan.failures_text(),
        "solver": plan.solver,
        "optimizer": problem.optimizer.value,
        "num_pipelines": problem.num_pipelines,
        "num_slots": problem.num_slots,
        "span_ns": timeline.span_ns,
        "dead": sorted(index(worker) for worker in problem.dead),
        "slow": sorted([index(worker), ppm] for worker, ppm in problem.speeds_ppm.items()),
        "ranks": list(plan.worker_ranks),
        "slots": [
            {
                "stages": list(slot.stages),
                "sync_start_ns": sync.start_ns,
                "sync_ns": sync.duration_ns,
                "capacity_bytes": slot.capacity_bytes,
            }
            for slot, sync in zip(problem.slots, timeline.syncs, strict=True)
        ],
    }
