"""Plan files: one JSON object with the plan's content and its id.

::

    {"format": "replan-plan", "schema_version": 1, "plan_id": "<64 hex digits>", "wall_s": 0.41,
     "content": {"job": ..., "failures": ..., "problem": ..., "schedule": ..., "worker_ranks": ...,
                 "result": ..., "provenance": ...}}

``plan_id`` is the sha256 of ``content`` as canonical JSON (sorted keys, no spaces, ASCII). Durations are integer
nanoseconds, so that a plan survives the way through a file to the tick. Reading checks the size, the hash, the form
and the parts' agreement, in this order; whether the schedule keeps its problem's constraints is for
:func:`planner.plan_check.check_plan` to say, which everything that takes a plan in calls.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from planner.errors import DocumentLimitError, InputError, PlanFileError, PlanHashError, ReplanError
from planner.formats.plan_document import PlanDocument, plan_from_document
from planner.formats.whole_file import write_whole
from planner.plan import Plan
from planner.plan_content import canonical_json, content_id, plan_json

FORMAT = "replan-plan"
SCHEMA_VERSION = 1
MAX_PLAN_BYTES = 512 * 2**20
"""Largest plan file that is read; a plan of a million operations is some 30 MB."""


def dump_plan(plan: Plan) -> bytes:
    """A plan as the bytes of its file: one line of JSON, ending in a newline."""
    head = json.dumps(
        {"format": FORMAT, "schema_version": SCHEMA_VERSION, "plan_id": plan.plan_id, "wall_s": plan.wall_s},
        allow_nan=False,
    )
    return head[:-1].encode("ascii") + b', "content": ' + plan_json(plan) + b"}\n"


def load_plan(data: bytes) -> Plan:
    """Read a plan file's bytes.

    Raises
    ------
    DocumentLimitError
        If the bytes are more, or nested deeper, than a plan file may be.
    PlanFileError
        If the bytes are cut short, are not a plan file of this version, or contradict themselves.
    PlanHashError
        If the content does not match ``plan_id``.
    """
    raw = _parse_json(data)
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise PlanFileError(f'not a plan file; expected an object with "format": "{FORMAT}"')
    if raw.get("schema_version") != SCHEMA_VERSION:
        raise PlanFileError(
            f"plan file has schema_version {raw.get('schema_version')!r}; this version reads {SCHEMA_VERSION}",
            hint="make the plan again",
        )
    content = raw.get("content")
    if isinstance(content, dict):
        found = content_id(canonical_json(content))
        if found != raw.get("plan_id"):
            raise PlanHashError(
                f"the plan's content has the hash {found}, its plan_id is {raw.get('plan_id')!r}: it was edited or damaged",
                hint="make the plan again, or fetch it again from where it was made",
            )
    try:
        plan = plan_from_document(PlanDocument.model_validate(raw))
    except ValidationError as error:
        raise PlanFileError(_describe(error)) from error
    except PlanFileError:
        raise
    except ReplanError as error:
        raise PlanFileError(f"the plan's parts contradict each other: {error.message}") from error
    if plan.plan_id != raw["plan_id"]:
        raise PlanFileError("the plan's content is not in its canonical form", hint="make the plan again")
    return plan


def read_plan(path: Path) -> Plan:
    """Read a plan from a file.

    Raises
    ------
    InputError
        If the file cannot be read.
    PlanFileError
        As :func:`load_plan` does.
    """
    try:
        size = path.stat().st_size
        if size > MAX_PLAN_BYTES:
            raise DocumentLimitError(f"{path} has {size} bytes; a plan file may have {MAX_PLAN_BYTES}")
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read the plan file {path}: {error.strerror or error}") from error
    try:
        return load_plan(data)
    except PlanFileError as error:
        raise type(error)(f"{path}: {error.message}", hint=error.hint) from error


def write_plan(plan: Plan, path: Path) -> None:
    """Write a plan's file; it appears whole or not at all.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    write_whole(path, dump_plan(plan))


def _parse_json(data: bytes) -> Any:
    if len(data) > MAX_PLAN_BYTES:
        raise DocumentLimitError(f"the plan has {len(data)} bytes; a plan file may have {MAX_PLAN_BYTES}")
    try:
        return json.loads(data, object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise PlanFileError(f"not a plan file: byte {error.start} is not UTF-8") from error
    except json.JSONDecodeError as error:
        raise PlanFileError(
            f"not a whole JSON document: {error.msg} at byte {error.pos} of {len(data)}",
            hint="the file is no plan, cut short or damaged; make the plan again",
        ) from error
    except RecursionError as error:
        raise DocumentLimitError("the plan is nested deeper than a plan file is") from error
    except ValueError as error:
        raise PlanFileError(f"not a plan file: {error}") from error


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise PlanFileError("an object in the plan file has the same key twice")
    return found


def _refuse_constant(name: str) -> Any:
    raise PlanFileError(f"the plan file holds {name}; expected finite numbers")


def _describe(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_input=False)
    shown = "; ".join(f"{'.'.join(map(str, p['loc'])) or 'the file'}: {p['msg']}" for p in problems[:4])
    rest = f"; and {len(problems) - 4} more" if len(problems) > 4 else ""
    return f"the plan file does not have a plan's form: {shown}{rest}"
