"""What solvers are asked and what they answer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from planner.errors import OptionError
from planner.schedule import Schedule
from solver_models.clock import Clock, Deadline, new_clock


class Status(StrEnum):
    """How a solve ended; the members are distinct on purpose."""

    OPTIMAL = "optimal"
    """A schedule whose period is proved the smallest possible."""
    FEASIBLE = "feasible"
    """A schedule; whether a better one exists is open (``bound_ns`` says how much better at most)."""
    INFEASIBLE = "infeasible"
    """Proved: no schedule keeps the constraints."""
    NO_PLAN_BY_DEADLINE = "no_plan_by_deadline"
    """No schedule was found in time; nothing is proved."""
    INVALID_MODEL = "invalid_model"
    """The backend refused the model: a bug of ours."""
    CRASHED = "crashed"
    """The solver process died, or its memory limit killed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveOptions:
    """Limits of one solve.

    Parameters
    ----------
    deadline_s
        Seconds, above 0 and at most 86,400, after which the best schedule so far is returned: of the wall clock, or of work
        where ``deterministic``.
    target_gap
        Relative gap to the bound at which solving may stop, 0 to 1.
    seed
        Seed of every random choice, 0 to 2**31 - 1.
    workers
        Threads a solver may use, 1 to 256. Annealing walks in so many lanes.
    deterministic
        Whether the deadline counts work, see :mod:`solver_models.clock`, so that the same problem, options and versions give the
        same schedule byte for byte, whatever else the machine does. A work second takes about a second on idle cores; there is no
        promise. CP-SAT then takes one worker only. Without it only a search that no deadline cuts short is reproducible, and
        CP-SAT's only with one worker.
    memory_limit_bytes
        Address space a solver's child process may use; ``None`` for no limit.

    Raises
    ------
    OptionError
        If a value is outside its range.
    """

    deadline_s: float = 2.0
    target_gap: float = 0.0
    seed: int = 0
    workers: int = 1
    deterministic: bool = False
    memory_limit_bytes: int | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.deadline_s) and 0 < self.deadline_s <= 86_400):
            raise OptionError(f"deadline_s is {self.deadline_s}; expected above 0 and at most 86400 seconds")
        if not (math.isfinite(self.target_gap) and 0 <= self.target_gap <= 1):
            raise OptionError(f"target_gap is {self.target_gap}; expected 0 to 1")
        if not 0 <= self.seed < 2**31:
            raise OptionError(f"seed is {self.seed}; expected 0 to {2**31 - 1}")
        if not 1 <= self.workers <= 256:
            raise OptionError(f"workers is {self.workers}; expected 1 to 256")
        if self.memory_limit_bytes is not None and self.memory_limit_bytes < 2**20:
            raise OptionError(f"memory_limit_bytes is {self.memory_limit_bytes}; expected at least 1 MiB")

    def deadline(self, clock: Clock | None = None) -> Deadline:
        """The deadline from now on; by a new clock where none is given."""
        return Deadline.after(self.deadline_s, clock or new_clock(deterministic=self.deterministic))


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveResult:
    """Answer of one solver.

    Parameters
    ----------
    status
        How the solve ended.
    solver
        Name of the solver, for example ``"list_scheduling"`` or ``"milp_cbc"``.
    schedule
        The schedule, timed by :func:`planner.timing.time_schedule`; ``None`` where none was found.
    period_ns
        Steady period of ``schedule``; ``None`` without one.
    bound_ns
        Lower bound on the period that this solver proved itself, at least 0.
    wall_s
        Seconds the solve took.
    detail
        One line for people: what the backend said, or why there is no schedule.
    failure
        One line that names the solver of those asked that is missing, crashed, or had to be killed, and so might have done
        better; empty where all ended as they should.
    """

    status: Status
    solver: str
    schedule: Schedule | None
    period_ns: int | None
    bound_ns: int
    wall_s: float
    detail: str = ""
    failure: str = ""

    @classmethod
    def found(cls, solver: str, schedule: Schedule, period_ns: int, bound_ns: int, wall_s: float = 0.0) -> Self:
        """Result of a solver that proves nothing itself: optimal where the period is within the bound known before."""
        return cls(
            status=Status.OPTIMAL if period_ns <= bound_ns else Status.FEASIBLE,
            solver=solver,
            schedule=schedule,
            period_ns=period_ns,
            bound_ns=bound_ns,
            wall_s=wall_s,
        )
