"""Replay: run an order through several iterations and report what really happens.

Iteration 0 is released at the planned first start of each slot. After that the optimizer decides: ``staggered``
releases a slot again once all its live workers are done and it has synced, ``global`` releases all slots once everyone
is done and the slowest slot has synced.

From release times ``x(n)`` of the slots follow ``x(n + 1)``, by maxima and sums alone, so the run settles: some day
``x(n + q) = x(n) + c`` in every slot, and from then on it repeats, with the period ``c / q``. Replay looks for that
repetition among the iterations it ran. Where the settling takes longer, the period is found from the longest path
between each pair of releases, which the same simulation measures: the largest mean of a cycle of such paths (Karp 1978),
which is the rate at which such a run grows, since every slot waits for every other through some microbatch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from planner.dataflow import LARGEST, MAX_ITERATIONS, held_bytes
from planner.errors import OptionError
from planner.operation import Kind
from planner.problem import Optimizer, Problem
from planner.schedule import IntColumn, Schedule
from planner.simulation import NEVER, IterationRun, Order, prepare_order, run_iteration


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What a replay measured.

    Parameters
    ----------
    iterations
        Iterations run.
    period
        Exact steady period in nanoseconds, without jitter.
    period_ns
        The same, rounded up.
    steady_iteration
        First of the iterations run from which on the run without jitter repeats; ``None`` if it settles later, or
        with jitter.
    mean_period_ns
        Mean time between the starts of successive iterations of this run, over iterations and slots; with jitter the
        noisy one.
    makespans_ns
        For each iteration, last end minus first start over all slots.
    peak_bytes
        For each slot, the most bytes any of its workers holds; it depends on the order alone.
    bubble_ratio
        Share of live workers' time in which they run nothing, 0 to 1: sync and waiting.
    utilisation
        For each slot, share of its live workers' time in which they run operations, 0 to 1.
    """

    iterations: int
    period: Fraction
    period_ns: int
    steady_iteration: int | None
    mean_period_ns: float
    makespans_ns: tuple[int, ...]
    peak_bytes: tuple[int, ...]
    bubble_ratio: float
    utilisation: tuple[float, ...]


def replay(problem: Problem, schedule: Schedule, *, iterations: int = 10, jitter: float = 0.0, seed: int = 0) -> Replay:
    """Run the order of a schedule as early as possible, iteration after iteration.

    Parameters
    ----------
    problem
        The instance.
    schedule
        The schedule. Only its order is run; its times count for the first release of each slot alone.
    iterations
        Iterations to run, 1 to ``MAX_ITERATIONS``.
    jitter
        Each duration is multiplied by its own uniform random factor in ``1 - jitter`` to ``1 + jitter``; 0 to 1.
    seed
        Seed of that noise.

    Raises
    ------
    OptionError
        If an option is outside its range.
    InvalidScheduleError
        If operations are missing, repeated or misplaced, or the order cannot run.
    ProblemError
        If times or bytes are too large for 64-bit sums.

    Examples
    --------
    One worker, one microbatch, F, I and W of 1 ns each and 2 ns of sync:

    >>> from planner.problem import Slot, Stage
    >>> from planner.schedule import parse_schedule
    >>> one = Problem(stages=(Stage(forward_ns=1, input_grad_ns=1, weight_grad_ns=1),),
    ...               slots=(Slot(stages=(0,), sync_ns=2),), microbatches=(1,))
    >>> run = replay(one, parse_schedule("0/0: 0F0.0 0B0.0", 1, 1))
    >>> run.period_ns, run.bubble_ratio
    (5, 0.4)
    """
    if not 1 <= iterations <= MAX_ITERATIONS:
        raise OptionError(f"iterations is {iterations}; expected 1 to {MAX_ITERATIONS}")
    if not (math.isfinite(jitter) and 0 <= jitter <= 1):
        raise OptionError(f"jitter is {jitter}; expected 0 to 1")
    order = prepare_order(problem, schedule)
    exact = order.flow.duration_ns
    first_release = _planned_releases(schedule)
    releases, makespans, busy = _run(problem, order, first_release, [exact] * iterations)
    steady = _find_repetition(releases)
    if steady is None:
        steady_iteration, period = None, _largest_cycle_mean(_paths_between_releases(problem, order))
    else:
        steady_iteration, period = steady
    if jitter > 0:
        steady_iteration = None
        noise = np.random.default_rng(seed)
        noisy = [_noisy(exact, jitter, noise) for _ in range(iterations)]
        releases, makespans, busy = _run(problem, order, first_release, noisy)
    mean_period_ns = float((releases[-1] - releases[0]).mean()) / iterations
    live = np.array([len(problem.live_pipelines(s)) for s in range(problem.num_slots)], dtype=np.float64)
    # With jitter slots advance at different rates for a while, so each is measured against its own.
    span = (releases[-1] - releases[0]) / iterations if jitter > 0 else np.full(problem.num_slots, float(period))
    available = live * span
    return Replay(
        iterations=iterations,
        period=period,
        period_ns=math.ceil(period),
        steady_iteration=steady_iteration,
        mean_period_ns=mean_period_ns,
        makespans_ns=tuple(makespans),
        peak_bytes=_peak_bytes(problem, schedule),
        bubble_ratio=1.0 - float(busy.sum() / available.sum()) if available.sum() else 0.0,
        utilisation=tuple((busy / available).tolist()) if available.all() else (1.0,) * problem.num_slots,
    )


def _planned_releases(schedule: Schedule) -> IntColumn:
    """First planned start in each slot; every slot runs something."""
    slot = schedule.worker_of_row() % schedule.num_slots
    release = np.full(schedule.num_slots, np.iinfo(np.int64).max)
    np.minimum.at(release, slot, schedule.start_ns)
    # Only differences between slots matter; those of a foreign schedule may be absurd, and sums must stay exact.
    earliest = int(release.min())
    return np.array([min(first - earliest, LARGEST // 2) for first in release.tolist()], dtype=np.int64)


def _run(
    problem: Problem, order: Order, release_ns: IntColumn, durations: list[IntColumn]
) -> tuple[IntColumn, list[int], npt.NDArray[np.float64]]:
    """Run one iteration for each entry of ``durations``.

    Returns the releases ``(iterations + 1, P)``, the makespans, and each slot's mean busy time per iteration ``(P,)``.
    """
    releases, makespans = [release_ns], []
    busy = np.zeros(problem.num_slots)
    slot = order.slot_of_worker[order.flow.worker]
    for duration_ns in durations:
        run = run_iteration(order, releases[-1], duration_ns)
        releases.append(_next_release(problem, run))
        makespans.append(int(run.end_ns.max()) - int(run.start_ns.min()))
        busy += np.bincount(slot, weights=duration_ns, minlength=problem.num_slots)
    return np.array(releases), makespans, busy / len(durations)


def _next_release(problem: Problem, run: IterationRun) -> IntColumn:
    sync = np.array([s.sync_ns for s in problem.slots], dtype=np.int64)
    if problem.optimizer is Optimizer.STAGGERED:
        released: IntColumn = run.done_ns + sync
        return released
    return np.full(problem.num_slots, int(run.done_ns.max()) + int(sync.max()))


def _find_repetition(releases: IntColumn) -> tuple[int, Fraction] | None:
    """Earliest iteration from which ``x(n + q) = x(n) + c``, with the smallest such ``q``, and ``c / q``."""
    for n in range(len(releases) - 1):
        growth = releases[n + 1 :] - releases[n]
        for q, row in enumerate(growth.tolist(), start=1):
            if min(row) == max(row):
                return n, Fraction(row[0], q)
    return None


def _paths_between_releases(problem: Problem, order: Order) -> list[list[int | None]]:
    """Longest time from the release of one slot (row) to the next release of another (column); ``None``: no path."""
    paths: list[list[int | None]] = []
    for s in range(problem.num_slots):
        release = np.full(problem.num_slots, NEVER)
        release[s] = 0
        following = _next_release(problem, run_iteration(order, release, order.flow.duration_ns))
        paths.append([value if value > NEVER // 2 else None for value in following.tolist()])
    return paths


def _largest_cycle_mean(paths: list[list[int | None]]) -> Fraction:
    """Largest mean weight of a cycle in a strongly connected graph (Karp, Discrete Mathematics 23, 1978).

    With ``D[k][v]`` the longest walk of exactly ``k`` edges from node 0 to ``v``, over ``n`` nodes, it is the largest over
    ``v`` of the smallest over ``k`` of ``(D[n][v] - D[k][v]) / (n - k)``.

    Examples
    --------
    >>> _largest_cycle_mean([[1, 4], [3, 2]])
    Fraction(7, 2)
    """
    size = len(paths)
    # Plain integers: a walk of n edges may be longer than 64 bits hold.
    walks: list[list[int | None]] = [[0, *[None] * (size - 1)]]
    for _ in range(size):
        last = walks[-1]
        walks.append(
            [
                max(
                    (a + b for a, row in zip(last, paths, strict=True) if a is not None and (b := row[v]) is not None),
                    default=None,
                )
                for v in range(size)
            ]
        )
    means = [
        min(Fraction(full - part, size - k) for k in range(size) if (part := walks[k][v]) is not None)
        for v, full in enumerate(walks[size])
        if full is not None
    ]
    assert means, "every slot waits for every other"
    return max(means)


def _noisy(duration_ns: IntColumn, jitter: float, noise: np.random.Generator) -> IntColumn:
    factors = noise.uniform(1 - jitter, 1 + jitter, len(duration_ns))
    return np.rint(duration_ns * factors).astype(np.int64)


def _peak_bytes(problem: Problem, schedule: Schedule) -> tuple[int, ...]:
    peaks = np.zeros(problem.num_slots, dtype=np.int64)
    takes = schedule.kind == Kind.F
    slot = schedule.worker_of_row() % schedule.num_slots
    np.maximum.at(peaks, slot[takes], held_bytes(problem, schedule)[takes])
    return tuple(peaks.tolist())
