"""The job file, version 1, as pydantic models.

Times are microseconds, sizes are bytes that one GPU holds (an integer, or a text such as ``"1.5 GiB"``). Fields of a *stage*
follow the model chunk; ``capacity_bytes`` belongs to a *slot*, since its stages share the memory.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, ConfigDict, Field

from planner.formats.bounded import AtMost, BoundedModel
from planner.formats.sizes import parse_size
from planner.job import MAX_STAGES
from planner.topology import MAX_GPUS

SCHEMA_VERSION = 1

Microseconds = Annotated[float, Field(ge=0, le=1e12)]
Seconds = Annotated[float, Field(gt=0, le=1e10)]
SecondsOrZero = Annotated[float, Field(ge=0, le=1e10)]
Bytes = Annotated[int, BeforeValidator(parse_size, json_schema_input_type=int | str), Field(ge=0, le=2**53)]
Size = Annotated[int, Field(ge=1, le=2**20)]
Count = Annotated[int, Field(ge=0, le=2**20)]
_Row: TypeAlias = str | Annotated[list[int | str], AtMost(MAX_GPUS)]
_Held: TypeAlias = Annotated[list[int], AtMost(MAX_STAGES)]


class _Model(BoundedModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class TopologyModel(_Model):
    """Nodes in rank order, GPUs on each, racks."""

    nodes: str | Annotated[list[str], AtMost(MAX_GPUS)] = Field(
        description="Slurm hostlist of all nodes in rank order, such as gpu[0001-2048], or a list of hostlists"
    )
    gpus_per_node: int = Field(ge=1, le=1024, description="GPUs on each node, 1 to 1024")
    nodes_per_rack: int | None = Field(
        default=None,
        ge=1,
        le=2**20,
        description="racks take this many nodes each in rank order, 1 or more; null (and no racks): one rack",
    )
    racks: Annotated[dict[str, str], AtMost(MAX_GPUS)] | None = Field(
        default=None,
        description="instead of nodes_per_rack: name of each rack to the hostlist of its nodes, each node once",
    )


class LayoutModel(_Model):
    """Which GPU belongs to which worker: sizes and a rank order, or a table."""

    tensor_parallel: Size = Field(default=1, description="TP size, 1 or more")
    context_parallel: Size = Field(default=1, description="CP size, 1 or more")
    expert_parallel: Size = Field(
        default=1,
        description="EP size, 1 or more; a pipeline is then one expert group, so data_parallel is divided by it",
    )
    pipeline_parallel: Size | None = Field(
        default=None, description="PP size P, the number of slots, 1 or more; not with workers"
    )
    data_parallel: Size | None = Field(
        default=None, description="DP size D, the number of pipelines, 1 or more; not with workers"
    )
    rank_order: str | Annotated[list[str], AtMost(64)] | None = Field(
        default=None,
        description="Megatron string, leftmost fastest (tp-cp-ep-dp-pp, the default), or DeviceMesh axes, rightmost fastest "
        "([pp, dp, ep, cp, tp]); dimensions of size 1 may be left out",
    )
    workers: Annotated[dict[str, _Row], AtMost(MAX_GPUS)] | None = Field(
        default=None,
        description="instead of sizes and rank order: worker pipeline/slot to its GPUs, each a global rank, node:gpu such as "
        "gpu0001:3, or a hostlist of whole nodes",
    )


class StageModel(_Model):
    """Costs of one stage; what is left out is taken from stage_costs, then from the defaults named here."""

    forward_us: Microseconds | None = Field(
        default=None, description="F of one microbatch, microseconds, 0 to 1e12; required"
    )
    input_grad_us: Microseconds | None = Field(
        default=None,
        description="I of one microbatch, microseconds, 0 to 1e12; required; where not splittable, I and W count as a sum",
    )
    weight_grad_us: Microseconds | None = Field(
        default=None, description="W of one microbatch, microseconds, 0 to 1e12; required"
    )
    splittable: bool = Field(default=True, description="whether I and W can run apart; false runs them fused as B")
    transfer_us: Microseconds = Field(
        default=0.0,
        description="from the end of F until the next stage, on another worker, may use its output, and the same for the "
        "gradient on its way back; microseconds, 0 to 1e12; the last stage's is not used; default 0",
    )
    activation_bytes: Bytes = Field(
        default=0,
        description="held by one microbatch on each GPU from the start of F to the end of I; bytes, 0 or more; default 0",
    )
    weight_grad_bytes: Bytes = Field(
        default=0,
        description="how much of activation_bytes stays to the end of W; bytes, 0 to activation_bytes; default 0",
    )
    all_reduce_us: Microseconds = Field(
        default=0.0,
        description="gradient synchronisation of this stage among peers, once an iteration; microseconds, 0 to 1e12; default 0; "
        "a slot pays the sum over its stages",
    )
    optimizer_us: Microseconds = Field(
        default=0.0,
        description="optimizer step of this stage, once an iteration; microseconds, 0 to 1e12; default 0; a slot pays the sum",
    )
    parameter_bytes: Bytes | None = Field(
        default=None,
        description="parameters of this stage on each GPU; bytes, 0 or more; null: not known, no migrations are costed",
    )
    optimizer_state_bytes: Bytes | None = Field(
        default=None,
        description="optimizer state of this stage on each GPU: all of it where replicated, else its own shard; bytes, "
        "0 or more; null: not known",
    )


class RecoveryModel(_Model):
    """What is known about failures, repairs and restarts; only used to weigh answers against each other."""

    mean_time_between_failures_s: Seconds | None = Field(
        default=None, description="mean seconds between failures anywhere in the job, above 0; null: not known"
    )
    repair_s: SecondsOrZero | None = Field(
        default=None, description="mean seconds until a failed node is back, 0 or more; null: not known"
    )
    restart_s: SecondsOrZero | None = Field(
        default=None,
        description="seconds from stopping to the first iteration after a restart, 0 or more; null: not known",
    )
    checkpoint_interval_s: Seconds | None = Field(
        default=None, description="seconds between checkpoints, above 0; null: not known"
    )
    copy_bytes_per_s: (
        Annotated[int, BeforeValidator(parse_size, json_schema_input_type=int | str), Field(ge=1)] | None
    ) = Field(
        default=None, description="bytes a second that one GPU receives during a migration, 1 or more; null: not known"
    )


class JobModel(_Model):
    """A job file, version 1."""

    schema_version: Literal[1] = Field(description="version of this format: 1")
    name: str = Field(min_length=1, max_length=200, description="name of the job, 1 to 200 printable characters")
    topology: TopologyModel = Field(description="the cluster")
    layout: LayoutModel = Field(description="which GPU belongs to which worker")
    placement: Literal["one_a_slot", "loop", "v"] | Annotated[list[_Held], AtMost(MAX_STAGES)] = Field(
        default="one_a_slot",
        description="stages on slots: one_a_slot, loop (stage v on slot v mod P), v (down the slots and back up), or "
        "for each slot the list of its stages",
    )
    num_stages: Annotated[int, Field(ge=1, le=MAX_STAGES)] | None = Field(
        default=None, description="number of stages V, 1 to 4096; only needed for placement loop without stages"
    )
    stage_costs: StageModel = Field(
        default_factory=StageModel, description="costs of every stage that says nothing else"
    )
    stages: Annotated[list[StageModel], AtMost(MAX_STAGES)] | None = Field(
        default=None,
        description="one entry a stage in model order; fields left out are taken from stage_costs",
    )
    stage_overrides: Annotated[dict[str, StageModel], AtMost(MAX_STAGES)] | None = Field(
        default=None,
        description="instead of stages: number of a stage to the fields in which it differs from stage_costs",
    )
    capacity_bytes: Bytes | Annotated[list[Bytes | None], AtMost(MAX_STAGES)] | None = Field(
        default=None,
        description="activation memory of each GPU: one value for all slots or one a slot; bytes, 0 or more; null: memory does "
        "not bind",
    )
    microbatches: Count | Annotated[list[Count], AtMost(MAX_GPUS)] = Field(
        description="microbatches of each pipeline in one iteration: one value for all or one a pipeline, 0 or more"
    )
    optimizer: Literal["staggered", "global"] = Field(
        default="staggered",
        description="staggered: each slot steps when its workers are done; global: all slots wait for each other",
    )
    optimizer_state: Literal["replicated", "sharded_with_replica", "sharded"] = Field(
        default="replicated",
        description="copies of the optimizer state among peers: all, a shard and a replica of it, or a shard only",
    )
    recovery: RecoveryModel = Field(
        default_factory=RecoveryModel, description="figures about failures, repairs and restarts"
    )
