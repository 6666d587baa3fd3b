"""Violations, and the list they are gathered in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from planner.operation import Operation, Worker
from planner.problem import Problem
from planner.schedule import IntColumn, Schedule


@dataclass(frozen=True, slots=True)
class Violation:
    """One place where a schedule breaks its problem's constraints.

    Parameters
    ----------
    code
        Stable code, one of the table in :mod:`planner.validation`.
    worker, operation, time_ns
        Where; ``None`` where the violation has no such place.
    message
        What was found and what was expected.
    """

    code: str
    worker: Worker | None
    operation: Operation | None
    time_ns: int | None
    message: str

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


@dataclass(slots=True)
class Findings:
    """Violations of one schedule, at most ``limit`` of them; the rest is counted."""

    problem: Problem
    schedule: Schedule
    limit: int
    violations: list[Violation] = field(default_factory=list)
    num_left_out: int = 0

    def add(self, violation: Violation) -> None:
        """Take one violation, or count it where the list is full."""
        if len(self.violations) < self.limit:
            self.violations.append(violation)
        else:
            self.num_left_out += 1

    def add_rows(self, code: str, rows: IntColumn, describe: Callable[[int], str]) -> None:
        """Take one violation for each row; ``describe`` says what is wrong, as in "takes 3 ns; expected 2 ns".

        The message names worker, operation and planned start in front of it.
        """
        taken = max(0, min(len(rows), self.limit - len(self.violations)))
        self.num_left_out += len(rows) - taken
        for row in rows[:taken].tolist():
            worker = self.worker(row)
            operation = self.schedule.operation(row)
            start = int(self.schedule.start_ns[row])
            message = f"worker {worker}, {operation} at {start} ns: {describe(row)}"
            self.violations.append(Violation(code, worker, operation, start, message))

    def worker(self, row: int) -> Worker:
        """Worker that runs a row."""
        return self.schedule.worker_at(int(self.schedule.offsets.searchsorted(row, side="right")) - 1)

    def result(self) -> tuple[Violation, ...]:
        """Every violation taken, and a last one that says how many were not."""
        if not self.num_left_out:
            return tuple(self.violations)
        message = f"{self.num_left_out} more violations are not listed; the first {self.limit} are"
        return (*self.violations, Violation("truncated", None, None, None, message))
