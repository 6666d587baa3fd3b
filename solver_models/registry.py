"""All solvers by name, behind one call.

Backends whose limits cannot be trusted run in a child process; list scheduling, annealing and the portfolio keep their own
deadlines and run where they are called. Solvers are imported when first used: one that is never asked for costs nothing.
"""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from planner.errors import OptionError, SolverMissingError
from planner.problem import Problem
from planner.schedule import Schedule
from planner.timing import time_schedule
from solver_models.child import ChildSearch, Ending
from solver_models.clock import Clock, Deadline
from solver_models.finish import finish, known_bound_ns
from solver_models.result import SolveOptions, SolveResult, Status
from solver_models.search import Found


@dataclass(frozen=True, slots=True, kw_only=True)
class Solver:
    """One entry of :data:`SOLVERS`.

    Parameters
    ----------
    module
        Where it lives: ``solve(problem, options)`` there, for a solver that runs where it is called.
    needs
        Importable name of its backend; ``None`` for none beyond what is always installed.
    extra
        The extra of the distribution that installs the backend.
    in_child
        Whether it runs in a child process.
    takes_hint
        Whether it can start from a schedule.
    counts_work
        Whether its deadline can count work.
    starts_from
        Solver that makes the schedule it starts from where none is given; ``None`` where it needs none.
    """

    module: str
    needs: str | None = None
    extra: str | None = None
    in_child: bool = False
    takes_hint: bool = False
    counts_work: bool = True
    starts_from: str | None = None


SOLVERS: Mapping[str, Solver] = MappingProxyType(
    {
        "list_scheduling": Solver(module="solver_models.list_scheduling"),
        "annealing": Solver(module="solver_models.annealing"),
        "cp_sat": Solver(module="solver_models.cp_sat", needs="ortools", in_child=True, takes_hint=True),
        "improve": Solver(
            module="solver_models.improve",
            needs="ortools",
            in_child=True,
            takes_hint=True,
            starts_from="list_scheduling",
        ),
        "milp_cbc": Solver(module="solver_models.milp", needs="pulp", in_child=True, counts_work=False),
        "milp_highs": Solver(module="solver_models.milp", needs="highspy", in_child=True, counts_work=False),
        "milp_scip": Solver(
            module="solver_models.milp", needs="pyscipopt", extra="scip", in_child=True, counts_work=False
        ),
        "portfolio": Solver(module="solver_models.portfolio"),
    }
)
"""Every solver. What one needs may be missing: ask :func:`is_installed`."""


def is_installed(name: str) -> bool:
    """Whether a solver and its backend can be imported.

    Raises
    ------
    SolverMissingError
        If there is no solver of this name.
    """
    solver = _entry(name)
    return all(importlib.util.find_spec(module) is not None for module in (solver.module, solver.needs) if module)


def solve(
    name: str,
    problem: Problem,
    options: SolveOptions,
    *,
    hint: Schedule | None = None,
    clock: Clock | None = None,
) -> SolveResult:
    """Solve a problem with one solver, within its deadline whatever the backend does.

    Parameters
    ----------
    name
        Key of :data:`SOLVERS`.
    problem, options
        The instance and its limits.
    hint
        A valid schedule to start from, for solvers that can.
    clock
        Whose time the deadline is of; a new one by default.

    Returns
    -------
    SolveResult
        Its ``schedule`` may be an incumbent left by a child that crashed or was killed; ``failure`` says so.

    Raises
    ------
    SolverMissingError
        If there is no such solver, or its backend is not installed.
    OptionError
        If a hint is given to a solver that takes none, the deadline is to count work and the solver cannot, or the instance is
        too large for it.
    NoPlanError
        If a slot has no live worker.
    """
    entry = _entry(name)
    if not is_installed(name):
        raise SolverMissingError(
            f"solver {name} needs the module {entry.needs or entry.module}, which is not installed",
            hint=None if entry.extra is None else f"pip install 'replan[{entry.extra}]'",
        )
    if hint is not None and not entry.takes_hint:
        raise OptionError(f"solver {name} cannot start from a schedule; expected no hint")
    if not entry.in_child:
        result: SolveResult = importlib.import_module(entry.module).solve(problem, options, clock)
        return result
    return start(name, problem, options, hint=hint, clock=clock).wait()


class RunningSolve:
    """A solve under way in a child process; call :meth:`wait` exactly once.

    Where the hint meets the known bound there is nothing to search, and no child.
    """

    def __init__(
        self,
        name: str,
        problem: Problem,
        options: SolveOptions,
        hint: Schedule | None,
        deadline: Deadline,
        started: float,
    ) -> None:
        self._name, self._problem, self._hint, self._started = name, problem, hint, started
        self._clock = deadline.clock
        self._floor_ns = known_bound_ns(problem)
        self._child: ChildSearch | None = None
        if hint is None or time_schedule(problem, hint)[1] > self._floor_ns:
            left = replace(options, deadline_s=max(0.01, deadline.left_s))
            self._child = ChildSearch(name, problem, left, hint=hint, floor_ns=self._floor_ns)

    def cancel(self) -> None:
        """Have :meth:`wait` return at once with the best so far."""
        if self._child is not None:
            self._child.cancel()

    def wait(self) -> SolveResult:
        """Wait for the answer, at the latest until shortly after the deadline, and time it.

        Raises
        ------
        OptionError
            If the instance is too large for the solver.
        """
        failure = ""
        if self._child is None:
            found = Found(status=Status.FEASIBLE, schedule=None, bound_ns=0, detail="the hint meets the bound")
        else:
            outcome = self._child.wait()
            self._clock.charge(outcome.found.work_s)
            if outcome.error_code == OptionError.code:
                raise OptionError(outcome.detail)
            found = replace(outcome.found, detail=outcome.detail)
            if outcome.ending not in (Ending.ANSWERED, Ending.CANCELLED):
                failure = f"{self._name} {outcome.detail}"
        result = finish(
            self._problem,
            self._name,
            found,
            floor_ns=self._floor_ns,
            started=self._started,
            hint=self._hint,
        )
        return replace(result, failure=failure)


def start(
    name: str,
    problem: Problem,
    options: SolveOptions,
    *,
    hint: Schedule | None = None,
    clock: Clock | None = None,
) -> RunningSolve:
    """Start a solver that runs in a child process, without waiting for it.

    Raises
    ------
    SolverMissingError
        If the solver is not one that runs in a child process, or no process can be started.
    OptionError
        If the deadline is to count work and the solver cannot.
    NoPlanError
        If a slot has no live worker.
    """
    entry = _entry(name)
    if not entry.in_child:
        raise SolverMissingError(f"solver {name} does not run in a child process; call solve instead")
    if options.deterministic and not entry.counts_work:
        raise OptionError(
            f"solver {name} cannot count its work; expected a deadline of the wall clock",
            hint="ask without deterministic, or another solver",
        )
    if options.deterministic and options.workers != 1:
        raise OptionError(f"workers is {options.workers}; expected 1 for a deterministic search by {name}")
    started, deadline = time.monotonic(), options.deadline(clock)
    if hint is None and entry.starts_from is not None:
        first = replace(options, deadline_s=options.deadline_s / 4)
        hint = solve(entry.starts_from, problem, first, clock=deadline.clock).schedule
    return RunningSolve(name, problem, options, hint, deadline, started)


def _entry(name: str) -> Solver:
    if name not in SOLVERS:
        raise SolverMissingError(f"there is no solver {name!r}; expected one of {', '.join(SOLVERS)}")
    return SOLVERS[name]
