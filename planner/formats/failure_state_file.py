"""Canonical JSON of a failure state: what the store keeps with each epoch.

::

    {"degraded":{"gpu0003":700000},"nodes":["gpu0007"],"ranks":[17],"workers":["1/2"]}
"""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from planner.errors import FailureSetError, ScheduleFormatError
from planner.failure_state import FailureState
from planner.operation import parse_worker
from planner.plan_content import canonical_json
from planner.problem import FULL_SPEED_PPM

MAX_STATE_BYTES = 16 * 2**20
"""Longest JSON of a state that is read."""

Name = Annotated[str, Field(min_length=1, max_length=1000)]


class _StateForm(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    nodes: list[Name]
    ranks: list[Annotated[int, Field(ge=0, le=2**31)]]
    workers: list[Name]
    degraded: dict[Name, Annotated[int, Field(ge=1, lt=FULL_SPEED_PPM)]]


def dump_state(state: FailureState) -> bytes:
    """Canonical JSON of a state: equal states give equal bytes."""
    return canonical_json(
        {
            "nodes": list(state.nodes),
            "ranks": list(state.ranks),
            "workers": [str(worker) for worker in state.workers],
            "degraded": dict(state.degraded),
        }
    )


def load_state(data: bytes) -> FailureState:
    """Read a state's canonical JSON.

    Raises
    ------
    FailureSetError
        If the bytes are anything but what :func:`dump_state` writes.
    """
    if len(data) > MAX_STATE_BYTES:
        raise FailureSetError(f"a failure state has {len(data)} bytes; expected at most {MAX_STATE_BYTES}")
    try:
        form = _StateForm.model_validate(json.loads(data))
        state = FailureState(
            nodes=tuple(form.nodes),
            ranks=tuple(form.ranks),
            workers=tuple(parse_worker(text) for text in form.workers),
            degraded=tuple(sorted(form.degraded.items())),
        )
    except (ValueError, RecursionError, ValidationError, ScheduleFormatError) as error:
        raise FailureSetError("a failure state cannot be read; expected its canonical JSON") from error
    if dump_state(state) != data:
        raise FailureSetError("a failure state is not in its canonical form")
    return state
