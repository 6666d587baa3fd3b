"""The JSON forms of what people look at."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from api.jobs.epoch_body import Cause, EpochBody
from api.jobs.forms import JobEvent
from api.models import Form
from planner.formats.bounded import AtMost
from planner.ladder import RungName

MAX_TRIED = 64
"""Most events of one what-if."""


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class WeakSlot(_Answer):
    """A slot that hangs on few workers."""

    slot: int = Field(ge=0, description="The slot.")
    num_live: int = Field(ge=0, description="Live workers that stand in it.")
    live: list[str] = Field(description="The first node of each of them, each once.")
    down: list[str] = Field(
        description="Of each worker of it that is down what was reported, as `replan report --recovered` takes it; at most 8."
    )


class JobOverview(_Answer):
    """How one job stands."""

    id: str = Field(description="The id it is registered under.")
    name: str = Field(description="Name in its document.")
    epoch: int = Field(ge=1, description="Its current epoch.")
    revision: int = Field(ge=1, description="Revision of the job that the epoch is for.")
    cause: Cause = Field(description="What led to the epoch.")
    created_at: str = Field(description="When the epoch was made, RFC 3339, UTC.")
    last_event_at: str | None = Field(
        description="When something was last reported, RFC 3339, UTC; null where nothing was, or it is not kept any more."
    )
    failed_nodes: str = Field(description="Failed nodes as a hostlist, cut off after 200 letters; empty for none.")
    down: list[str] = Field(
        description="The first 8 things that are down, as `replan report --recovered` takes them: nodes, rank:17, worker:1/2."
    )
    weak: list[WeakSlot] = Field(
        description="At most 4 of the slots that have the fewest live workers; empty where each has more than 3."
    )
    num_workers: int = Field(ge=1, description="Number of workers, live or not.")
    num_failed: int = Field(ge=0, description="Workers that are down.")
    num_degraded: int = Field(ge=0, description="Targets that were reported slow.")
    has_plan: bool = Field(description="Whether a plan is in force.")
    problem_code: str | None = Field(description="Why there is no plan; null where there is one.")
    problem: str | None = Field(description="The same in words.")
    hint: str | None = Field(description="What to do about it.")
    period_us: float | None = Field(description="Period of the plan in force, microseconds.")
    bound_us: float | None = Field(description="Lower bound on the period of any plan for these failures.")
    gap: float | None = Field(description="period / bound - 1; null where the bound is 0 or there is no plan.")
    throughput_kept: float | None = Field(description="Fault-free period / period; null where there is no plan.")
    chosen: RungName | None = Field(description="The cheapest answer of the ladder; null where none helps.")
    lost_s: float | None = Field(
        description="Seconds of fault-free training that it is expected to lose until the next event; null where not known."
    )
    certain: int = Field(
        ge=0,
        description="Workers that can fail from here on, wherever they are, and neither a slot nor the only copy of an optimizer "
        "shard is lost: 0 where the next failure may stop training.",
    )
    num_migrations: int = Field(ge=0, description="Workers that have something to load before the epoch runs.")
    num_live: int = Field(ge=0, description="Workers that have a program in the epoch.")
    num_acknowledged: int = Field(ge=0, description="Those of them that have acknowledged it.")
    missing: list[str] = Field(description="The first 16 of those that have not, by their homes.")


class Overview(_Answer):
    """How all jobs stand."""

    version: str = Field(description="Version of RePlan that answers.")
    now: str = Field(description="The service's time, RFC 3339, UTC, that ages are counted from.")
    jobs: list[JobOverview] = Field(description="In the order of their ids.")
    damaged: list[str] = Field(
        description="Ids of jobs whose stored rows are damaged, so that nothing is known of them."
    )


class Cluster(_Answer):
    """Who runs where in one revision of a job."""

    job: str = Field(description="The job's id.")
    revision: int = Field(ge=1, description="The revision.")
    num_pipelines: int = Field(ge=1, description="Number of pipelines.")
    num_slots: int = Field(ge=1, description="Number of slots.")
    gpus_per_worker: int = Field(ge=1, description="GPUs of each worker.")
    nodes: list[str] = Field(description="Names of the nodes, in rank order.")
    racks: list[str] = Field(description="Names of the racks.")
    rack_of_node: list[int] = Field(description="Index into `racks` of each node.")
    worker_nodes: list[list[int]] = Field(
        description="Indices into `nodes` for each worker, workers in the order pipeline * num_slots + slot."
    )


class WhatIfRequest(Form):
    """Events to try, one after the other, on what a job has now."""

    most_bytes: ClassVar[int | None] = 256 * 1024

    events: Annotated[list[JobEvent], AtMost(MAX_TRIED)] = Field(
        min_length=1,
        description="As they would be reported. Their iteration and expected_epoch count for nothing here.",
    )
    expected_epoch: Annotated[int, Field(ge=1, lt=2**31)] | None = Field(
        default=None, description="Only answer while this is the job's current epoch; null: whatever it is."
    )


class TriedReroute(_Answer):
    """Microbatches of one pipeline that another pipeline's worker would run in one slot."""

    slot: int = Field(ge=0, description="The slot.")
    home: int = Field(ge=0, description="Pipeline that is home to the microbatches.")
    runs_on: str = Field(description="Position that would run them, pipeline/slot.")
    microbatches: int = Field(ge=1, description="Number of microbatches, counted over the slot's stages.")


class WhatIfAnswer(_Answer):
    """What would be served; nothing of it is."""

    base_epoch: int = Field(ge=1, description="The job's epoch that it was tried on.")
    base_period_us: float | None = Field(description="Period of that epoch's plan; null where it has none.")
    would_be: EpochBody = Field(description="The epoch that would follow.")
    reroutes: list[TriedReroute] = Field(description="Who would take over for whom: at most the first 10,000.")


class HeatGroup(_Answer):
    """What the loss of any one of some nodes would lead to, rerouted in place."""

    failure_key: str = Field(description="Failed and slow workers per slot there would be then.")
    outcome: Literal["ready", "not_ready", "stage_lost", "optimizer_shard_lost"] = Field(
        description="ready: the plan is in the store; not_ready: it would be made when it happens; else why there would be none."
    )
    num_nodes: int = Field(ge=1, description="Nodes that lead there.")
    num_workers: int = Field(ge=1, description="Workers that each of them takes down at least.")
    slots: list[int] = Field(description="Slots that these workers are in.")
    period_us: float | None = Field(description="Period of the plan that is ready, microseconds.")
    throughput_kept: float | None = Field(description="Fault-free period / that period.")


class Heat(_Answer):
    """Which node hurts most, and how many more failures a job can take."""

    job: str = Field(description="The job's id.")
    epoch: int = Field(ge=1, description="Its epoch, from which it was counted.")
    groups: list[HeatGroup] = Field(description="What hurts most comes first.")
    node_groups: list[int | None] = Field(
        description="Index into `groups` of each node of the cluster; null for one that holds no live worker."
    )
    certain: int = Field(
        ge=0,
        description="Workers that can fail from here on, wherever they are, and neither a slot nor the only copy of an optimizer "
        "shard is lost.",
    )
    ready: int = Field(
        ge=0, description="Of these, up to 3: failures for which every plan is in the store, wherever they happen."
    )
    search_s: float = Field(
        gt=0, description="Seconds to search for a plan that is not in the store when it is needed."
    )
