"""What is up at one moment of a trace, as policies look at it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from planner.job import Job
from planner.operation import Worker
from planner.topology import Topology

_RANK = "rank:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A job's cluster with some of its GPUs down.

    Parameters
    ----------
    job
        The job.
    down
        GPUs that are down, by global rank.
    speeds
        Share of each worker's GPUs that is up, by worker ``k * P + s``; worked out from ``down``.
    """

    job: Job
    down: frozenset[int] = frozenset()
    speeds: tuple[float, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        layout = self.job.layout
        hit = np.zeros(self.job.topology.num_gpus, dtype=np.bool_)
        hit[np.fromiter(self.down, dtype=np.int64)] = True
        object.__setattr__(self, "speeds", tuple((1 - hit[layout.worker_gpus].mean(axis=1)).tolist()))

    @property
    def workers(self) -> tuple[Worker, ...]:
        """Workers with all their GPUs up, ascending."""
        slots = self.job.num_slots
        return tuple(Worker(i // slots, i % slots) for i, speed in enumerate(self.speeds) if speed == 1)

    @property
    def num_workers(self) -> int:
        """How many workers have all their GPUs up."""
        return sum(speed == 1 for speed in self.speeds)

    @property
    def share(self) -> float:
        """Share of the job's workers with all their GPUs up."""
        return self.num_workers / len(self.speeds)

    @property
    def gpus(self) -> int:
        """GPUs that are up."""
        return self.job.topology.num_gpus - len(self.down)

    @property
    def gpu_share(self) -> float:
        """Share of the workers' GPUs that are up."""
        return sum(self.speeds) / len(self.speeds)

    @property
    def whole_pipelines(self) -> int:
        """Pipelines that the workers that are up can fill, wherever they stood before."""
        return self.num_workers // self.job.num_slots

    def with_down(self, down: frozenset[int]) -> Cluster:
        """The same job's cluster with other GPUs down."""
        return Cluster(job=self.job, down=down)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What happens at one moment.

    Parameters
    ----------
    before, after
        The cluster.
    lost
        Workers that were whole and lost a GPU, also where all is back at the same moment: what was on it is gone. Ascending.
    returned
        Workers that are whole and were not, or were lost and are back in the same moment. Ascending.
    gpus_lost
        How many GPUs were lost.
    is_waiting
        Whether what the answer before set for later has not come yet.
    """

    before: Cluster
    after: Cluster
    lost: tuple[Worker, ...]
    returned: tuple[Worker, ...]
    gpus_lost: int
    is_waiting: bool = False


def gpus_of(topology: Topology, target: str) -> range:
    """GPUs that an event of a trace names: those of a node, or the one of ``rank:17``."""
    if target in topology.index_of_node:
        return topology.gpus_of_node(target)
    rank = int(target.removeprefix(_RANK))
    return range(rank, rank + 1)


def gpus_down(topology: Topology, targets: Iterable[str]) -> frozenset[int]:
    """GPUs that are down where some nodes and single GPUs are: one that is lost on its own stays so when its node returns."""
    return frozenset(gpu for target in targets for gpu in gpus_of(topology, target))
