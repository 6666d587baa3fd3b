"""What an exact solver's search is given and what it gives back.

Searches run inside a child process (:mod:`solver_models.child`), so they import neither numba nor the timing: they
return orders, whose exact times and periods :mod:`solver_models.finish` computes in the parent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from planner.problem import Problem
from planner.schedule import Schedule
from solver_models.clock import Deadline
from solver_models.result import SolveOptions, Status

Report: TypeAlias = Callable[[Schedule, int], None]
"""Called with each better schedule and the lower bound proved so far, in nanoseconds."""

SEARCH_MODULES: dict[str, str] = {
    "cp_sat": "solver_models.cp_sat_search",
    "improve": "solver_models.improve_search",
    "milp_cbc": "solver_models.milp_search",
    "milp_highs": "solver_models.milp_search",
    "milp_scip": "solver_models.milp_search",
}
"""Solvers that run in a child process, and the module whose ``search`` the child calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchInput:
    """One search.

    Parameters
    ----------
    solver
        Name in :data:`SEARCH_MODULES`.
    problem, options
        The instance and its limits.
    floor_ns
        A lower bound on the period that is known already, at least 0: a constraint and a reason to stop.
    deadline
        By which the search must have returned; counts work where the options are deterministic.
    hint
        A valid schedule to start from, timed; ``None`` for none.
    """

    solver: str
    problem: Problem
    options: SolveOptions
    floor_ns: int
    deadline: Deadline
    hint: Schedule | None = None

    def left_s(self) -> float:
        """Seconds left until the search must have returned, at least 0."""
        return self.deadline.left_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Answer of a search.

    Parameters
    ----------
    status
        How the search ended. ``OPTIMAL`` is only a claim about the model: the period of the recomputed times decides.
    schedule
        Best order found; its times are the model's and may be coarse. ``None`` where none was found.
    bound_ns
        Lower bound on the period that the search proved, at least 0.
    detail
        One line for people.
    work_s
        Work seconds that it took, at least 0, where work was counted.
    """

    status: Status
    schedule: Schedule | None
    bound_ns: int
    detail: str
    work_s: float = 0.0


class Search(Protocol):
    """A solver's search; the same input gives the same answer unless the wall clock cuts it short."""

    def __call__(self, given: SearchInput, report: Report) -> Found:
        """Search until done or until ``given.deadline``."""
        ...


def ignore_report(schedule: Schedule, bound_ns: int) -> None:
    """Report that nobody listens to."""
