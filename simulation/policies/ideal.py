"""What no policy can be expected to beat: no failures at all, and throughput in proportion to what is up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from simulation.cluster import Change, Cluster
from simulation.policies.policy import Answer, Mode, PaysForWhatIsUp
from simulation.policies.rates import Rates


@dataclass(slots=True)
class FaultFree:
    """The whole cluster, always: ``N / T0`` samples a second."""

    name: ClassVar[str] = "fault-free"
    summary: ClassVar[str] = "as if nothing ever failed"
    keeps_batch: ClassVar[bool] = True
    is_exact: ClassVar[bool] = True
    writes_checkpoints: ClassVar[bool] = False

    rates: Rates

    def begin(self, cluster: Cluster) -> Mode:  # noqa: ARG002
        """All of it, whatever is up."""
        return self.rates.full

    def answer(self, change: Change) -> Answer:  # noqa: ARG002
        """Nothing changes."""
        return Answer(mode=self.rates.full)

    def gpus(self, cluster: Cluster) -> int:
        """All of them, since it trains with all."""
        return cluster.job.topology.num_gpus


@dataclass(slots=True)
class FaultScaled(PaysForWhatIsUp):
    """Each GPU does what it does without failures: ``N / T0`` times the share of GPUs that are up, no change costs anything.

    ReCycle calls it fault-scaled throughput. It is no bound: with fewer workers for the same batch less of the time is bubbles.
    """

    name: ClassVar[str] = "fault-scaled"
    summary: ClassVar[str] = "throughput in proportion to the GPUs that are up, at no cost"
    keeps_batch: ClassVar[bool] = True
    is_exact: ClassVar[bool] = True
    writes_checkpoints: ClassVar[bool] = False

    rates: Rates

    def begin(self, cluster: Cluster) -> Mode:
        """In proportion."""
        return self.rates.scaled(cluster.gpu_share)

    def answer(self, change: Change) -> Answer:
        """In proportion, at once."""
        return Answer(mode=self.begin(change.after))
