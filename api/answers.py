"""The JSON forms of what is stored and served as bytes; they describe it in the OpenAPI document."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class BoundName(_Answer):
    """What proves the bound."""

    name: str = Field(description="Name of the bound, or of the solver that proved it.")
    slot: int | None = Field(description="Slot it is proved for; null where no single slot is.")


class SlotFigures(_Answer):
    """One slot of a plan."""

    slot: int = Field(ge=0, description="The slot.")
    stages: list[int] = Field(description="Stages that its workers hold.")
    live_workers: int = Field(ge=1, description="Number of live workers.")
    failed_workers: int = Field(ge=0, description="Number of failed workers.")
    min_load: int = Field(ge=0, description="Fewest microbatches one live worker runs, counted over the stages.")
    max_load: int = Field(ge=0, description="Most microbatches one live worker runs, counted over the stages.")
    busy_us: float = Field(ge=0, description="Longest time one live worker computes in an iteration, microseconds.")
    window_us: float = Field(ge=0, description="From the slot's first start to its last end and sync, microseconds.")
    bound_us: float = Field(ge=0, description="Largest lower bound that this slot alone proves, microseconds.")
    idle_ratio: float = Field(description="Share of the period that the busiest worker is idle.")
    peak_memory_bytes: int = Field(ge=0, description="Most activation bytes that one worker holds at once.")
    capacity_bytes: int | None = Field(description="Memory for activations; null where memory does not bind.")


class Reroute(_Answer):
    """Microbatches of one pipeline that another pipeline's worker runs in one slot."""

    slot: int = Field(ge=0, description="The slot.")
    home: int = Field(ge=0, description="Pipeline that is home to the microbatches.")
    runs_on: str = Field(description="Worker that runs them, pipeline/slot.")
    microbatches: int = Field(ge=1, description="Number of microbatches.")


class MigrationMove(_Answer):
    """A live worker that leaves its place and takes over a failed one's."""

    source: str = Field(description="Worker that moves, pipeline/slot.")
    target: str = Field(description="Failed worker whose place it takes.")
    copy_from: str = Field(description="Peer that sends it parameters and optimizer state.")
    num_bytes: int = Field(ge=0, description="Bytes that are copied.")
    seconds: float | None = Field(description="Time the copy takes; null where the bandwidth is not known.")


class PlanSummary(_Answer):
    """A plan's figures: everything but its schedule."""

    plan_id: str = Field(description="sha256 of the plan's content, 64 hexadecimal digits.")
    job: str = Field(description="Name of the job.")
    job_sha256: str = Field(description="Hash of the job that was planned.")
    status: Literal["optimal", "feasible"] = Field(description="optimal: no schedule of these workers is faster.")
    period_us: float = Field(ge=0, description="Steady time from iteration to iteration, microseconds.")
    bound_us: float = Field(ge=0, description="Proved lower bound on the period, microseconds.")
    bound: BoundName = Field(description="What proves the bound.")
    gap: float | None = Field(description="period / bound - 1; null where the bound is 0 and the period is not.")
    fault_free_us: float = Field(ge=0, description="Period of our own plan without failures, microseconds.")
    baseline_1f1b_us: float | None = Field(
        description="Period of 1F1B without failures, microseconds; null where it was not worked out."
    )
    throughput_kept: float | None = Field(description="fault_free / period; null where the period is 0.")
    failed_nodes: list[str] = Field(description="Failed nodes.")
    failed_workers: list[str] = Field(description="Workers that are down, pipeline/slot.")
    degraded: dict[str, float] = Field(description="Speed factor of each slow worker.")
    failure_key: str = Field(description="Failure counts per slot that the plan is keyed by.")
    num_pipelines: int = Field(ge=1, description="Number of pipelines.")
    num_slots: int = Field(ge=1, description="Number of slots.")
    num_operations: int = Field(ge=1, description="Number of operations of one iteration.")
    slots: list[SlotFigures] = Field(description="One entry a slot.")
    peak_memory_bytes: list[int] = Field(description="Peak activation bytes of one worker, by slot.")
    reroutes: list[Reroute] = Field(description="Which microbatches run away from home.")
    migrations: list[MigrationMove] = Field(description="Moves of workers that the plan presumes.")
    advised_migrations: list[MigrationMove] = Field(description="Moves that would pay back and are not presumed.")
    relabelled: dict[str, str] = Field(description="Worker to the canonical part it plays, where that is another's.")
    notes: list[str] = Field(description="What a reader has to know.")
    solver: str = Field(description="What found the schedule.")
    seed: int = Field(ge=0, description="Seed of the search.")
    deadline_s: float = Field(gt=0, description="Seconds the search was given.")
    target_gap: float = Field(ge=0, description="Gap at which it could stop.")
    solver_workers: int = Field(ge=1, description="Threads it used.")
    deterministic: bool = Field(
        description="Whether the deadline counted work, so that the same plan can be made again."
    )
    versions: dict[str, str] = Field(description="Software that decided, with versions.")
    wall_s: float = Field(ge=0, description="Seconds the planning took.")


class WorkerProgram(_Answer):
    """What one worker runs in each iteration."""

    plan_id: str = Field(description="The plan it belongs to.")
    worker: str = Field(description="The worker, pipeline/slot.")
    instructions: list[str] = Field(
        description="In order; for example RECV_F 3F1.2 from 1/2, COMPUTE 3F1.2, SEND_F 4F1.2 to 1/4, ALL_REDUCE 3 ..."
    )
