"""Bounds of each slot by its number of dead workers, which migrations are weighed by: worked out in a solver process."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from planner.errors import ProblemError
from planner.failure_key import FailureKey, parse_failure_key, problem_for_key
from planner.formats.job_file import job_from_document
from planner.slot_cost import SlotCost, bound_estimate

HANDLER = b"slot_bounds"
"""Name of :func:`answer_slot_bounds` in a request."""

SlotBounds = dict[int, tuple[int | None, ...]]
"""By number of dead workers: nanoseconds for each slot, ``None`` for one that would have no healthy worker left."""


class SlotBoundsRequest(BaseModel):
    """Which bounds are asked for, beside the job's document; ``key`` tells the degraded workers."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    key: str
    counts: list[Annotated[int, Field(ge=0)]]

    def message(self, document: bytes) -> list[bytes]:
        """The request to a solver process; ``document`` is the job's, JSON."""
        return [HANDLER, document, self.model_dump_json().encode()]


def answer_slot_bounds(parts: list[bytes]) -> list[bytes]:
    """Work bounds out.

    Parameters
    ----------
    parts
        The job's document, JSON, and a :class:`SlotBoundsRequest`.

    Returns
    -------
    list[bytes]
        One part, which :func:`read_slot_bounds` reads.

    Raises
    ------
    ReplanError
        If the job or the key is not sound.
    """
    problem = job_from_document(json.loads(parts[0])).problem()
    request = SlotBoundsRequest.model_validate_json(parts[1])
    estimate = bound_estimate(problem_for_key(problem, parse_failure_key(request.key)))

    def bound_ns(slot: int, count: int) -> int | None:
        try:
            return estimate(slot, count)
        except ProblemError:
            return None

    table = {count: [bound_ns(slot, count) for slot in range(problem.num_slots)] for count in request.counts}
    return [json.dumps(table).encode()]


def read_slot_bounds(parts: list[bytes]) -> SlotBounds:
    """Read what :func:`answer_slot_bounds` answered."""
    return {int(count): tuple(row) for count, row in json.loads(parts[0]).items()}


def degraded_key(key: FailureKey) -> str:
    """What bounds depend on beside the number of dead workers: the degraded workers of a key, nobody dead."""
    return str(replace(key, dead=(0,) * key.num_slots))


def slot_cost_of(bounds: SlotBounds) -> SlotCost:
    """Bounds as the estimate that migrations are chosen by."""

    def slot_cost_ns(slot: int, count: int) -> int:
        value = bounds[count][slot]
        if value is None:
            raise ProblemError(f"slot {slot} is to have {count} dead workers; that leaves none at full speed")
        return value

    return slot_cost_ns
