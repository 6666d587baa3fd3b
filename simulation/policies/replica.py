"""Drop the replica: the pipelines without a failure go on with what is theirs, so the batch is smaller."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from planner.operation import Worker
from simulation.cluster import Change, Cluster
from simulation.constants import HSDP_GPUS, HSDP_STALL_S
from simulation.outcome import Cause
from simulation.policies.policy import Answer, Lost, Mode, PaysForWhatIsUp, Stalls
from simulation.policies.rates import Rates


@dataclass(slots=True)
class DropReplica(PaysForWhatIsUp):
    """A replica with a loss is taken out; what is left of it, with idle nodes, restarts aside and joins again.

    FT-HSDP (arXiv 2602.00277) and torchft. ``n`` of ``D`` replicas train ``n / D`` of the batch in the fault-free period. The
    others stand still for detection and new communicators, but at least for FT-HSDP's published stall in proportion to the
    GPUs. A replica that restarts copies its state from a peer, and stops the others once more for new communicators. Where no
    replica is whole any more, the last checkpoint is loaded.
    """

    name: ClassVar[str] = "drop-replica"
    summary: ClassVar[str] = "FT-HSDP, torchft: go on without the replica, with a smaller batch"
    keeps_batch: ClassVar[bool] = False
    is_exact: ClassVar[bool] = True
    writes_checkpoints: ClassVar[bool] = True

    rates: Rates
    replicas: list[frozenset[Worker]] = field(default_factory=list)
    """Those that train."""
    joining: list[frozenset[Worker]] = field(default_factory=list)
    """Those that restart aside."""

    def begin(self, cluster: Cluster) -> Mode:
        """As many whole replicas as there are."""
        self.replicas, self.joining = self._new(cluster, []), []
        return self.rates.of_replicas(len(self.replicas))

    def answer(self, change: Change) -> Answer:
        """Go on with the intact replicas; whoever can make up another joins later."""
        costs, rates = self.rates.costs, self.rates
        if not change.is_waiting:
            self.replicas, self.joining = [*self.replicas, *self.joining], []
        lost = set(change.lost)
        intact = [replica for replica in self.replicas if not replica & lost]
        aside = [replica for replica in self.joining if not replica & lost]
        is_struck, had = len(intact) < len(self.replicas), bool(self.replicas)
        regroup_s = self._regroup_s()
        if not intact:
            mode = self.begin(change.after)
            detection: Stalls = ((Cause.DETECTION, costs.detection_s),) if had else ()
            restart = ((Cause.RESTART, costs.restart_s),)
            return Answer(
                mode=mode,
                stalls=(*detection, *restart) if self.replicas else detection,
                lost=Lost.SINCE_CHECKPOINT if had else Lost.NOTHING,
            )
        self.replicas, self.joining = intact, [*aside, *self._new(change.after, [*intact, *aside])]
        later = None
        if self.joining:
            # Those that are restarting already are ready when they would have been; whoever is new joins with them.
            wait_s = None if aside else costs.restart_s
            later = (wait_s, regroup_s, rates.of_replicas(len(intact) + len(self.joining)))
        stalls = ((Cause.DETECTION, costs.detection_s), (Cause.RECONFIGURATION, regroup_s)) if is_struck else ()
        return Answer(
            mode=rates.of_replicas(len(intact)),
            stalls=stalls,
            lost=Lost.ITERATION if is_struck else Lost.NOTHING,
            later=later,
        )

    def _regroup_s(self) -> float:
        gpus = self.rates.periods.job.topology.num_gpus
        return max(self.rates.costs.regroup_s, HSDP_STALL_S * gpus / HSDP_GPUS)

    def _new(self, cluster: Cluster, known: list[frozenset[Worker]]) -> list[frozenset[Worker]]:
        """Replicas that the workers in none of the known ones make up."""
        job = cluster.job
        taken = frozenset().union(*known)
        free = [worker for worker in cluster.workers if worker not in taken]
        new = [
            frozenset(free[first : first + job.num_slots])
            for first in range(0, len(free) - job.num_slots + 1, job.num_slots)
        ]
        return new[: job.num_pipelines - len(known)]
