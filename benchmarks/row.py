"""One row of results: a contender on an instance, with everything it was measured with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

SCHEMA_VERSION: Final = 2
"""Version of rows and of the files they stand in."""

FORMAT: Final = "replan-bench-results"

Key = tuple[str, str, str, int, float, float]
"""Suite, instance, solver, seed, deadline and target gap: what a row is the result of."""

FAILED = frozenset(("invalid", "crashed", "overran"))
"""Statuses that nothing should have."""

UNTRIED = frozenset(("not_applicable", "not_installed"))
"""Statuses of rows in which nothing was tried."""

_UNCUT_SHARE = 0.5
"""A search that took no more of its deadline was not cut short by it, nor by a share of it."""

_GAP_ROUNDING = 1e-9
"""How far a gap in a file may be from that of its period and bound."""

Counted = Literal["work", "wall", "none"]
"""What a deadline counts: work, seconds of the wall clock, or nothing where no deadline is looked at."""

Hex = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0, le=2**62)]
Seconds = Annotated[float, Field(ge=0, le=1e9)]


class Row(BaseModel):
    """A row as it stands in a file, one JSON object a line.

    ``status`` is a solver's, or ``not_applicable`` (its problem is not one that the contender takes), ``not_installed``,
    ``invalid`` (the answer failed a check), ``overran`` (its process was killed) or ``crashed``. ``leaves_out`` says what the
    problem lacks by which the schedule was validated, ``clock`` what its deadline counts, ``repeats`` when the same seed gives
    the same plan again. ``gap`` is to ``bound_ns``, of the whole problem. CPU seconds and bytes are of the process that ran it,
    without solvers' own child processes: bytes before, at most while it solved, and at most while it checked. ``forced`` names
    what differs from earlier rows of the file that it was added to by force.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    schema_version: Literal[2] = SCHEMA_VERSION
    suite: str
    instance: str
    instance_sha256: Hex
    operations: Count
    solver: str
    seed: Annotated[int, Field(ge=0, lt=2**31)]
    deadline_s: Annotated[float, Field(gt=0, le=86_400)]
    target_gap: Annotated[float, Field(ge=0, le=1)]
    status: Literal[
        "optimal",
        "feasible",
        "infeasible",
        "no_plan_by_deadline",
        "invalid_model",
        "crashed",
        "not_applicable",
        "not_installed",
        "invalid",
        "overran",
    ]
    found_by: str = ""
    leaves_out: str = ""
    clock: Counted = "none"
    workers: Annotated[int, Field(ge=1, le=256)] = 1
    repeats: Literal["always", "unless cut", "by chance"] = "by chance"
    period_ns: Count | None = None
    bound_ns: Count = 0
    gap: Annotated[float, Field(ge=-1, le=1e9)] | None = None
    schedule_sha256: Hex | None = None
    solve_s: Seconds = 0.0
    solve_cpu_s: Seconds = 0.0
    check_s: Seconds = 0.0
    base_bytes: Count | None = None
    solve_peak_bytes: Count | None = None
    check_peak_bytes: Count | None = None
    detail: str = ""
    load: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    at: str
    commit: str | None
    changes: str | None
    versions: dict[str, str | None]
    machine: dict[str, str | int | float | None]
    forced: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _require_its_own_gap(self) -> Self:
        expected = gap_of(self.period_ns, self.bound_ns)
        if self.gap != expected and (None in (self.gap, expected) or abs(self.gap - expected) > _GAP_ROUNDING):  # type: ignore[operator]
            raise ValueError(
                f"gap {self.gap} is not that of period {self.period_ns} ns to bound {self.bound_ns} ns; expected {expected}"
            )
        return self

    @property
    def key(self) -> Key:
        """What it is the result of."""
        return (self.suite, self.instance, self.solver, self.seed, self.deadline_s, self.target_gap)

    @property
    def is_repeatable(self) -> bool:
        """Whether the same sources have to find the same plan again with the same seed."""
        ended = self.repeats == "unless cut" and self.solve_s < _UNCUT_SHARE * self.deadline_s
        return self.schedule_sha256 is not None and (self.repeats == "always" or ended)

    @property
    def keeps_memory(self) -> bool:
        """Whether its plan was made for the problem's limits to memory; one without may be below every bound."""
        return "memory" not in self.leaves_out

    @property
    def is_failure(self) -> bool:
        """Whether its status is one that nothing should have."""
        return self.status in FAILED

    @property
    def checked_period_ns(self) -> int | None:
        """Period of a plan that stood its checks; ``None`` without one."""
        return None if self.is_failure else self.period_ns

    @property
    def source(self) -> dict[str, Any]:
        """Commit, changes, versions and machine."""
        return {name: getattr(self, name) for name in ("commit", "changes", "versions", "machine")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What measuring one task gave: the columns of a :class:`Row` from ``status`` to ``detail``."""

    status: str
    found_by: str = ""
    leaves_out: str = ""
    clock: str = "none"
    repeats: str = "by chance"
    period_ns: int | None = None
    bound_ns: int = 0
    schedule_sha256: str | None = None
    solve_s: float = 0.0
    solve_cpu_s: float = 0.0
    check_s: float = 0.0
    base_bytes: int | None = None
    solve_peak_bytes: int | None = None
    check_peak_bytes: int | None = None
    detail: str = ""
    gap: float | None = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "gap", gap_of(self.period_ns, self.bound_ns))


def gap_of(period_ns: int | None, bound_ns: int) -> float | None:
    """Gap of a period to a bound; ``None`` where one of them is not known."""
    return period_ns / bound_ns - 1 if period_ns is not None and bound_ns > 0 else None
