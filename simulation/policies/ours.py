"""RePlan: reroute at once by a plan made ahead, and move failures between slots where that is expected to pay."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from planner.failure_key import FailureKey, problem_for_key
from planner.migration import advise_migrations, best_counts
from planner.operation import Worker
from simulation.choice import expected_lost_s
from simulation.cluster import Change, Cluster
from simulation.constants import LOOKUP_S, MIGRATION_S
from simulation.outcome import Cause
from simulation.placement import Counts, copying_s
from simulation.policies.policy import WAIT, Answer, Lost, Mode, PaysForWhatIsUp
from simulation.policies.rates import Rates


@dataclass(slots=True)
class RePlan(PaysForWhatIsUp):
    """Reroute by plans of :mod:`solver_models` for failure counts; in place or after migrations by expected cost.

    A loss costs detection, finding the plan, new communicators and the iteration in flight. Migrations cost, on top, the time
    until the last copy is done. A worker that returns takes the empty position that hurts most and copies its state while the
    others train; they stand still for new communicators only, and only where that pays. Where a slot has no live worker left
    the last checkpoint is loaded, with whoever is left spread anew; with fewer workers than slots training waits.
    """

    name: ClassVar[str] = "replan"
    summary: ClassVar[str] = "ours: reroute by plans made ahead, migrate where that pays"
    keeps_batch: ClassVar[bool] = True
    is_exact: ClassVar[bool] = True
    writes_checkpoints: ClassVar[bool] = True
    migrates: ClassVar[bool] = True
    plan_s: ClassVar[float | None] = LOOKUP_S
    """Seconds to find the plan; ``None``: as long as it takes to make one."""

    rates: Rates
    slot_of: dict[Worker, int] = field(default_factory=dict)
    """Slot that each live worker stands in; moved ones stand elsewhere than the job's layout has them."""
    mode: Mode = WAIT
    _known_ways: dict[Counts, tuple[tuple[Counts, float], ...]] = field(default_factory=dict)

    stage_lost: ClassVar[Lost] = Lost.SINCE_CHECKPOINT
    """What is lost where a slot has no live worker left."""

    def begin(self, cluster: Cluster) -> Mode:
        """Whoever is up is spread best before training begins."""
        self._place_anew(cluster)
        return self.mode

    def answer(self, change: Change) -> Answer:
        """Reroute, or migrate and reroute."""
        costs, was_running = self.rates.costs, self.mode.samples_per_s > 0
        for worker in change.lost:
            self.slot_of.pop(worker, None)
        is_lost = was_running and max(self._counts()) == self.rates.periods.job.num_pipelines
        detection = ((Cause.DETECTION, costs.detection_s),) if change.lost else ()
        if is_lost or not was_running:
            self._place_anew(change.after)
            restart = ((Cause.RESTART, costs.restart_s),) if self.mode.samples_per_s > 0 else ()
            return Answer(
                mode=self.mode,
                stalls=(*detection, *restart) if is_lost else restart,
                lost=self.stage_lost if is_lost else Lost.NOTHING,
            )
        for worker in change.returned:
            self.slot_of[worker] = self._best_slot(worker)
        copying = self._migrate() if self.migrates and change.lost else 0.0
        mode = self._mode(self._counts())
        if not change.lost and not self.rates.pays(self.mode, mode, costs.regroup_s):
            # Whoever is back joins at the next change; nobody stands still for it now.
            return Answer(mode=self.mode)
        self.mode = mode
        plan_s = costs.solve_s if self.plan_s is None else self.plan_s
        regroup = ((Cause.RECONFIGURATION, plan_s + costs.regroup_s),)
        migration = ((Cause.MIGRATION, copying),) if copying else ()
        return Answer(
            mode=self.mode,
            stalls=(*detection, *migration, *regroup),
            lost=Lost.ITERATION if change.lost else Lost.NOTHING,
        )

    def _counts(self) -> Counts:
        job = self.rates.periods.job
        dead = [job.num_pipelines] * job.num_slots
        for slot in self.slot_of.values():
            dead[slot] -= 1
        return tuple(dead)

    def _mode(self, counts: Counts) -> Mode:
        if max(counts) == self.rates.periods.job.num_pipelines:
            return WAIT
        return self.rates.of_period(self.rates.periods.of_counts(counts))

    def _best_slot(self, worker: Worker) -> int:
        """The empty position that hurts most: the slot of the largest estimate; the worker's own where it may not move."""
        if not self.migrates:
            return worker.slot
        estimate, counts = self.rates.periods.estimate, self._counts()
        return max(
            (s for s, count in enumerate(counts) if count), key=lambda s: (estimate(s, counts[s]), s == worker.slot)
        )

    def _place_anew(self, cluster: Cluster) -> None:
        """Spread the live workers over the slots, from a checkpoint; where nobody may move, each into its own."""
        job, workers = cluster.job, cluster.workers
        self.slot_of = {worker: worker.slot for worker in workers}
        if self.migrates and len(workers) >= job.num_slots:
            counts = self._spread(job.num_pipelines * job.num_slots - len(workers))
            room = [job.num_pipelines - count for count in counts]
            self.slot_of, homeless = {}, []
            for worker in workers:
                if room[worker.slot]:
                    room[worker.slot] -= 1
                    self.slot_of[worker] = worker.slot
                else:
                    homeless.append(worker)
            free = [s for s, left in enumerate(room) for _ in range(left)]
            self.slot_of.update(zip(homeless, free, strict=True))
        self.mode = self._mode(self._counts())

    def _spread(self, dead: int) -> Counts:
        """The better of the counts that bounds say are best, and of level ones."""
        periods = self.rates.periods
        job = periods.job
        ways = (best_counts(job.problem(), dead, periods.estimate, level=level) for level in (False, True))
        return min(ways, key=periods.of_counts)

    def _migrate(self) -> float:
        """Move workers where that is expected to pay before the next change; the seconds that copying takes."""
        counts = self._counts()
        chosen = min(((counts, 0.0), *self._ways(counts)), key=self._expected_lost_s)
        self._move(counts, chosen[0])
        return chosen[1]

    def _expected_lost_s(self, way: tuple[Counts, float]) -> float:
        """Seconds that some counts are expected to lose up to the next change, copying first."""
        counts, seconds = way
        slowdown = 1 - self._mode(counts).samples_per_s / self.rates.best
        return expected_lost_s(self.rates.costs.regroup_s + seconds, slowdown, self.rates.between_changes_s)

    def _ways(self, counts: Counts) -> tuple[tuple[Counts, float], ...]:
        """Counts that migrations may lead to and how long copying takes: as the planner plans, by bounds and level."""
        if counts not in self._known_ways:
            periods = self.rates.periods
            job = periods.job
            problem = problem_for_key(job.problem(), FailureKey(dead=counts, degraded=((),) * len(counts)))
            rate = self.rates.costs.copy_bytes_per_s * job.gpus_per_worker
            sizes = [job.state_bytes(slot) for slot in range(job.num_slots)]
            # Where sizes are not known each copy takes the same time.
            known = [size if size is not None else round(MIGRATION_S * rate) for size in sizes]
            advised = (
                advise_migrations(problem, periods.estimate, known, level=level).new_counts for level in (False, True)
            )
            self._known_ways[counts] = tuple(
                (way, copying_s(counts, way, job.num_pipelines, known, rate))
                for way in dict.fromkeys(advised)
                if way != counts
            )
        return self._known_ways[counts]

    def _move(self, counts: Counts, new_counts: Counts) -> None:
        """Put workers of slots that give some up into those that gain."""
        gaining = [s for s, (old, new) in enumerate(zip(counts, new_counts, strict=True)) for _ in range(old - new)]
        leaving = {s: new - old for s, (old, new) in enumerate(zip(counts, new_counts, strict=True)) if new > old}
        for worker, slot in sorted(self.slot_of.items()):
            if leaving.get(slot) and gaining:
                leaving[slot] -= 1
                self.slot_of[worker] = gaining.pop()


@dataclass(slots=True)
class WithoutMigration(RePlan):
    """RePlan that leaves everybody where the job's layout has them."""

    name: ClassVar[str] = "replan-no-migration"
    summary: ClassVar[str] = "ours, nobody moves"
    migrates: ClassVar[bool] = False


@dataclass(slots=True)
class WithoutNormalization(RePlan):
    """RePlan without plans by failure counts made ahead: each is made while training stands still."""

    name: ClassVar[str] = "replan-no-normalization"
    summary: ClassVar[str] = "ours, plans made when they are needed"
    plan_s: ClassVar[float | None] = None


@dataclass(slots=True)
class WithoutStaggering(RePlan):
    """RePlan where all slots wait for each other before the optimizer's step. Its rates are of such a job."""

    name: ClassVar[str] = "replan-no-staggering"
    summary: ClassVar[str] = "ours, all slots step together"


@dataclass(slots=True)
class WithoutSplit(RePlan):
    """RePlan with fused backwards. Its rates are of such a job."""

    name: ClassVar[str] = "replan-no-split"
    summary: ClassVar[str] = "ours, backwards in one piece"


@dataclass(slots=True)
class WithShadow(RePlan):
    """RePlan with Checkmate's checkpoints in place of written ones: a lost stage costs the iteration in flight and a restart."""

    name: ClassVar[str] = "replan-shadow"
    summary: ClassVar[str] = "ours with Checkmate's free checkpoint each iteration"
    writes_checkpoints: ClassVar[bool] = False
    stage_lost: ClassVar[Lost] = Lost.ITERATION
