"""Migrations: move a failure to a slot that bears it better, where that pays for the copying.

A healthy worker of slot ``b`` can take over a dead position of slot ``a``: it copies the parameters and optimizer state
of slot ``a`` from a live peer there and leaves its own position empty. So slot ``a`` has one failure less and slot ``b`` one
more. :func:`advise_migrations` picks the counts by dynamic programming; ``docs/normalization.md`` has the recurrence and a
worked example. A slot with no live worker is beyond help: nobody holds what would have to be copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from planner.errors import OptionError, ProblemError, StageLostError
from planner.failure_key import failure_key
from planner.operation import Worker
from planner.problem import Problem
from planner.slot_cost import SlotCost, bound_estimate, work_estimate

__all__ = [
    "Migration",
    "MigrationAdvice",
    "SlotCost",
    "advise_migrations",
    "apply_migrations",
    "best_counts",
    "bound_estimate",
    "move_ranks",
    "work_estimate",
    "worthwhile",
]

IntArray: TypeAlias = npt.NDArray[np.int64]

_UNREACHED = int(np.iinfo(np.int64).max)


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One worker's move into a dead position.

    Parameters
    ----------
    source
        Healthy worker that moves; its position stays empty.
    target
        Dead position that it takes over.
    copy_from
        Live peer of ``target`` that it copies parameters and optimizer state from.
    num_bytes
        Bytes it copies.
    seconds
        Time of that copy alone; ``None`` where no bandwidth was given.
    """

    source: Worker
    target: Worker
    copy_from: Worker
    num_bytes: int
    seconds: float | None = None

    @property
    def slot(self) -> int:
        """Slot that gains a live worker and whose state is copied."""
        return self.target.slot


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationAdvice:
    """The best failure counts and how to get there.

    Parameters
    ----------
    migrations
        Moves, ordered by target slot and pipeline; empty where none shortens the estimated period.
    counts, new_counts
        Dead workers per slot before, and empty positions per slot after; both have the same sum.
    period_ns, new_period_ns
        Estimated period before and after.
    seconds
        Time until the last copy is done, if all start at once and a worker that several copy from serves them in turn; ``None``
        where no bandwidth was given.
    """

    migrations: tuple[Migration, ...]
    counts: tuple[int, ...]
    new_counts: tuple[int, ...]
    period_ns: int
    new_period_ns: int
    seconds: float | None

    @property
    def saving_ns(self) -> int:
        """Estimated time saved in each iteration."""
        return self.period_ns - self.new_period_ns

    @property
    def num_bytes(self) -> int:
        """Bytes copied by all migrations together."""
        return sum(migration.num_bytes for migration in self.migrations)


def advise_migrations(
    problem: Problem,
    slot_cost_ns: SlotCost,
    state_bytes: Sequence[int],
    *,
    bandwidth_bytes_per_s: float | None = None,
    level: bool = False,
) -> MigrationAdvice:
    """Find the failure counts with the smallest estimated period and, among those, the fewest bytes and moves.

    Degraded workers stay where they are: only dead positions are filled, and only by workers at full speed.

    Parameters
    ----------
    problem
        The real problem with its failures.
    slot_cost_ns
        Estimate, at least 0, for a slot and a number of dead workers in it; the period's is the largest over the slots.
        Called once for each slot and each count that the slot may get.
    state_bytes
        For each slot the bytes of parameters and optimizer state that a worker entering it copies, each at least 0.
    bandwidth_bytes_per_s
        Rate of one copy, above 0; ``None`` if not known.
    level
        Whether all slots are to have the same number of dead workers, or one more, as far as their degraded workers allow: the
        failures then fill the fewest pipelines, and all others are whole. The estimate may be longer than before.

    Returns
    -------
    MigrationAdvice
        Without migrations where no move shortens the estimate. Whether it pays is for :func:`worthwhile` to say.

    Raises
    ------
    StageLostError, MemoryTooSmallError
        If the problem cannot be planned at all.
    OptionError
        If ``state_bytes`` or the bandwidth is out of its range.

    Examples
    --------
    Two slots of two pipelines, costs 10 and 1 for a failed worker, 0 without, and one worker of slot 0 dead: the counts
    (0, 1) have period 1 instead of 10, for one copy of slot 0's state.
    """
    problem.require_plannable()
    if len(state_bytes) != problem.num_slots or any(size < 0 for size in state_bytes):
        raise OptionError(
            f"state_bytes is {tuple(state_bytes)[:16]}; expected {problem.num_slots} numbers, each at least 0"
        )
    if bandwidth_bytes_per_s is not None and not 0 < bandwidth_bytes_per_s < float("inf"):
        raise OptionError(f"the bandwidth is {bandwidth_bytes_per_s} bytes/s; expected a finite number above 0")
    counts = failure_key(problem).dead
    costs = _slot_costs(problem, sum(counts), slot_cost_ns, level=level)
    new_period_ns = _smallest_period_ns(costs, sum(counts))
    new_counts = _cheapest_counts(costs, counts, sum(counts), state_bytes, new_period_ns)
    migrations = _choose_workers(problem, counts, new_counts, state_bytes, bandwidth_bytes_per_s)
    return MigrationAdvice(
        migrations=migrations,
        counts=counts,
        new_counts=new_counts,
        period_ns=max(slot_cost_ns(s, c) for s, c in enumerate(counts)),
        new_period_ns=new_period_ns,
        seconds=_copying_seconds(migrations, bandwidth_bytes_per_s),
    )


def apply_migrations(problem: Problem, migrations: Sequence[Migration]) -> Problem:
    """The problem after the migrations: their targets are live, their sources' positions empty.

    Raises
    ------
    ProblemError
        If a target is not dead or a source not healthy, or one of them stands twice.
    """
    dead = set(problem.dead)
    for migration in migrations:
        if migration.target not in problem.dead or migration.target not in dead:
            raise ProblemError(f"migration into {migration.target}: expected a dead position that nobody else takes")
        if migration.source in dead or migration.source in problem.speeds_ppm:
            raise ProblemError(f"migration of {migration.source}: expected a healthy worker that moves only once")
        dead.remove(migration.target)
        dead.add(migration.source)
    return replace(problem, dead=frozenset(dead))


def move_ranks(worker_ranks: Sequence[str], migrations: Sequence[Migration], num_slots: int) -> tuple[str, ...]:
    """Ranks of each position once the migrations are done: the source's stand at the target, the failed ones at the source.

    Parameters
    ----------
    worker_ranks
        Ranks of each worker by its index ``pipeline * num_slots + slot``; empty where they are not known.
    migrations
        Moves, each from a live worker into a dead position.
    num_slots
        ``P``.

    Examples
    --------
    Two pipelines of one slot, rank 0 dead: when rank 1 moves into 0/0, the ranks ``("0", "1")`` become ``("1", "0")``.
    """
    ranks = list(worker_ranks)
    if ranks:
        for move in migrations:
            source = move.source.pipeline * num_slots + move.source.slot
            target = move.target.pipeline * num_slots + move.target.slot
            ranks[source], ranks[target] = ranks[target], ranks[source]
    return tuple(ranks)


def worthwhile(
    advice: MigrationAdvice,
    *,
    next_failure_s: float | None,
    next_repair_s: float | None,
    fixed_cost_s: float = 0.0,
) -> bool:
    """Whether the time that migrations save before the next expected failure or repair exceeds their cost.

    The horizon ``H`` is the sooner of the two, since either brings a new plan. Training is taken to stand still
    for the cost ``K`` (copying and ``fixed_cost_s``), then runs ``(H - K) / new_period`` iterations against ``H / period``
    without migrations. So it pays where ``H * (1 - new_period / period) > K``. Nothing has to be moved back: a repaired
    node must load state in any case, and may load that of the slot left empty.

    Parameters
    ----------
    advice
        Made with a bandwidth.
    next_failure_s, next_repair_s
        Expected time from now, above 0; ``None`` where not expected. With neither, any saving pays in the end.
    fixed_cost_s
        Time lost beside the copying, for example to rebuild communicators; at least 0.

    Raises
    ------
    OptionError
        If a time is out of its range, or the advice was made without a bandwidth.

    Examples
    --------
    A period of 10 s that becomes 9 s saves a tenth of the horizon: with a failure expected in 300 s, 30 s. Copying for 25 s
    pays, copying for 30 s does not.
    """
    for name, value in (("next_failure_s", next_failure_s), ("next_repair_s", next_repair_s)):
        if value is not None and not 0 < value < float("inf"):
            raise OptionError(f"{name} is {value}; expected a finite number of seconds above 0, or none")
    if not 0 <= fixed_cost_s < float("inf"):
        raise OptionError(f"fixed_cost_s is {fixed_cost_s}; expected a finite number of seconds, at least 0")
    if not advice.migrations or advice.saving_ns <= 0:
        return False
    if advice.seconds is None:
        raise OptionError("the cost of the migrations is not known", hint="give a bandwidth in bytes per second")
    horizons = [value for value in (next_failure_s, next_repair_s) if value is not None]
    if not horizons:
        return True
    return min(horizons) * (advice.saving_ns / advice.period_ns) > advice.seconds + fixed_cost_s


def best_counts(problem: Problem, total: int, slot_cost_ns: SlotCost, *, level: bool = False) -> tuple[int, ...]:
    """Failure counts with the smallest estimated period for dead workers that may be put anywhere.

    What :func:`advise_migrations` leads to where copying costs nothing; the problem's own dead workers are set aside.

    Parameters
    ----------
    problem
        The job's problem.
    total
        Number of dead workers, at least 0 and no more than leave each slot a live worker.
    slot_cost_ns, level
        As for :func:`advise_migrations`.

    Returns
    -------
    tuple of int
        For each slot; among equal periods the fewest failures early.

    Raises
    ------
    StageLostError
        If some slot would have no live worker left.

    Examples
    --------
    Two slots of two pipelines, costs 10 and 1 for a failed worker, 0 without: one failure is best put at (0, 1).
    """
    if total > sum(_most_dead(problem)):
        raise StageLostError(f"{total} dead workers leave some slot without a live one, wherever they are")
    costs = _slot_costs(problem, total, slot_cost_ns, level=level)
    nothing = (0,) * problem.num_slots
    return _cheapest_counts(costs, nothing, total, nothing, _smallest_period_ns(costs, total))


def _most_dead(problem: Problem) -> list[int]:
    """Dead workers that each slot may get: healthy workers may leave it, but one live worker must stay."""
    return [problem.num_pipelines - max(1, len(speeds)) for speeds in failure_key(problem).degraded]


def _slot_costs(problem: Problem, total: int, slot_cost_ns: SlotCost, *, level: bool) -> list[list[int]]:
    """Cost of each slot for each count it may get, at most ``total``; of level counts alone, all fewer unreached."""
    room = _most_dead(problem)
    least, most = 0, total
    if level:
        most = next(m for m in range(total + 1) if sum(min(m, limit) for limit in room) >= total)
        least = max(0, most - 1)
    costs = []
    for slot, limit in enumerate(room):
        first = min(least, limit)
        row = [slot_cost_ns(slot, count) for count in range(first, min(most, limit) + 1)]
        costs.append([_UNREACHED] * first + row)
    return costs


def _smallest_period_ns(costs: list[list[int]], total: int) -> int:
    """``f[s][m] = min over c of max(f[s-1][m-c], cost[s][c])``, one slot at a time for all ``m`` at once."""
    best: IntArray = np.full(total + 1, _UNREACHED, dtype=np.int64)
    best[0] = 0
    for row in costs:
        after: IntArray = np.full(total + 1, _UNREACHED, dtype=np.int64)
        for count, cost in enumerate(row):
            np.minimum(after[count:], np.maximum(best[: total + 1 - count], cost), out=after[count:])
        best = after
    assert best[total] < _UNREACHED, "the present counts, or as many dead in every slot, are always among the choices"
    return int(best[total])


def _cheapest_counts(
    costs: list[list[int]], counts: tuple[int, ...], all_dead: int, state_bytes: Sequence[int], period_ns: int
) -> tuple[int, ...]:
    """Counts within the period with the fewest bytes copied, then the fewest moves, then the fewest failures early.

    ``g[s][m] = min over c with cost[s][c] <= period of g[s-1][m-c] + (bytes, 1) * max(0, counts[s] - c)``.
    """
    best: dict[int, tuple[int, int, tuple[int, ...]]] = {0: (0, 0, ())}
    for row, present, size in zip(costs, counts, state_bytes, strict=True):
        after: dict[int, tuple[int, int, tuple[int, ...]]] = {}
        for count, cost in enumerate(row):
            if cost > period_ns:
                continue
            moves = max(0, present - count)
            for placed, (num_bytes, num_moves, chosen) in best.items():
                total = placed + count
                if total > all_dead:
                    continue
                candidate = (num_bytes + moves * size, num_moves + moves, (*chosen, count))
                if total not in after or candidate < after[total]:
                    after[total] = candidate
        best = after
    return best[all_dead][2]


def _choose_workers(
    problem: Problem,
    counts: tuple[int, ...],
    new_counts: tuple[int, ...],
    state_bytes: Sequence[int],
    bandwidth_bytes_per_s: float | None,
) -> tuple[Migration, ...]:
    """Name who moves where: within a pipeline where that is possible, so that no pipeline gains a failure."""
    leaving = {s: new - old for s, (old, new) in enumerate(zip(counts, new_counts, strict=True)) if new > old}
    targets = [
        worker
        for s, (old, new) in enumerate(zip(counts, new_counts, strict=True))
        for worker in sorted(w for w in problem.dead if w.slot == s)[: max(0, old - new)]
    ]
    taken: dict[Worker, Worker] = {}

    def take(target: Worker, pipelines: Sequence[int]) -> None:
        for slot in sorted(leaving):
            for pipeline in pipelines:
                source = Worker(pipeline, slot)
                healthy = problem.is_live(source) and source not in problem.speeds_ppm
                if leaving[slot] and healthy and source not in taken.values():
                    taken[target] = source
                    leaving[slot] -= 1
                    return

    for target in targets:
        take(target, (target.pipeline,))
    for target in targets:
        if target not in taken:
            take(target, range(problem.num_pipelines))
    served: dict[int, int] = dict.fromkeys(range(problem.num_slots), 0)
    migrations = []
    for target in targets:
        peers = problem.live_pipelines(target.slot)
        donor = Worker(peers[served[target.slot] % len(peers)], target.slot)
        served[target.slot] += 1
        num_bytes = state_bytes[target.slot]
        seconds = None if bandwidth_bytes_per_s is None else num_bytes / bandwidth_bytes_per_s
        migrations.append(
            Migration(source=taken[target], target=target, copy_from=donor, num_bytes=num_bytes, seconds=seconds)
        )
    return tuple(migrations)


def _copying_seconds(migrations: tuple[Migration, ...], bandwidth_bytes_per_s: float | None) -> float | None:
    if bandwidth_bytes_per_s is None:
        return None
    bytes_from: dict[Worker, int] = {}
    for migration in migrations:
        bytes_from[migration.copy_from] = bytes_from.get(migration.copy_from, 0) + migration.num_bytes
    return max(bytes_from.values(), default=0) / bandwidth_bytes_per_s
