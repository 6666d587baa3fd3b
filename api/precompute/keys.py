"""The failure keys of a job's tolerance, as a solver process lists them: bounds of large jobs take a while."""

from __future__ import annotations

import json
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from api.precompute.progress import KeyFailure
from planner.formats.job_file import job_from_document
from planner.tolerance import tolerated_keys

HANDLER = b"failure_keys"
"""Name of :func:`answer_keys` in a request."""

_REASONS = {
    "stage_lost": "a slot would have no live worker left",
    "memory_too_small": "memory does not hold one microbatch",
}


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class KeysRequest(_Form):
    """Which keys are asked for, beside the job's document."""

    tolerance: int
    mode: str

    def message(self, document: bytes) -> list[bytes]:
        """The request to a solver process; ``document`` is the job's, JSON."""
        return [HANDLER, document, self.model_dump_json().encode()]


class _Answer(_Form):
    plannable: tuple[str, ...]
    unplannable: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Texts of the keys to plan, cheapest first, and those that no plan can answer."""

    plannable: tuple[str, ...]
    unplannable: tuple[KeyFailure, ...]


def answer_keys(parts: list[bytes]) -> list[bytes]:
    """List the failure keys of a tolerance.

    Parameters
    ----------
    parts
        The job's document, JSON, and a :class:`KeysRequest`.

    Returns
    -------
    list[bytes]
        One part, which :func:`read_keys` reads.

    Raises
    ------
    ReplanError
        If the job or the tolerance is not sound, or there are too many keys.
    """
    request = KeysRequest.model_validate_json(parts[1])
    found = tolerated_keys(job_from_document(json.loads(parts[0])), request.tolerance, request.mode)
    answer = _Answer(
        plannable=tuple(map(str, found.plannable)),
        unplannable=tuple((str(key), code) for key, code in found.unplannable),
    )
    return [answer.model_dump_json().encode()]


def read_keys(parts: list[bytes]) -> Keys:
    """Read what :func:`answer_keys` answered."""
    answer = _Answer.model_validate_json(parts[0])
    return Keys(
        plannable=answer.plannable,
        unplannable=tuple(
            KeyFailure(failure_key=key, code=code, message=_REASONS.get(code, code)) for key, code in answer.unplannable
        ),
    )
