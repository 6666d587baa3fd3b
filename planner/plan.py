"""A plan: what every live worker runs under one failure set, how good that is proved to be, and where it came from.

Everything but ``wall_s`` and ``hindered`` is content: two runs that decide the same give the same ``plan_id``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum

from planner.errors import PlanFileError
from planner.failure_key import FailureKey
from planner.migration import Migration
from planner.operation import Worker
from planner.plan_content import content_id, plan_json
from planner.problem import FULL_SPEED_PPM, Problem
from planner.schedule import Schedule
from planner.topology import MAX_GPUS

_RANKS = re.compile(r"[0-9]{1,7}(-[0-9]{1,7})?(,[0-9]{1,7}(-[0-9]{1,7})?)*", re.ASCII)
_MAX_RANKS_CHARACTERS = 2**20


class PlanStatus(StrEnum):
    """What is proved about a plan's period."""

    OPTIMAL = "optimal"
    """The period equals a lower bound: no schedule of these workers is faster."""
    FEASIBLE = "feasible"
    """A valid plan; ``gap`` says how much faster another one could be at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotSummary:
    """What one slot does in a plan.

    Parameters
    ----------
    live_workers, failed_workers
        Number of each; together the number of pipelines.
    min_load, max_load
        Fewest and most microbatches that a live worker of the slot runs, counted over the slot's stages.
    busy_ns
        Longest time one live worker of the slot computes in an iteration.
    window_ns
        From the first start to the last end on the slot's live workers, plus its sync: at most the period when
        the optimizer is staggered.
    bound_ns
        Largest lower bound on the period that this slot alone proves.
    peak_memory_bytes
        Most activation bytes that a worker of the slot holds at once.
    capacity_bytes
        Memory each worker has for them, ``None`` where memory does not bind.
    """

    live_workers: int
    failed_workers: int
    min_load: int
    max_load: int
    busy_ns: int
    window_ns: int
    bound_ns: int
    peak_memory_bytes: int
    capacity_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A live worker that plays, after normalisation, the part of another pipeline's worker of its slot."""

    worker: Worker
    part: Worker


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """Schedule, routing, bound, memory and provenance for one job under one failure set.

    Invariants: ``schedule`` runs on the real workers of ``problem``, keeps its constraints and has the steady period
    ``period_ns`` (checked by whoever makes or reads a plan, see :func:`planner.plan_check.check_plan`);
    ``bound_ns <= period_ns``; ``status`` is optimal exactly where the two are equal.

    Parameters
    ----------
    job_name, job_sha256
        Name of the job, and hash of the description it was planned from.
    problem
        The real problem: dead and slow workers where they are (after ``migrations``, if any).
    schedule
        Order and shifted times on real workers.
    worker_ranks
        Global ranks of each worker as text such as ``"0-7"``, by worker index ``pipeline * P + slot``; empty where the
        job's layout is not known. After ``migrations``: those of who moved stand at the target, the failed ones at the source.
    failed_nodes, failed_workers, degraded
        The failure set: node names, the workers that are down, and the slow ones with their speed in parts per million.
    failure_key
        Dead and slow workers per slot that the plan is keyed by (after ``migrations``).
    status, period_ns
        What is claimed.
    bound_ns, bound_name, bound_slot
        The best lower bound on the period, what proves it and for which slot (``None`` where no single slot does).
    fault_free_ns
        Period of our own plan of the same job with every worker live and at full speed.
    baseline_1f1b_ns
        Period of fault-free 1F1B, whose forwards wait where memory is short; ``None`` where it was not worked out.
    slots
        One summary per slot.
    migrations
        Moves that this plan presumes are done before it starts; empty for rerouting in place.
    advised_migrations
        Moves that would pay, which this plan does not presume.
    relabelling
        Live workers that normalisation moved from their home's part to another; empty where all stay.
    notes
        What a reader has to know, one sentence each: a solver that failed, a migration that would pay.
    solver, seed, deadline_s, target_gap, solver_workers, deterministic
        What produced the schedule, under which options. ``deterministic`` where the deadline counted work, so that the same
        options and versions make the same plan again.
    versions
        Name and version of the software that decided, sorted by name.
    wall_s
        Seconds the planning took; no part of the content.
    hindered
        Whether a solver failed, or the search had less time than it was given, so that another try may find a better plan: the
        notes say why. Known where the plan is made, not where it is read; no part of the content.
    plan_id
        sha256 of the content's canonical JSON, 64 hexadecimal digits; worked out, not given.

    Raises
    ------
    PlanFileError
        If the parts contradict each other.
    """

    job_name: str
    job_sha256: str
    problem: Problem
    schedule: Schedule
    worker_ranks: tuple[str, ...] = ()
    failed_nodes: tuple[str, ...]
    failed_workers: tuple[Worker, ...]
    degraded: tuple[tuple[Worker, int], ...]
    failure_key: FailureKey
    status: PlanStatus
    period_ns: int
    bound_ns: int
    bound_name: str
    bound_slot: int | None
    fault_free_ns: int
    baseline_1f1b_ns: int | None
    slots: tuple[SlotSummary, ...]
    migrations: tuple[Migration, ...] = ()
    advised_migrations: tuple[Migration, ...] = ()
    relabelling: tuple[Seat, ...] = ()
    notes: tuple[str, ...] = ()
    solver: str
    seed: int
    deadline_s: float
    target_gap: float
    solver_workers: int
    versions: tuple[tuple[str, str], ...]
    wall_s: float
    deterministic: bool = False
    hindered: bool = False
    plan_id: str = field(init=False)

    def __post_init__(self) -> None:
        self._check_parts()
        object.__setattr__(self, "plan_id", content_id(plan_json(self)))

    def _check_parts(self) -> None:
        shape = (self.problem.num_pipelines, self.problem.num_slots)
        if (self.schedule.num_pipelines, self.schedule.num_slots) != shape:
            raise PlanFileError(
                f"the schedule has {self.schedule.num_pipelines} x {self.schedule.num_slots} workers; "
                f"expected the problem's {shape[0]} x {shape[1]}"
            )
        for name, found in (("slots", len(self.slots)), ("failure_key", self.failure_key.num_slots)):
            if found != shape[1]:
                raise PlanFileError(f"{name} has {found} entries; expected one for each of {shape[1]} slots")
        if len(self.worker_ranks) not in (0, shape[0] * shape[1]):
            raise PlanFileError(
                f"worker_ranks has {len(self.worker_ranks)} entries; expected none or {shape[0] * shape[1]}"
            )
        self._check_ranks()
        if not 0 <= self.bound_ns <= self.period_ns:
            raise PlanFileError(
                f"bound {self.bound_ns} ns and period {self.period_ns} ns; expected 0 <= bound <= period"
            )
        if (self.status is PlanStatus.OPTIMAL) != (self.bound_ns == self.period_ns):
            raise PlanFileError(
                f"status is {self.status}, but the period is {self.period_ns} ns and the bound {self.bound_ns} ns"
            )

    def _check_ranks(self) -> None:
        """Each worker's ranks ascend, no rank is another's too, and all workers have as many."""
        seen: set[int] = set()
        sizes = set()
        for index, text in enumerate(self.worker_ranks):
            if len(text) > _MAX_RANKS_CHARACTERS or _RANKS.fullmatch(text) is None:
                raise PlanFileError(f"worker_ranks[{index}] is {text[:40]!r}; expected ranks such as '0-7' or '0,2'")
            runs = [(int(first), int(last or first)) for first, _, last in (p.partition("-") for p in text.split(","))]
            flat = [rank for run in runs for rank in run]
            if flat != sorted(flat) or flat[-1] >= MAX_GPUS:
                raise PlanFileError(
                    f"worker_ranks[{index}] is {text[:40]!r}; expected ascending ranks below {MAX_GPUS}"
                )
            own = {rank for first, last in runs for rank in range(first, last + 1)}
            sizes.add(len(own))
            if not own.isdisjoint(seen) or len(own) != sum(last - first + 1 for first, last in runs):
                raise PlanFileError(
                    f"worker_ranks[{index}] is {text[:40]!r}: a rank of it is another's too, or twice there"
                )
            seen |= own
        if len(sizes) > 1:
            raise PlanFileError(f"worker_ranks gives workers {sorted(sizes)[:8]} ranks; expected each as many")

    @property
    def gap(self) -> float | None:
        """How much faster another plan could be at most, relative to the bound; ``None`` where the bound is 0."""
        if self.period_ns == self.bound_ns:
            return 0.0
        return None if self.bound_ns == 0 else self.period_ns / self.bound_ns - 1

    @property
    def throughput_kept(self) -> float | None:
        """Share of the fault-free plan's throughput that this plan keeps; ``None`` where the period is 0."""
        return None if self.period_ns == 0 else self.fault_free_ns / self.period_ns

    @property
    def peak_memory_bytes(self) -> tuple[int, ...]:
        """Peak activation bytes of one worker, per slot."""
        return tuple(slot.peak_memory_bytes for slot in self.slots)

    def worker_of_rank(self, rank: int) -> Worker | None:
        """Worker that a global rank belongs to; ``None`` where it is idle, does not exist or the layout is not known."""
        for index, text in enumerate(self.worker_ranks):
            for part in text.split(","):
                first, _, last = part.partition("-")
                if int(first) <= rank <= int(last or first):
                    return Worker(index // self.problem.num_slots, index % self.problem.num_slots)
        return None

    def failures_text(self) -> str:
        """The failure set on one line, for example ``gpu0007 (worker 0/6); slow 1/2 at 70 %``."""
        parts = []
        if self.failed_workers:
            noun = "worker" if len(self.failed_workers) == 1 else "workers"
            workers = f"{noun} {' '.join(map(str, self.failed_workers))}"
            parts.append(f"{','.join(self.failed_nodes)} ({workers})" if self.failed_nodes else workers)
        if self.degraded:
            parts.append(
                "slow " + " ".join(f"{worker} at {100 * ppm / FULL_SPEED_PPM:g} %" for worker, ppm in self.degraded)
            )
        return "; ".join(parts) or "none"
