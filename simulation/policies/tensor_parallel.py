"""Smaller tensor-parallel groups: a worker that lost some of its GPUs goes on with the others, more slowly."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from simulation.cluster import Change, Cluster
from simulation.outcome import Cause
from simulation.policies.policy import Answer, Lost, Mode, PaysForWhatIsUp, Stalls
from simulation.policies.rates import Rates


@dataclass(slots=True)
class SmallerTensorParallel(PaysForWhatIsUp):
    """A replica runs as fast as its slowest worker, and gets a batch in proportion.

    NTP (arXiv 2504.06095): a replica contributes in proportion to its functional GPUs; ResiHP (arXiv 2605.06374) regroups so
    that the slow stand together. Here workers are sorted by the share of their GPUs that is up and make up replicas in that
    order, so that slow ones spoil as few as possible; those with none left are out. A loss costs detection, new communicators
    and the iteration in flight; at a return the job stands still for new communicators where that pays. Where a node is a whole
    worker this is dropping replicas, without waiting for what is left to restart.
    """

    name: ClassVar[str] = "smaller-tensor-parallel"
    summary: ClassVar[str] = "NTP, ResiHP: a worker goes on with the GPUs it has left, its replica with a smaller batch"
    keeps_batch: ClassVar[bool] = False
    is_exact: ClassVar[bool] = True
    writes_checkpoints: ClassVar[bool] = True

    rates: Rates
    mode: Mode = field(init=False)

    def begin(self, cluster: Cluster) -> Mode:
        """Replicas of workers sorted by speed."""
        self.mode = self.rates.of_replicas(replicas_worth(cluster))
        return self.mode

    def answer(self, change: Change) -> Answer:
        """Regroup."""
        costs, before = self.rates.costs, self.mode
        mode = self.rates.of_replicas(replicas_worth(change.after))
        if not change.gpus_lost and before.samples_per_s > 0 and not self.rates.pays(before, mode, costs.regroup_s):
            # Whoever is back joins at the next change; nobody stands still for it now.
            return Answer(mode=before)
        self.mode = mode
        if before.samples_per_s == 0 or mode.samples_per_s == 0:
            stalls: Stalls = ((Cause.RESTART, costs.restart_s),) if mode.samples_per_s > 0 else ()
            return Answer(
                mode=mode, stalls=stalls, lost=Lost.SINCE_CHECKPOINT if before.samples_per_s > 0 else Lost.NOTHING
            )
        if change.gpus_lost:
            if _loses_a_slot(change):
                stalls = ((Cause.DETECTION, costs.detection_s), (Cause.RESTART, costs.restart_s))
                return Answer(mode=mode, stalls=stalls, lost=Lost.SINCE_CHECKPOINT)
            stalls = ((Cause.DETECTION, costs.detection_s), (Cause.RECONFIGURATION, costs.regroup_s))
            return Answer(mode=mode, stalls=stalls, lost=Lost.ITERATION)
        return Answer(mode=mode, stalls=((Cause.RECONFIGURATION, costs.regroup_s),))


def replicas_worth(cluster: Cluster) -> float:
    """Replicas that the workers make up, each counted by its slowest worker's share of GPUs.

    Examples
    --------
    Two pipelines of two slots, one GPU of eight lost at one worker: ``1 + 7 / 8``.
    """
    slots = cluster.job.num_slots
    speeds = sorted((speed for speed in cluster.speeds if speed > 0), reverse=True)
    return sum(speeds[last] for last in range(slots - 1, len(speeds), slots))


def _loses_a_slot(change: Change) -> bool:
    """Whether some slot has no worker left that kept a GPU from before."""
    slots = change.after.job.num_slots
    struck = {worker.pipeline * slots + worker.slot for worker in change.lost}
    # What is lost and back at the same moment holds nothing any more.
    alive = [
        0.0 if i in struck and b == 1 else min(a, b)
        for i, (a, b) in enumerate(zip(change.before.speeds, change.after.speeds, strict=True))
    ]
    return any(max(alive[s::slots]) == 0 for s in range(slots))
