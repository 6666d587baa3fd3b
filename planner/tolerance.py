"""Which failures to plan for ahead of time: the failure keys up to a job's tolerance.

A tolerance counts dead workers. A node that holds GPUs of several workers takes as many at once. Different keys have
different canonical problems, and no two of them can share a plan: a slot's place in the chain of stages is its own, so slots
cannot be exchanged even where all costs are equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import comb

from planner.errors import MemoryTooSmallError, OptionError, StageLostError
from planner.failure_key import FailureKey
from planner.job import Job
from planner.migration import best_counts
from planner.problem import Problem
from planner.slot_cost import SlotCost, bound_estimate

MAX_KEYS = 100_000
"""Most keys that are listed for one job."""


class ToleranceMode(StrEnum):
    """Which keys are planned for."""

    NORMALIZED = "normalized"
    """One for each number of dead workers: the counts that migrations would lead to if copying cost nothing."""
    ALL = "all"
    """Every count vector."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyList:
    """Keys to plan for.

    Parameters
    ----------
    plannable
        Cheapest first: by the largest estimate of a slot, then by number of dead workers, then in order of the counts.
    unplannable
        Keys that no plan can answer, in order of the counts, with the error code that says why.
    """

    plannable: tuple[FailureKey, ...]
    unplannable: tuple[tuple[FailureKey, str], ...]


def tolerated_keys(job: Job, tolerance: int, mode: ToleranceMode | str) -> KeyList:
    """List the failure keys of up to ``tolerance`` dead workers, none included.

    Parameters
    ----------
    job
        The job.
    tolerance
        Dead workers, 0 to the number of workers.
    mode
        All count vectors, or one for each number of dead workers. In the latter, numbers that would leave some slot without a
        live worker wherever they are have no key.

    Raises
    ------
    OptionError
        If the tolerance or the mode is out of its range, or there would be more than :data:`MAX_KEYS` keys.

    Examples
    --------
    Llama 3 405B with 16 slots and a tolerance of 2 has ``comb(18, 2) = 153`` keys in mode ``all`` and 3 in ``normalized``.
    """
    require_listable(job, tolerance, mode)
    mode = _checked_mode(mode)
    problem = job.problem()
    try:
        problem.require_plannable()
    except MemoryTooSmallError as error:
        # Then nothing can be estimated either; what is in the way does not depend on the failures.
        every = _vectors(problem, tolerance if mode is ToleranceMode.ALL else 0)
        return KeyList(plannable=(), unplannable=tuple((_key(counts), error.code) for counts in every))
    slot_cost_ns = bound_estimate(problem)
    is_all = mode is ToleranceMode.ALL
    vectors = _vectors(problem, tolerance) if is_all else _normalized(problem, tolerance, slot_cost_ns)
    costs: dict[tuple[int, ...], int] = {}
    lost: list[tuple[FailureKey, str]] = []
    for counts in vectors:
        if problem.num_pipelines in counts:
            lost.append((_key(counts), StageLostError.code))
        else:
            costs[counts] = max(slot_cost_ns(slot, dead) for slot, dead in enumerate(counts))
    ordered = sorted(costs, key=lambda counts: (costs[counts], sum(counts), counts))
    return KeyList(plannable=tuple(map(_key, ordered)), unplannable=tuple(lost))


def require_listable(job: Job, tolerance: int, mode: ToleranceMode | str) -> None:
    """Raise what :func:`tolerated_keys` would, without listing anything.

    Raises
    ------
    OptionError
        If the tolerance or the mode is out of its range, or there would be more than :data:`MAX_KEYS` keys.
    """
    count = estimate_count(job, tolerance, mode)
    if count > MAX_KEYS:
        raise OptionError(
            f"tolerance {tolerance} in mode {mode} has {count} failure keys; expected at most {MAX_KEYS}",
            hint="lower the tolerance, or use mode normalized",
        )


def failure_keys(job: Job, tolerance: int, mode: ToleranceMode | str) -> tuple[FailureKey, ...]:
    """Keys of :func:`tolerated_keys` that plans can be made for, cheapest first.

    Raises
    ------
    OptionError
        As :func:`tolerated_keys` does.
    """
    return tolerated_keys(job, tolerance, mode).plannable


def estimate_count(job: Job, tolerance: int, mode: ToleranceMode | str) -> int:
    """Number of keys of a tolerance, plannable or not, without listing them; in mode ``normalized`` at most so many.

    Vectors of ``P`` counts, each at most ``D``, that sum to at most ``t``, by inclusion and exclusion over counts above ``D``:
    ``sum over j of (-1)^j comb(P, j) comb(t - j (D + 1) + P, P)``.

    Raises
    ------
    OptionError
        If the tolerance or the mode is out of its range.

    Examples
    --------
    Two slots of one pipeline, tolerance 2: (0, 0), (0, 1), (1, 0) and (1, 1), ``comb(4, 2) - 2 * comb(2, 2) = 4``.
    """
    workers = job.num_pipelines * job.num_slots
    if not 0 <= tolerance <= workers:
        raise OptionError(f"the tolerance is {tolerance}; expected 0 to {workers}, the number of workers")
    if _checked_mode(mode) is ToleranceMode.NORMALIZED:
        return tolerance + 1
    total = 0
    for excess in range(tolerance // (job.num_pipelines + 1) + 1):
        left = tolerance - excess * (job.num_pipelines + 1)
        total += (-1) ** excess * comb(job.num_slots, excess) * comb(left + job.num_slots, job.num_slots)
    return total


def _checked_mode(mode: ToleranceMode | str) -> ToleranceMode:
    if mode not in tuple(ToleranceMode):
        raise OptionError(f"the tolerance mode is {mode!r}; expected {' or '.join(ToleranceMode)}")
    return ToleranceMode(mode)


def _vectors(problem: Problem, tolerance: int) -> list[tuple[int, ...]]:
    """Count vectors in order, each count at most the number of pipelines."""
    # Every beginning goes on with zeros, so there are never more beginnings than vectors.
    begun: list[tuple[tuple[int, ...], int]] = [((), tolerance)]
    for _ in problem.slots:
        begun = [
            ((*chosen, count), left - count)
            for chosen, left in begun
            for count in range(min(left, problem.num_pipelines) + 1)
        ]
    return [chosen for chosen, _ in begun]


def _normalized(problem: Problem, tolerance: int, slot_cost_ns: SlotCost) -> list[tuple[int, ...]]:
    most = min(tolerance, problem.num_slots * (problem.num_pipelines - 1))
    return [best_counts(problem, total, slot_cost_ns) for total in range(most + 1)]


def _key(counts: tuple[int, ...]) -> FailureKey:
    return FailureKey(dead=counts, degraded=((),) * len(counts))
