"""What a solver process does to draw a plan: its timeline for the page, or its trace for Perfetto, in gzip."""

from __future__ import annotations

import gzip
from enum import StrEnum

from planner.errors import InputError
from planner.formats.chrome_trace import trace_parts
from planner.formats.packed_plan import MAGIC, unpack_plan
from planner.formats.plan_file import load_plan
from planner.formats.timeline_file import dump_timeline
from planner.operation import Worker
from planner.plan import Plan

HANDLER = b"drawing"
"""Name of :func:`answer_drawing` in a request."""

_LEVEL = 5


class Drawing(StrEnum):
    """What is made of a plan."""

    TIMELINE = "timeline"
    """:mod:`planner.formats.timeline_file`."""
    TRACE = "trace"
    """:mod:`planner.formats.chrome_trace`."""


def drawing_request(kind: Drawing, plan: bytes) -> list[bytes]:
    """The request to a solver process; ``plan`` is a plan file in gzip, or a packed plan."""
    return [HANDLER, kind.value.encode("ascii"), plan]


def answer_drawing(parts: list[bytes]) -> list[bytes]:
    """Draw a plan.

    Parameters
    ----------
    parts
        A :class:`Drawing`, and the plan: a plan file in gzip, or a packed plan.

    Returns
    -------
    list[bytes]
        The id of the plan, and the drawing in gzip.

    Raises
    ------
    PlanFileError
        If the plan is damaged.
    """
    plan = _plan(parts[1])
    content = (
        dump_timeline(plan) if parts[0].decode("ascii") == Drawing.TIMELINE else b"".join(trace_parts(plan, _all(plan)))
    )
    return [plan.plan_id.encode("ascii"), gzip.compress(content, _LEVEL, mtime=0)]


def _plan(content: bytes) -> Plan:
    if content.startswith(MAGIC):
        return unpack_plan(content)
    try:
        return load_plan(gzip.decompress(content))
    except (OSError, EOFError) as error:
        raise InputError("the plan file is not in gzip, or cut short") from error


def _all(plan: Plan) -> list[Worker]:
    problem = plan.problem
    return [Worker(k, s) for k in range(problem.num_pipelines) for s in range(problem.num_slots)]
