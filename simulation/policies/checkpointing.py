"""Policies that stop and start again from a checkpoint, on as many whole pipelines as the nodes left make up.

All keep the global batch: fewer pipelines run more microbatches each. Nodes beyond whole pipelines stand idle, and losing one of
those disturbs nobody. When nodes return, training is stopped and started again with more pipelines where that pays. All run our
fault-free plan's schedule on the pipelines they have, so that only the answer to failures differs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import ClassVar

from planner.operation import Worker
from simulation.cluster import Change, Cluster
from simulation.constants import CPR_OVERHEAD, REFT_OVERHEAD
from simulation.outcome import Cause
from simulation.policies.policy import Answer, Lost, Mode, PaysForWhatIsUp, Shares
from simulation.policies.rates import Rates


@dataclass(slots=True)
class CheckpointRestart(PaysForWhatIsUp):
    """Checkpoints at the Young-Daly interval; a loss costs detection, a restart and all since the last checkpoint."""

    name: ClassVar[str] = "checkpoint-restart"
    summary: ClassVar[str] = "restart on whole pipelines from a checkpoint written at the Young-Daly interval"
    keeps_batch: ClassVar[bool] = True
    is_exact: ClassVar[bool] = True
    writes_checkpoints: ClassVar[bool] = True
    stop_s: ClassVar[float | None] = None
    """Seconds to save the state before a planned stop; ``None``: as long as a checkpoint takes."""
    overheads: ClassVar[Shares] = ()

    rates: Rates
    active: frozenset[Worker] = frozenset()
    mode: Mode = field(init=False)

    def begin(self, cluster: Cluster) -> Mode:
        """As many whole pipelines as there are."""
        return self._start(cluster)

    def answer(self, change: Change) -> Answer:
        """Restart where a worker in use is lost, or where returned ones make it pay."""
        costs = self.rates.costs
        if self.active & set(change.lost):
            stalls = ((Cause.DETECTION, costs.detection_s), (Cause.RESTART, costs.restart_s))
            return Answer(mode=self._start(change.after), stalls=stalls, lost=self.what_is_lost(change))
        now = self._mode_for(change.after)
        stop_s = costs.checkpoint_s if self.stop_s is None else self.stop_s
        if not self.active and now.samples_per_s > 0:
            # It stands still already, with its last checkpoint.
            return Answer(mode=self._start(change.after), stalls=((Cause.RESTART, costs.restart_s),))
        if now.samples_per_s > self.mode.samples_per_s and self.rates.pays(self.mode, now, stop_s + costs.restart_s):
            saving = ((Cause.CHECKPOINT, stop_s),) if stop_s else ()
            return Answer(mode=self._start(change.after), stalls=(*saving, (Cause.RESTART, costs.restart_s)))
        return Answer(mode=self.mode)

    def what_is_lost(self, change: Change) -> Lost:  # noqa: ARG002 - here always the same
        """What a loss takes of the work done."""
        return Lost.SINCE_CHECKPOINT

    def _mode_for(self, cluster: Cluster) -> Mode:
        mode = self.rates.of_whole_pipelines(cluster.whole_pipelines)
        return Mode(
            samples_per_s=mode.samples_per_s,
            iteration_s=mode.iteration_s,
            overheads=self.overheads,
            short_of=mode.short_of,
        )

    def _start(self, cluster: Cluster) -> Mode:
        self.active = frozenset(cluster.workers[: cluster.whole_pipelines * cluster.job.num_slots])
        self.mode = self._mode_for(cluster)
        return self.mode


@dataclass(slots=True)
class PerIterationCheckpoint(CheckpointRestart):
    """A checkpoint each iteration at no cost, kept by CPU nodes that see every gradient: a loss costs the iteration in flight.

    Checkmate (arXiv 2507.13522). Its shadow cluster of CPU nodes is not in the GPU hours.
    """

    name: ClassVar[str] = "checkpoint-each-iteration"
    summary: ClassVar[str] = "Checkmate: a free checkpoint each iteration on shadow nodes, then restart"
    writes_checkpoints: ClassVar[bool] = False
    stop_s: ClassVar[float | None] = 0.0

    def what_is_lost(self, change: Change) -> Lost:  # noqa: ARG002 - here always the same
        """The iteration in flight."""
        return Lost.ITERATION


@dataclass(slots=True)
class InMemoryCheckpoint(CheckpointRestart):
    """Snapshots in CPU memory each iteration, protected against one lost node of each slot; beyond that, the last checkpoint.

    REFT (arXiv 2310.12670): erasure coding over the peers of a slot, so two of them lost at once are one too many.
    """

    name: ClassVar[str] = "checkpoint-in-memory"
    summary: ClassVar[str] = "REFT: snapshots in memory survive one loss a slot, then restart"
    stop_s: ClassVar[float | None] = 0.0
    overheads: ClassVar[Shares] = ((Cause.CHECKPOINT, REFT_OVERHEAD),)

    def what_is_lost(self, change: Change) -> Lost:
        """The iteration in flight, or everything since the last checkpoint."""
        by_slot = Counter(worker.slot for worker in change.lost)
        return Lost.ITERATION if max(by_slot.values()) == 1 else Lost.SINCE_CHECKPOINT


@dataclass(slots=True)
class PartialRecovery(CheckpointRestart):
    """Only what is lost is loaded from an old checkpoint; all others keep what they have. Not exact: stages differ in age.

    CPR (arXiv 2011.02999), made for recommendation models; nobody has shown that a transformer bears it.
    """

    name: ClassVar[str] = "partial-recovery"
    summary: ClassVar[str] = "CPR: lost workers load an old checkpoint, the others go on; not exact"
    is_exact: ClassVar[bool] = False
    writes_checkpoints: ClassVar[bool] = False
    stop_s: ClassVar[float | None] = 0.0
    overheads: ClassVar[Shares] = ((Cause.CHECKPOINT, CPR_OVERHEAD),)

    def what_is_lost(self, change: Change) -> Lost:  # noqa: ARG002 - here always the same
        """The iteration in flight."""
        return Lost.ITERATION
