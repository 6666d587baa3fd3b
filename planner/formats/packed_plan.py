"""Packed plans: what the store keeps of a template, some hundredth of the size of its plan file.

::

    "RPPK" | version, 1 byte | plan_id, 32 bytes | zlib stream of: head length, 4 bytes | head, JSON | columns

The head holds sizes, ``wall_s`` and everything of the plan but its schedule. The columns are little-endian, as narrow
as the problem's sizes allow, one after another: operations of each worker (4 bytes); then for each operation its
kind, stage, home pipeline and microbatch; the distinct waits, ascending (8 bytes); for each operation which of them it has.
A home is counted from the worker's own pipeline, and a wait is the time from the end of the operation ahead (from 0 for a
worker's first), so that pipelines that do the same read the same: that is what makes columns small. Ends follow from
the problem.

Reading checks the length before anything is unfolded, the form of the head, and the id of what was understood; whether the
schedule keeps its problem's constraints is for :func:`planner.plan_check.check_plan` to say.
"""

from __future__ import annotations

import json
import zlib
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from planner.errors import DocumentLimitError, PlanFileError, PlanHashError, ReplanError
from planner.failure_key import parse_failure_key
from planner.formats.plan_document import FactsForm, operation_durations, plan_from_facts, problem_from_form
from planner.job import MAX_JOB_OPERATIONS
from planner.matching import reroutes_of
from planner.operation import Kind
from planner.peer_pairs import schedule_pairs
from planner.plan import Plan, PlanStatus
from planner.plan_content import canonical_json, plan_facts
from planner.problem import Problem
from planner.schedule import IntColumn, Schedule
from planner.template import Template

MAGIC = b"RPPK"
VERSION = 1
MAX_PACKED_BYTES = 64 * 2**20
"""Longest packed plan that is read."""
MAX_HEAD_BYTES = 128 * 2**20
"""Longest head that is read."""

_MAX_ROW_BYTES = 1 + 2 + 4 + 4 + 8 + 4
_MAX_BODY_BYTES = 4 + MAX_HEAD_BYTES + _MAX_ROW_BYTES * MAX_JOB_OPERATIONS + 4 * 2**20
_LEVEL = 6


class _Head(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    num_operations: Annotated[int, Field(ge=0, le=MAX_JOB_OPERATIONS)]
    num_waits: Annotated[int, Field(ge=0, le=MAX_JOB_OPERATIONS)]
    wall_s: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    facts: FactsForm


def pack_plan(plan: Plan) -> bytes:
    """Pack a plan; :func:`unpack_plan` gives an equal one back.

    Raises
    ------
    PlanFileError
        If an operation does not last as long as the problem says, or a number does not fit its column.
    """
    schedule, problem = plan.schedule, plan.problem
    worker = schedule.worker_of_row()
    if np.any(
        schedule.end_ns - schedule.start_ns != operation_durations(problem, worker, schedule.kind, schedule.stage)
    ):
        raise PlanFileError("an operation of the plan does not last as long as its problem says")
    if np.any(schedule.pipeline >= schedule.num_pipelines) or np.any(schedule.microbatch >= max(problem.microbatches)):
        raise PlanFileError("the plan names a microbatch that its problem does not have")
    waits, wait = np.unique(schedule.start_ns - _ends_ahead(schedule.offsets, schedule.end_ns), return_inverse=True)
    columns = (
        schedule.kind,
        schedule.stage,
        (schedule.pipeline - worker // schedule.num_slots) % schedule.num_pipelines,
        schedule.microbatch,
        waits,
        wait,
    )
    head = canonical_json(
        {
            "num_operations": schedule.num_operations,
            "num_waits": len(waits),
            "wall_s": float(plan.wall_s),
            "facts": plan_facts(plan),
        }
    )
    body = [len(head).to_bytes(4, "little"), head, np.diff(schedule.offsets).astype("<u4").tobytes()]
    body += [c.astype(code).tobytes() for c, code in zip(columns, _codes(problem, len(waits)), strict=True)]
    packed = zlib.compress(b"".join(body), _LEVEL)
    return MAGIC + bytes([VERSION]) + bytes.fromhex(plan.plan_id) + packed


def unpack_plan(data: bytes) -> Plan:
    """Read a packed plan.

    Raises
    ------
    DocumentLimitError
        If the bytes are more, or unfold to more, than a packed plan may have.
    PlanFileError
        If the bytes are not a packed plan of this version, are cut short, or contradict themselves.
    PlanHashError
        If what was read does not have the id that stands in front.
    """
    _require_head(data)
    plan = _plan_from_body(_inflate(data[37:]))
    if plan.plan_id != data[5:37].hex():
        raise PlanHashError(
            f"the packed plan has the id {plan.plan_id}, it says {data[5:37].hex()!r}: it is damaged",
            hint="make the plan again",
        )
    return plan


def unpack_template(data: bytes) -> Template:
    """Read of a packed plan what has to be remembered of it, some four times as fast as the whole plan.

    The id is taken from the front and not worked out again: for bytes whose own checksum was compared.

    Raises
    ------
    DocumentLimitError, PlanFileError
        As :func:`unpack_plan` does.
    """
    _require_head(data)
    head, problem, schedule = _read_body(_inflate(data[37:]))
    facts, result = head.facts, head.facts.result
    try:
        key = parse_failure_key(facts.failures.key)
    except ReplanError as error:
        raise _contradiction(error) from error
    return Template(
        plan_id=data[5:37].hex(),
        job_sha256=facts.job.sha256,
        problem=problem,
        failure_key=key,
        period_ns=result.period_ns,
        bound_ns=result.bound.ns,
        bound_name=result.bound.name,
        bound_slot=result.bound.slot,
        status=PlanStatus(result.status),
        fault_free_ns=result.fault_free_ns,
        solver=facts.provenance.solver,
        reroutes=reroutes_of(schedule),
        pairs=schedule_pairs(schedule),
    )


def packed_plan_id(data: bytes) -> str:
    """Id that stands in front of a packed plan, without reading the rest.

    Raises
    ------
    PlanFileError
        If the bytes do not begin as a packed plan does.
    """
    if data[:5] != MAGIC + bytes([VERSION]) or len(data) < 37:
        raise PlanFileError("not a packed plan of this version")
    return data[5:37].hex()


def _require_head(data: bytes) -> None:
    if len(data) > MAX_PACKED_BYTES:
        raise DocumentLimitError(f"a packed plan has {len(data)} bytes; expected at most {MAX_PACKED_BYTES}")
    if data[:4] != MAGIC:
        raise PlanFileError("not a packed plan")
    if data[4:5] != bytes([VERSION]):
        raise PlanFileError(
            f"packed plan has version {int.from_bytes(data[4:5], 'little')}; this version reads {VERSION}",
            hint="make the plan again",
        )


def _inflate(stream: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        body = inflater.decompress(stream, _MAX_BODY_BYTES)
    except zlib.error as error:
        raise PlanFileError("the packed plan is damaged", hint="make the plan again") from error
    if inflater.unconsumed_tail:
        raise DocumentLimitError(f"the packed plan unfolds to more than {_MAX_BODY_BYTES} bytes")
    if not inflater.eof or inflater.unused_data:
        raise PlanFileError("the packed plan is cut short, or something follows it", hint="make the plan again")
    return body


def _plan_from_body(body: bytes) -> Plan:
    head, problem, schedule = _read_body(body)
    try:
        return plan_from_facts(head.facts, problem, schedule, head.wall_s)
    except PlanFileError:
        raise
    except ReplanError as error:
        raise _contradiction(error) from error


def _read_body(body: bytes) -> tuple[_Head, Problem, Schedule]:
    length = int.from_bytes(body[:4], "little")
    if len(body) < 4 + length:
        raise PlanFileError("the packed plan is cut short within its head")
    try:
        head = _Head.model_validate(json.loads(body[4 : 4 + length]))
        problem = problem_from_form(head.facts.problem)
        return head, problem, _schedule(problem, head, memoryview(body)[4 + length :])
    except (ValidationError, ValueError, RecursionError) as error:
        raise PlanFileError("the head of the packed plan cannot be read", hint="make the plan again") from error
    except PlanFileError:
        raise
    except ReplanError as error:
        raise _contradiction(error) from error


def _contradiction(error: ReplanError) -> PlanFileError:
    return PlanFileError(f"the packed plan's parts contradict each other: {error.message}")


def _codes(problem: Problem, num_waits: int) -> tuple[np.dtype[Any], ...]:
    """Types of the columns kind, stage, home, microbatch, distinct waits and wait."""
    limits = (len(Kind), problem.num_stages, problem.num_pipelines, max(problem.microbatches))
    narrow = [np.min_scalar_type(limit - 1).newbyteorder("<") for limit in (*limits, max(num_waits, 1))]
    return (*narrow[:4], np.dtype("<i8"), narrow[4])


def _schedule(problem: Problem, head: _Head, body: memoryview) -> Schedule:
    num_workers, rows = problem.num_pipelines * problem.num_slots, head.num_operations
    codes = _codes(problem, head.num_waits)
    lengths = (rows, rows, rows, rows, head.num_waits, rows)
    if len(body) != 4 * num_workers + sum(n * code.itemsize for n, code in zip(lengths, codes, strict=True)):
        raise PlanFileError(f"the packed plan has {len(body)} bytes of columns; expected another number")
    counts = np.frombuffer(body, "<u4", num_workers).astype(np.int64)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    if offsets[-1] != rows:
        raise PlanFileError(f"the packed plan's workers have {offsets[-1]} operations; expected {rows}")
    at = 4 * num_workers
    columns: list[IntColumn] = []
    for n, code in zip(lengths, codes, strict=True):
        columns.append(np.frombuffer(body, code, n, at).astype(np.int64))
        at += code.itemsize * n
    kind, stage, home, microbatch, waits, wait = columns
    for name, column, limit in (
        ("kind", kind, len(Kind)),
        ("stage", stage, problem.num_stages),
        ("pipeline", home, problem.num_pipelines),
        ("microbatch", microbatch, max(problem.microbatches)),
        ("wait", wait, head.num_waits),
    ):
        if int(column.max(initial=-1)) >= limit:
            raise PlanFileError(f"the packed plan names {name} {column.max()}; expected below {limit}")
    worker = np.repeat(np.arange(num_workers), np.diff(offsets))
    duration = operation_durations(problem, worker, kind, stage)
    end = _cumulated(offsets, (waits[wait] if rows else wait) + duration)
    return Schedule(
        num_pipelines=problem.num_pipelines,
        num_slots=problem.num_slots,
        offsets=offsets,
        kind=kind,
        stage=stage,
        pipeline=(home + worker // problem.num_slots) % problem.num_pipelines,
        microbatch=microbatch,
        start_ns=end - duration,
        end_ns=end,
    )


def _ends_ahead(offsets: IntColumn, end_ns: IntColumn) -> IntColumn:
    """End of the operation ahead of each row on its worker; 0 for a worker's first."""
    ahead = np.concatenate([np.zeros(1, np.int64), end_ns])[: len(end_ns)]
    ahead[offsets[:-1][np.diff(offsets) > 0]] = 0
    return ahead


def _cumulated(offsets: IntColumn, steps: IntColumn) -> IntColumn:
    """Sum of the steps of each worker up to each row."""
    sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(steps)])
    cumulated: IntColumn = sums[1:] - np.repeat(sums[offsets[:-1]], np.diff(offsets))
    return cumulated
