"""Relabellings as small plain JSON values: only what differs from everybody staying in place is written.

``{"home": [[0, 5], [5, 0]], "swaps": [[1, 0, 7], [1, 2, 5]]}``: real pipeline 5 is the home of canonical pipeline 0 and the other
way round; in slot 1 the part of canonical pipeline 0 is played by pipeline 7's worker instead of its home's. Ascending.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from planner.errors import PlanFileError, ProblemError
from planner.normalization import Relabelling
from planner.operation import Worker

_Number = Annotated[int, Field(ge=0)]


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    home: list[Annotated[list[_Number], Field(min_length=2, max_length=2)]]
    swaps: list[Annotated[list[_Number], Field(min_length=3, max_length=3)]]


def relabelling_to_document(relabelling: Relabelling) -> dict[str, Any]:
    """A relabelling as plain JSON values."""
    moved = np.flatnonzero(relabelling.home != np.arange(relabelling.num_pipelines))
    slots, parts = np.nonzero(relabelling.played_by != relabelling.home)
    swaps = np.stack([slots, parts, relabelling.played_by[slots, parts]], axis=1)
    return {"home": np.stack([moved, relabelling.home[moved]], axis=1).tolist(), "swaps": swaps.tolist()}


def relabelling_from_document(
    document: object, *, num_pipelines: int, num_slots: int, dead: frozenset[Worker]
) -> Relabelling:
    """Read plain JSON values of a relabelling; whether it fits a problem is for ``check_isomorphism`` to say.

    Raises
    ------
    PlanFileError
        If the values are anything but what :func:`relabelling_to_document` writes for this number of workers.
    """
    try:
        form = _Form.model_validate(document)
        home = np.arange(num_pipelines)
        for part, pipeline in form.home:
            home[part] = pipeline
        played_by = np.tile(home, (num_slots, 1))
        for slot, part, pipeline in form.swaps:
            played_by[slot, part] = pipeline
        found = Relabelling(home=home, played_by=played_by, dead=dead)
    except (ValidationError, ProblemError, IndexError, OverflowError) as error:
        raise PlanFileError("a relabelling cannot be read", hint="make the plan again") from error
    if relabelling_to_document(found) != document:
        raise PlanFileError("a relabelling is not in its canonical form", hint="make the plan again")
    return found
