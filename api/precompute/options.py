"""What a precompute operation is done with, as the store keeps it."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class PrecomputeOptions(BaseModel):
    """Options of a precompute operation.

    ``dump`` and ``load`` turn them into the bytes of an operation's row and back.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    revision: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="Revision of the job that is planned; null where it was started for a job file."
    )
    deadline_s: Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)] = Field(
        default=1.0, description="Seconds to search for each plan."
    )
    target_gap: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = Field(
        default=0.0, description="Gap to the bound at which a search may stop, as a ratio."
    )
    seed: Annotated[int, Field(ge=0, lt=2**31)] = Field(default=0, description="Seed of every random choice.")

    def dump(self) -> bytes:
        """The options as JSON."""
        return self.model_dump_json().encode()

    @classmethod
    def load(cls, data: bytes) -> PrecomputeOptions:
        """Options from JSON that :meth:`dump` wrote; raises ``ValueError`` for anything else."""
        return cls.model_validate_json(data)
