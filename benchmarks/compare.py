"""Two files of results side by side: what got better, what got worse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import exp, log

from benchmarks.errors import BenchmarkMismatchError
from benchmarks.row import UNTRIED, Key, Row

_ROUNDING = 1e-12
"""Less than one nanosecond in any period there is."""

_LEAST_S = 1e-4
"""Shorter times are taken for this long: their ratio says nothing."""


class Verdict(StrEnum):
    """What became of a row."""

    BETTER = "better"
    """A smaller period, or a plan where there was none."""
    SAME = "same"
    """The same period within the tolerance, or no plan in either."""
    WORSE = "worse"
    """A larger period, or no plan any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The same row in both files.

    Parameters
    ----------
    before, after
        The rows.
    verdict
        What became of it.
    """

    before: Row
    after: Row
    verdict: Verdict

    @property
    def period_ratio(self) -> float | None:
        """Period now over period before, of plans that stood their checks; ``None`` where one of them has none."""
        was, now = self.before.checked_period_ns, self.after.checked_period_ns
        return now / was if was and now is not None else None

    @property
    def time_ratio(self) -> float | None:
        """Solve time now over solve time before; ``None`` where one was not tried or did not end by itself."""
        if any(row.is_failure or row.status in UNTRIED for row in (self.before, self.after)):
            return None
        return max(self.after.solve_s, _LEAST_S) / max(self.before.solve_s, _LEAST_S)

    @property
    def same_plan(self) -> bool:
        """Whether both are the same order, operation by operation."""
        return self.before.schedule_sha256 is not None and self.before.schedule_sha256 == self.after.schedule_sha256

    @property
    def should_repeat(self) -> bool:
        """Whether both have to be the same order: of the same sources, by a contender that repeats itself."""
        names = ("commit", "changes", "versions")
        same_sources = all(getattr(self.before, name) == getattr(self.after, name) for name in names)
        return same_sources and self.before.is_repeatable and self.after.is_repeatable


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Both files.

    Parameters
    ----------
    pairs
        Rows that both have and in which something was tried.
    only_before, only_after
        How many rows only one of them has.
    tolerance
        Share of the period before by which a period may grow.
    """

    pairs: tuple[Pair, ...]
    only_before: int
    only_after: int
    tolerance: float

    def of(self, verdict: Verdict) -> tuple[Pair, ...]:
        """Pairs of a verdict, the largest change first."""
        found = [pair for pair in self.pairs if pair.verdict is verdict]
        return tuple(sorted(found, key=_change, reverse=True))

    @property
    def same_plans(self) -> int:
        """How many pairs are the same order."""
        return sum(pair.same_plan for pair in self.pairs)

    @property
    def plans(self) -> int:
        """How many pairs have an order in both files."""
        return sum(None not in (pair.before.schedule_sha256, pair.after.schedule_sha256) for pair in self.pairs)

    @property
    def unrepeated(self) -> tuple[Pair, ...]:
        """Pairs that should be the same order, and are not."""
        return tuple(pair for pair in self.pairs if pair.should_repeat and not pair.same_plan)

    @property
    def by_solver(self) -> Mapping[str, tuple[Pair, ...]]:
        """Pairs of each contender, in the order in which they come."""
        found: dict[str, list[Pair]] = {}
        for pair in self.pairs:
            found.setdefault(pair.after.solver, []).append(pair)
        return {name: tuple(pairs) for name, pairs in found.items()}


def compare(before: Sequence[Row], after: Sequence[Row], *, tolerance: float = 0.0) -> Comparison:
    """Compare rows of the same suite, instance, contender, seed, deadline and target gap.

    Parameters
    ----------
    before, after
        Rows of two files.
    tolerance
        Share of the period before by which a period may grow and still be the same, 0 to 1.

    Raises
    ------
    BenchmarkMismatchError
        If the files have no row in common, an instance is another problem in one than in the other, or a deadline counts work in
        one and seconds in the other.
    """
    old: dict[Key, Row] = {row.key: row for row in before}
    hashes = {(row.suite, row.instance): row.instance_sha256 for row in before}
    pairs = []
    common = 0
    for row in after:
        if hashes.get((row.suite, row.instance), row.instance_sha256) != row.instance_sha256:
            raise BenchmarkMismatchError(
                f"instance {row.instance} of suite {row.suite} is another problem in one file than in the other"
            )
        was = old.get(row.key)
        if was is None:
            continue
        common += 1
        if was.status not in UNTRIED or row.status not in UNTRIED:
            _require_same_limits(was, row)
            pairs.append(Pair(before=was, after=row, verdict=_verdict(was, row, tolerance)))
    if not common:
        raise BenchmarkMismatchError(
            "the files have no row in common",
            hint="rows are compared by suite, instance, solver, seed, deadline and gap",
        )
    return Comparison(
        pairs=tuple(pairs), only_before=len(old) - common, only_after=len(after) - common, tolerance=tolerance
    )


def mean_ratio(ratios: Sequence[float]) -> float:
    """Geometric mean of ratios above 0; 1 for none.

    Examples
    --------
    >>> mean_ratio([0.5, 2.0])
    1.0
    """
    return exp(sum(map(log, ratios)) / len(ratios)) if ratios else 1.0


def _require_same_limits(before: Row, after: Row) -> None:
    if before.workers != after.workers:
        raise BenchmarkMismatchError(
            f"searches have {before.workers} threads in one file and {after.workers} in the other",
            hint="measure one of them again with the other's --workers",
        )
    clocks = (before.clock, after.clock)
    if "none" not in clocks and before.clock != after.clock:
        raise BenchmarkMismatchError(
            f"the deadline of {after.solver} on {after.instance} is by the {before.clock} clock in one file and by the "
            f"{after.clock} clock in the other",
            hint="measure one of them again, with or without --wall-clock",
        )


def _verdict(before: Row, after: Row, tolerance: float) -> Verdict:
    was, now = before.checked_period_ns, after.checked_period_ns
    if was is None or now is None:
        if was is None and now is None:
            return Verdict.SAME if after.is_failure <= before.is_failure else Verdict.WORSE
        return Verdict.BETTER if was is None else Verdict.WORSE
    change = (now - was) / was
    if abs(change) <= tolerance + _ROUNDING:
        return Verdict.SAME
    return Verdict.WORSE if change > 0 else Verdict.BETTER


def _change(pair: Pair) -> float:
    """How much a period changed; a plan that came or went counts most."""
    return float("inf") if pair.period_ratio is None else abs(pair.period_ratio - 1)
