"""Rows of one file as reports look at them: by suite, instance and solver, with one bound for each instance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median

from benchmarks.row import UNTRIED, Row, gap_of


@dataclass(frozen=True, kw_only=True)
class View:
    """Rows of one file.

    Parameters
    ----------
    rows
        In the order in which they were measured; instances and solvers are told in the order of the suites.
    """

    rows: tuple[Row, ...]

    @cached_property
    def bounds_ns(self) -> dict[tuple[str, str], int]:
        """Best lower bound that any row of an instance knows, by suite and instance."""
        found: dict[tuple[str, str], int] = {}
        for row in self.rows:
            if not row.is_failure:
                key = (row.suite, row.instance)
                found[key] = max(found.get(key, 0), row.bound_ns)
        return found

    @cached_property
    def full(self) -> tuple[Row, ...]:
        """Rows that search as far as their suite asks: not those that stop early, to see how long a gap takes."""
        least: dict[tuple[str, str], float] = {}
        for row in self.rows:
            key = (row.suite, row.solver)
            least[key] = min(least.get(key, row.target_gap), row.target_gap)
        return tuple(row for row in self.rows if row.target_gap == least[row.suite, row.solver])

    @cached_property
    def timed(self) -> tuple[Row, ...]:
        """Rows that stop early, in which something was tried."""
        known = {row.key for row in self.full}
        return tuple(row for row in self.rows if row.key not in known and row.status not in UNTRIED)

    @property
    def suites(self) -> tuple[str, ...]:
        """Names of the suites that have rows."""
        return tuple(dict.fromkeys(row.suite for row in self.rows))

    def of(self, suite: str) -> tuple[Row, ...]:
        """Full rows of a suite."""
        return tuple(row for row in self.full if row.suite == suite)

    def longest(self, suite: str) -> tuple[Row, ...]:
        """Of a suite's full rows those with the longest deadline that their solver was given."""
        rows = self.of(suite)
        most = {solver: max(row.deadline_s for row in rows if row.solver == solver) for solver in names(rows, "solver")}
        return tuple(row for row in rows if row.deadline_s == most[row.solver])

    def longest_common(self, suite: str, solvers: Iterable[str]) -> tuple[Row, ...]:
        """Of a suite's full rows those with the longest deadline that all of these solvers were given; none without one."""
        rows = self.of(suite)
        given = [{row.deadline_s for row in rows if row.solver == solver} for solver in solvers]
        most = max(set.intersection(*given), default=None)
        return tuple(row for row in rows if row.deadline_s == most)

    def gap(self, row: Row) -> float | None:
        """Gap of a row to the best bound of its instance; ``None`` where it has no plan that stood its checks."""
        return gap_of(row.checked_period_ns, self.bounds_ns.get((row.suite, row.instance), 0))

    def is_proved(self, row: Row) -> bool:
        """Whether a row's plan is as good as the best bound of its instance, and keeps to its limits to memory."""
        return self.gap(row) == 0 and row.keeps_memory

    def is_contradicted(self, row: Row) -> bool:
        """Whether a row's plan is better than a bound that some row claims: then the plan or the bound is wrong."""
        gap = self.gap(row)
        return gap is not None and gap < 0 and row.keeps_memory

    def gaps(self, rows: Iterable[Row]) -> list[float]:
        """Gaps of those rows that have one."""
        return [gap for gap in map(self.gap, rows) if gap is not None]


def names(rows: Iterable[Row], column: str) -> tuple[str, ...]:
    """What stands in a column of text, each once, in the order in which it comes."""
    return tuple(dict.fromkeys(getattr(row, column) for row in rows))


def by_instance(rows: Iterable[Row]) -> dict[tuple[str, str], list[Row]]:
    """Rows by suite and instance."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row.suite, row.instance), []).append(row)
    return found


def mean_period(rows: Sequence[Row], solver: str) -> float | None:
    """Mean period of a solver over the seeds; ``None`` where a seed has no plan."""
    found = [row.checked_period_ns for row in rows if row.solver == solver]
    if not found or any(period is None for period in found):
        return None
    return fmean(period for period in found if period is not None)


def median_of(values: Sequence[float]) -> float:
    """Median; 0 for none."""
    return median(values) if values else 0.0
