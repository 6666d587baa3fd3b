"""A job: the cluster, who runs what on it, what each stage costs, and what is known about failures and repairs.

A job is what stays the same while workers come and go; with a set of dead and slow workers it becomes a
:class:`planner.problem.Problem`.

Two words keep costs apart. A *stage* is a model chunk in model order and carries everything that follows the chunk: compute,
transfer to the next stage, activations, parameters, all-reduce and optimizer step. A *slot* is a place on the pipeline and
carries what its GPUs share: memory. A slot that holds several stages pays the sum of their all-reduces and optimizer steps,
since they share one network link and one processor. Every size is what *one GPU* of a worker holds; the GPUs of a worker
hold equal shares.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from planner.errors import ProblemError
from planner.layout import OrderedLayout, TableLayout
from planner.operation import Worker
from planner.problem import Optimizer, Problem, Slot, Stage
from planner.topology import Topology

MAX_STAGES = 4096
"""Most stages a job may have."""

MAX_JOB_OPERATIONS = 4_000_000
"""Most operations of an iteration of a job, ``3 * stages * microbatches``: jobs come from outside, and planning one of so many
takes 2 GiB."""


class Placement(StrEnum):
    """How stages are spread over ``P`` slots."""

    ONE_A_SLOT = "one_a_slot"
    """Stage ``v`` on slot ``v``; as many stages as slots."""
    LOOP = "loop"
    """Stage ``v`` on slot ``v % P``, as in interleaved 1F1B; a multiple of ``P`` stages."""
    V = "v"
    """Down the slots and back up, as in ZB-V: stage ``v`` on slot ``v``, stage ``P + v`` on slot ``P - 1 - v``."""
    EXPLICIT = "explicit"
    """Slots list their stages."""


class OptimizerState(StrEnum):
    """How many copies of the optimizer state there are among the workers of a slot."""

    REPLICATED = "replicated"
    """Every worker holds all of it: any live peer can restore any other."""
    SHARDED_WITH_REPLICA = "sharded_with_replica"
    """Each worker holds a shard, and another peer a copy of that shard."""
    SHARDED = "sharded"
    """Each worker holds the only copy of its shard (ZeRO-1, Megatron's distributed optimizer): a failure loses it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStage:
    """One stage as the job knows it.

    Parameters
    ----------
    costs
        Compute, transfer and activation memory of one microbatch.
    all_reduce_ns
        Gradient synchronisation among the peers at the end of an iteration, at least 0.
    optimizer_ns
        Optimizer step, at least 0.
    parameter_bytes
        Parameters of this stage that one GPU of a worker holds; ``None`` where not known.
    optimizer_state_bytes
        Optimizer state of this stage that one GPU of a worker holds: all of it where replicated, else its own shard;
        ``None`` where not known.

    Raises
    ------
    ProblemError
        If a value is negative.
    """

    costs: Stage
    all_reduce_ns: int = 0
    optimizer_ns: int = 0
    parameter_bytes: int | None = None
    optimizer_state_bytes: int | None = None

    def __post_init__(self) -> None:
        for name in ("all_reduce_ns", "optimizer_ns", "parameter_bytes", "optimizer_state_bytes"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ProblemError(f"a stage's {name} is {value}; expected at least 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What is known about failures, repairs and restarts; ``None`` where not known.

    Parameters
    ----------
    mean_time_between_failures_s
        Mean seconds between failures anywhere in the job, above 0.
    repair_s
        Mean seconds until a failed node is back, at least 0.
    restart_s
        Seconds from stopping the job to its first iteration after a restart from a checkpoint, at least 0.
    checkpoint_interval_s
        Seconds between checkpoints, above 0: a restart loses half of it on average.
    copy_bytes_per_s
        Bytes a second that one GPU receives while parameters and optimizer state are copied to it, above 0.

    Raises
    ------
    ProblemError
        If a value is not finite or outside its range.
    """

    mean_time_between_failures_s: float | None = None
    repair_s: float | None = None
    restart_s: float | None = None
    checkpoint_interval_s: float | None = None
    copy_bytes_per_s: int | None = None

    def __post_init__(self) -> None:
        for name in (
            "mean_time_between_failures_s",
            "checkpoint_interval_s",
            "copy_bytes_per_s",
            "repair_s",
            "restart_s",
        ):
            value = getattr(self, name)
            least_taken = name in ("repair_s", "restart_s")
            if value is not None and not (math.isfinite(value) and (value > 0 or (least_taken and value == 0))):
                raise ProblemError(f"recovery's {name} is {value}; expected {'at least' if least_taken else 'above'} 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One training job on one cluster.

    Parameters
    ----------
    name
        1 to 200 printable characters.
    topology
        Nodes, GPUs and racks.
    layout
        Which GPU belongs to which worker.
    placement
        How the stages are spread over the slots.
    slot_stages
        Stages of each slot, ascending. See :func:`place_stages`.
    stages
        ``V`` stages in model order.
    capacity_bytes
        Activation memory of each slot's GPUs; ``None`` for a slot where memory does not bind.
    microbatches
        Microbatches of each pipeline in one iteration.
    optimizer
        Whether slots step on their own or wait for each other.
    optimizer_state
        How many copies of the optimizer state there are.
    recovery
        What is known about failures and repairs.

    Raises
    ------
    ProblemError
        If the parts do not fit together.
    """

    name: str
    topology: Topology
    layout: OrderedLayout | TableLayout
    placement: Placement
    slot_stages: tuple[tuple[int, ...], ...]
    stages: tuple[JobStage, ...]
    capacity_bytes: tuple[int | None, ...]
    microbatches: tuple[int, ...]
    optimizer: Optimizer = Optimizer.STAGGERED
    optimizer_state: OptimizerState = OptimizerState.REPLICATED
    recovery: Recovery = field(default_factory=Recovery)
    slots: tuple[Slot, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 1 <= len(self.name) <= 200 or not self.name.isprintable():
            raise ProblemError(f"a job's name is {self.name[:40]!r}; expected 1 to 200 printable characters")
        self._check_gpus()
        for what, found, expected in (
            ("slots that list their stages", len(self.slot_stages), self.num_slots),
            ("slot capacities", len(self.capacity_bytes), self.num_slots),
            ("microbatch counts", len(self.microbatches), self.num_pipelines),
        ):
            if found != expected:
                raise ProblemError(f"{found} {what}; expected {expected}")
        if any(not 0 <= v < len(self.stages) for held in self.slot_stages for v in held):
            raise ProblemError(f"a slot holds a stage outside 0..{len(self.stages) - 1}")
        slots = tuple(
            Slot(
                stages=held,
                sync_ns=sum(self.stages[v].all_reduce_ns + self.stages[v].optimizer_ns for v in held),
                capacity_bytes=capacity,
            )
            for held, capacity in zip(self.slot_stages, self.capacity_bytes, strict=True)
        )
        object.__setattr__(self, "slots", slots)
        if 3 * len(self.stages) * sum(self.microbatches) > MAX_JOB_OPERATIONS:
            raise ProblemError(
                f"{sum(self.microbatches)} microbatches through {len(self.stages)} stages are more than "
                f"{MAX_JOB_OPERATIONS} operations"
            )
        self.problem()

    def _check_gpus(self) -> None:
        topology, layout = self.topology, self.layout
        if isinstance(layout, OrderedLayout):
            if layout.num_gpus != topology.num_gpus:
                sizes = " x ".join(f"{name} {size}" for name, size in layout.sizes().items())
                raise ProblemError(
                    f"the layout's sizes {sizes} multiply to {layout.num_gpus} GPUs; expected {topology.num_gpus}: "
                    f"{topology.num_nodes} nodes with {topology.gpus_per_node} GPUs each"
                )
        elif int(layout.worker_gpus.max()) >= topology.num_gpus:
            raise ProblemError(
                f"the worker table names GPU {layout.worker_gpus.max()}; expected 0..{topology.num_gpus - 1}"
            )

    @property
    def num_pipelines(self) -> int:
        """``D``, the number of pipelines."""
        return self.layout.num_pipelines

    @property
    def num_slots(self) -> int:
        """``P``, the number of slots."""
        return self.layout.num_slots

    @property
    def num_stages(self) -> int:
        """``V``, the number of stages."""
        return len(self.stages)

    @property
    def gpus_per_worker(self) -> int:
        """GPUs of each worker."""
        return self.layout.gpus_per_worker

    def problem(self, dead: frozenset[Worker] = frozenset(), speeds_ppm: Mapping[Worker, int] | None = None) -> Problem:
        """Problem of this job with some workers down or slow.

        Parameters
        ----------
        dead
            Workers that are down.
        speeds_ppm
            Speed of each degraded live worker, 1 to 999,999 parts per million.

        Raises
        ------
        ProblemError
            If a worker does not exist, is both dead and degraded, or a speed is out of its range.
        """
        return Problem(
            stages=tuple(stage.costs for stage in self.stages),
            slots=self.slots,
            microbatches=self.microbatches,
            optimizer=self.optimizer,
            dead=dead,
            speeds_ppm=dict(speeds_ppm or {}),
        )

    def has_worker(self, worker: Worker) -> bool:
        """Whether the job has this worker."""
        return 0 <= worker.pipeline < self.num_pipelines and 0 <= worker.slot < self.num_slots

    def gpus_of_worker(self, worker: Worker) -> tuple[int, ...]:
        """GPUs (global ranks) of a worker, ascending."""
        return tuple(self.layout.worker_gpus[worker.pipeline * self.num_slots + worker.slot].tolist())

    def nodes_of_worker(self, worker: Worker) -> tuple[str, ...]:
        """Nodes that hold a worker's GPUs, in rank order, each once."""
        return tuple(dict.fromkeys(self.topology.node_of_gpu(gpu) for gpu in self.gpus_of_worker(worker)))

    def worker_racks(self) -> npt.NDArray[np.int64]:
        """Rack index of each worker's first GPU, shape ``(D * P,)``, workers in order of their index ``k * P + s``."""
        racks = np.array(self.topology.rack_of_node, dtype=np.int64)
        return racks[self.layout.worker_gpus[:, 0] // self.topology.gpus_per_node]

    def state_bytes(self, slot: int) -> int | None:
        """Parameters and optimizer state that all GPUs of one worker of a slot hold: what a migration copies.

        ``None`` where the size of some stage is not known.
        """
        total = 0
        for v in self.slot_stages[slot]:
            stage = self.stages[v]
            if stage.parameter_bytes is None or stage.optimizer_state_bytes is None:
                return None
            total += stage.parameter_bytes + stage.optimizer_state_bytes
        return total * self.gpus_per_worker


def place_stages(placement: Placement, num_slots: int, num_stages: int) -> tuple[tuple[int, ...], ...]:
    """Stages of each slot under one of the named placements.

    Raises
    ------
    ProblemError
        If the number of stages does not suit the placement, or the placement is explicit.

    Examples
    --------
    >>> place_stages(Placement.LOOP, 2, 4)
    ((0, 2), (1, 3))
    >>> place_stages(Placement.V, 2, 4)
    ((0, 3), (1, 2))
    """
    if not 1 <= num_stages <= MAX_STAGES:
        raise ProblemError(f"a job has {num_stages} stages; expected 1 to {MAX_STAGES}")
    if placement is Placement.ONE_A_SLOT:
        if num_stages != num_slots:
            raise ProblemError(f"placement one_a_slot has {num_stages} stages for {num_slots} slots; expected as many")
        return tuple((v,) for v in range(num_stages))
    if placement is Placement.LOOP:
        if num_stages % num_slots:
            raise ProblemError(f"placement loop has {num_stages} stages; expected a multiple of {num_slots} slots")
        return tuple(tuple(range(s, num_stages, num_slots)) for s in range(num_slots))
    if placement is Placement.V:
        if num_stages != 2 * num_slots:
            raise ProblemError(f"placement v has {num_stages} stages; expected twice the {num_slots} slots")
        return tuple((s, num_stages - 1 - s) for s in range(num_slots))
    raise ProblemError("an explicit placement lists its stages itself")
