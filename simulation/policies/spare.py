"""Hot spares: a node that stands by takes a lost one's place within seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from planner.job import Job
from planner.operation import Worker
from simulation.cluster import Change, Cluster
from simulation.constants import SPARE_SWAP_S
from simulation.outcome import Cause
from simulation.policies.policy import Answer, Lost, Mode
from simulation.policies.rates import Rates


@dataclass(slots=True)
class HotSpare:
    """Spares for the first losses, then a restart with fewer pipelines from the last checkpoint.

    TrainMover (arXiv 2412.12636) and DeadPool (arXiv 2607.01646). A spare node has as many workers as any other. The
    iteration in flight is lost with a node. A node that returns while spares fill every place stands by in its turn, which
    costs nothing. Spares are paid for all the time.
    """

    name: ClassVar[str] = "hot-spare"
    summary: ClassVar[str] = "TrainMover, DeadPool: spare nodes take over within seconds, while there are any"
    keeps_batch: ClassVar[bool] = True
    is_exact: ClassVar[bool] = True
    writes_checkpoints: ClassVar[bool] = True

    rates: Rates
    pipelines: int = 0
    active: frozenset[Worker] = frozenset()
    mode: Mode = field(init=False)

    def begin(self, cluster: Cluster) -> Mode:
        """Spares are in place from the start."""
        return self._start(cluster)

    def answer(self, change: Change) -> Answer:
        """Swap while spares last; restart where pipelines are lost or can be won back."""
        costs, before = self.rates.costs, self.pipelines
        is_struck, mode = bool(self.active & set(change.lost)), self.mode
        now = self._pipelines(change.after)
        if is_struck and now >= before > 0:
            return Answer(
                mode=self._start(change.after, before),
                stalls=((Cause.RECONFIGURATION, SPARE_SWAP_S),),
                lost=Lost.ITERATION,
            )
        if is_struck:
            stalls = ((Cause.DETECTION, costs.detection_s), (Cause.RESTART, costs.restart_s))
            return Answer(mode=self._start(change.after), stalls=stalls, lost=Lost.SINCE_CHECKPOINT)
        if before == 0 and now > 0:
            return Answer(mode=self._start(change.after), stalls=((Cause.RESTART, costs.restart_s),))
        more = self.rates.of_whole_pipelines(now)
        if now > before and self.rates.pays(mode, more, costs.checkpoint_s + costs.restart_s):
            stalls = ((Cause.CHECKPOINT, costs.checkpoint_s), (Cause.RESTART, costs.restart_s))
            return Answer(mode=self._start(change.after), stalls=stalls)
        return Answer(mode=mode)

    def gpus(self, cluster: Cluster) -> int:
        """Those that are up, and the spares'."""
        return cluster.gpus + self._spare_gpus(cluster.job)

    def _spare_gpus(self, job: Job) -> int:
        return self.rates.costs.spare_nodes * job.topology.gpus_per_node

    def _pipelines(self, cluster: Cluster) -> int:
        """Whole pipelines of live workers and spares together."""
        job = cluster.job
        spares = self._spare_gpus(job) // job.gpus_per_worker
        return min(job.num_pipelines, (cluster.num_workers + spares) // job.num_slots)

    def _start(self, cluster: Cluster, most: int | None = None) -> Mode:
        self.pipelines = self._pipelines(cluster) if most is None else most
        self.active = frozenset(cluster.workers[: self.pipelines * cluster.job.num_slots])
        self.mode = self.rates.of_whole_pipelines(self.pipelines)
        return self.mode
