"""The JSON forms of requests about jobs, and of their answers; epochs have :mod:`api.jobs.epoch_body`."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from api.models import Form
from planner.formats.bounded import AtMost

JOB_ID_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
MAX_TOLERANCE = 1024
MAX_ITERATION = 2**53
MAX_NAMED = 2**15
"""Most ranks, workers or hostlists of one event; a hostlist stands for many nodes."""

Mode = Literal["normalized", "all"]
Iteration = Annotated[int, Field(ge=0, le=MAX_ITERATION)]
Node = Annotated[str, Field(min_length=1)]
Rank = Annotated[int, Field(ge=0, lt=2**31)]
WorkerText = Annotated[str, Field(max_length=24)]


class JobRegistration(Form):
    """A job to register, or the next revision of one."""

    job: dict[str, Any] = Field(description="The job document: the same as a job file's, as JSON.")
    tolerance: Annotated[int, Field(ge=0, le=MAX_TOLERANCE)] | None = Field(
        default=None,
        description="Failed workers that plans are to be ready for, together over all slots; left out or null: as many as "
        "before, 1 for a new job.",
    )
    mode: Mode | None = Field(
        default=None,
        description="Plans that are made ready when the job is registered. all: every distribution of that many failures over "
        "the slots; normalized: for each number of failures the distribution that migrations lead to; null: none; left out: the "
        "same as before, none for a new job.",
    )


class JobEvent(Form):
    """Something that happened to a job's nodes, ranks or workers."""

    most_bytes: ClassVar[int | None] = 256 * 1024

    kind: Literal["node_failed", "node_recovered", "node_degraded", "shards_restored"] = Field(
        description="node_failed: they are down; node_recovered: back, at full speed; node_degraded: slow. shards_restored names "
        "nothing: the optimizer shards that the failures took are on live peers again."
    )
    nodes: Node | Annotated[list[Node], AtMost(MAX_NAMED)] | None = Field(
        default=None, description="Nodes as a Slurm hostlist, or several hostlists.", examples=["gpu[0007,0100-0103]"]
    )
    ranks: Annotated[list[Rank], AtMost(MAX_NAMED)] = Field(default=[], description="Single GPUs, by global rank.")
    workers: Annotated[list[WorkerText], AtMost(MAX_NAMED)] = Field(
        default=[], description="Workers, pipeline/slot, where no better name is known."
    )
    speed: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] | None = Field(
        default=None, description="For node_degraded: the speed that is left, as a share of a healthy worker's."
    )
    iteration: Iteration | None = Field(
        default=None,
        description="Iteration during which it happened. After a failure this iteration is run again under the new epoch; after "
        "anything else the new epoch holds from the next.",
    )
    expected_epoch: Annotated[int, Field(ge=1, lt=2**31)] | None = Field(
        default=None, description="Only accept the event while this is the job's current epoch; null: whatever it is."
    )


class Acknowledgement(Form):
    """A worker has an epoch and its program."""

    most_bytes: ClassVar[int | None] = 4 * 1024

    worker: WorkerText = Field(description="The worker by its home, pipeline/slot, or by one of its ranks, rank:17.")
    iteration: Iteration | None = Field(
        default=None, description="Iteration from whose start it runs the epoch's program; null where not known yet."
    )


class PrecomputeRequest(Form):
    """Plans to make ready; what is left out is the job's own."""

    most_bytes: ClassVar[int | None] = 4 * 1024

    tolerance: Annotated[int, Field(ge=0, le=MAX_TOLERANCE)] | None = Field(
        default=None, description="Failed workers to be ready for; null: the job's tolerance."
    )
    mode: Mode | None = Field(
        default=None, description="Which distributions over the slots; null: the job's mode, else all."
    )
    deadline_s: Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)] = Field(
        default=1.0, description="Seconds to search for each plan."
    )
    target_gap: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = Field(
        default=0.0, description="Gap to the bound at which a search may stop, as a ratio."
    )
    seed: Annotated[int, Field(ge=0, lt=2**31)] = Field(default=0, description="Seed of every random choice.")


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class JobAnswer(_Answer):
    """A registered job."""

    id: str = Field(description="The id it is registered under.")
    name: str | None = Field(description="Name in its document; null in lists.")
    revision: int = Field(ge=1, description="1 for the first document, one more for each other one.")
    job_sha256: str = Field(description="Hash of all that its plans depend on; jobs with the same share their plans.")
    tolerance: int = Field(ge=0, description="Failed workers that plans are to be ready for.")
    mode: Mode | None = Field(description="Plans that are made ready when it is registered.")
    epoch: int = Field(ge=1, description="Its current epoch.")
    created_at: str = Field(description="When it was registered, RFC 3339, UTC.")
    updated_at: str = Field(description="When its present revision was, RFC 3339, UTC.")
    operation: str | None = Field(description="Id of the operation that this registration began; null for none.")
    job: dict[str, Any] | None = Field(description="The job document; null in lists and in answers to a registration.")


class Damaged(_Answer):
    """In the place of something in a list whose stored row is damaged."""

    id: str = Field(description="Its id.")
    damaged: Literal[True] = Field(default=True, description="That it is.")


class JobList(_Answer):
    """Registered jobs in the order of their ids."""

    jobs: list[JobAnswer | Damaged] = Field(description="At most as many as were asked for.")
    next: str | None = Field(description="Value of `after` for the next page; null where this is the last.")


class WorkerAcknowledgement(_Answer):
    """What one worker said of an epoch."""

    worker: str = Field(description="The worker by its home, pipeline/slot.")
    iteration: int | None = Field(description="Iteration from whose start it runs the epoch's program.")


class Acknowledgements(_Answer):
    """Who has an epoch and who has not."""

    epoch: int = Field(ge=1, description="The epoch.")
    num_live: int = Field(ge=0, description="Workers that have a program in it.")
    acknowledged: list[WorkerAcknowledgement] = Field(description="Those that have said so.")
    missing: list[str] = Field(description="Those that have not, by their homes.")
    from_iteration: int | None = Field(
        description="First iteration that all run the epoch's program in; null until all have named one."
    )


class OperationAnswer(_Answer):
    """Plans being made ready."""

    id: str = Field(description="Id of the operation.")
    kind: Literal["precompute"] = Field(description="What it does.")
    job: str | None = Field(description="Job it was asked for; null where that was deleted.")
    mode: Mode = Field(description="Which distributions over the slots.")
    tolerance: int = Field(ge=0, description="Failed workers to be ready for.")
    state: Literal["queued", "running", "done", "failed", "cancelled"] = Field(description="How far it is.")
    total: int | None = Field(description="Plans to make; null until they are counted.")
    done: int = Field(ge=0, description="Plans made by it.")
    skipped: int = Field(ge=0, description="Plans that were there already.")
    failed: int = Field(ge=0, description="Plans that could not be made; the log says why.")
    remaining_s: float | None = Field(description="Estimated seconds to the end; null where nothing is known of it.")
    cancel_requested: bool = Field(description="Whether it was told to stop.")
    error: str | None = Field(description="Why it failed.")
    created_at: str = Field(description="When it was asked for, RFC 3339, UTC.")
    updated_at: str = Field(description="When it last said how far it is, RFC 3339, UTC.")


class OperationList(_Answer):
    """Operations of a job, the newest first."""

    operations: list[OperationAnswer | Damaged] = Field(description="At most as many as were asked for.")
    next: str | None = Field(description="Value of `after` for the next page; null where this is the last.")
