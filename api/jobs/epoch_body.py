"""The JSON form of an epoch: what is down, which plan is in force for it, and how that was chosen.

It is written once, stored, and served as these bytes ever after. A *worker* is named by its home, ``pipeline/slot``, except
inside a plan, where the same text names a *position*: the two differ only for workers that ``moved``.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from planner.ladder import RungName

Cause = Literal["registered", "event", "improved", "revised", "recovered"]
Source = Literal["store", "solved", "improved"]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ReportedFailures(_Part):
    """What is down and slow, as it was reported."""

    nodes: str = Field(description="Failed nodes as a Slurm hostlist; empty for none.")
    ranks: list[int] = Field(description="GPUs that failed by themselves, by global rank.")
    workers: list[str] = Field(description="Workers that were named as failed, pipeline/slot.")
    degraded: dict[str, float] = Field(
        description="Speed, above 0 and below 1, of each slow target: a node, rank:17 or worker:1/2."
    )


class RelabellingForm(_Part):
    """Who plays which part of the template; only what differs from everybody staying in place."""

    home: list[list[int]] = Field(description="Pairs: part of a pipeline, pipeline whose microbatches it takes.")
    swaps: list[list[int]] = Field(description="Triples: slot, part of a pipeline, pipeline whose worker plays it.")


class EpochPlan(_Part):
    """The plan in force."""

    template: str = Field(description="sha256 of the template the plan is made from, 64 hexadecimal digits.")
    failure_key: str = Field(description="Failed and slow workers per slot that the template is kept under.")
    status: Literal["optimal", "feasible"] = Field(description="optimal: no schedule of these workers is faster.")
    period_us: float = Field(ge=0, description="Steady time from iteration to iteration, microseconds.")
    bound_us: float = Field(ge=0, description="Proved lower bound on the period, microseconds.")
    gap: float | None = Field(description="period / bound - 1; null where the bound is 0.")
    throughput_kept: float | None = Field(description="fault-free period / period; null where the period is 0.")
    solver: str = Field(description="What found the schedule.")
    deadline_s: float = Field(gt=0, description="Seconds that the search was given.")
    relabelling: RelabellingForm = Field(description="How the template is put onto the workers.")


class EpochProblem(_Part):
    """Why there is no plan for these failures."""

    code: str = Field(
        description="Stable code: stage_lost, optimizer_shard_lost or memory_too_small where no plan can exist; else why none "
        "could be made yet, such as solve_timeout: another epoch follows when there is one."
    )
    message: str = Field(description="What is lost or missing, and where.")
    hint: str | None = Field(description="What to do about it.")


class LadderRung(_Part):
    """One of the answers to the failures, and what it is expected to cost."""

    name: RungName = Field(description="The answer.")
    available: bool = Field(description="Whether it can be taken.")
    reason: str | None = Field(
        description="Why it cannot, or what the figures rest on; null where nothing is to be said."
    )
    period_us: float | None = Field(description="Period that it leads to, known or bounded; null where nothing runs.")
    one_time_s: float | None = Field(description="Seconds it takes before training goes on; null where not known.")
    lost_s: float | None = Field(
        description="Seconds of fault-free training expected to be lost until the next event; null where not known."
    )
    horizon_s: float | None = Field(description="Expected seconds until the next event; null where not known.")


class EpochMigration(_Part):
    """A worker that takes a position when this epoch begins: it moves to a failed one's, goes home, or is back from a failure."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    source: str = Field(alias="from", description="Worker that takes it, by its home.")
    target: str = Field(alias="to", description="The position.")
    copy_from: str | None = Field(
        description="Worker that holds what it has to load, by its home; null where nobody does: only a checkpoint has it."
    )
    bytes: int = Field(ge=0, description="Parameters and optimizer state to load; 0 where the job does not say.")
    seconds: float | None = Field(description="Time of that copy alone; null where the bandwidth is not known.")


class MovedWorker(_Part):
    """A worker that stands elsewhere than at home while this epoch is in force."""

    worker: str = Field(description="The worker, by its home.")
    position: str = Field(
        description="Where it stands in the plan, whose program it runs. It asks for that, and acknowledges, by its own name."
    )


class PairGroup(_Part):
    """Directed pairs of positions that exchange messages and did not before: pipeline k of one slot to k + shift of another."""

    from_slot: int = Field(ge=0, description="Slot that sends.")
    to_slot: int = Field(ge=0, description="Slot that receives.")
    shift: int = Field(description="Pipeline that receives less the one that sends.")
    pipelines: str = Field(description="Pipelines that send, as ranges: 0-3,7.")


class EpochBody(_Part):
    """One epoch of a job."""

    job: str = Field(description="The job's id.")
    epoch: int = Field(ge=1, description="Number of the epoch; grows by 1 with each.")
    revision: int = Field(ge=1, description="Revision of the job that it is for.")
    cause: Cause = Field(
        description="registered: the job's first; event: something was reported; improved: a better plan for the same "
        "failures; revised: the job was replaced; recovered: the epoch before is damaged in the store, and its failures were "
        "worked out from those before it."
    )
    created_at: str = Field(description="When it was made, RFC 3339, UTC.")
    failures: ReportedFailures = Field(description="What is down and slow.")
    failed_workers: list[str] = Field(description="Workers that are down through it, by their homes.")
    dropped: list[str] = Field(
        description="Failures known before that a new revision of the job has no such thing for; empty otherwise."
    )
    shards_restored: bool = Field(description="Whether optimizer shards that the failures took were reported restored.")
    plan: EpochPlan | None = Field(description="The plan in force; null where there is none.")
    problem: EpochProblem | None = Field(description="Why there is none; null where there is one.")
    source: Source | None = Field(
        description="store: the plan was ready; solved: it was made for this epoch, in a hurry; improved: it replaces that of "
        "the epoch before; null where there is no plan."
    )
    chosen: RungName | None = Field(
        description="The cheapest answer of the ladder; null where none helps. The plan is there also where waiting is cheaper."
    )
    ladder: list[LadderRung] = Field(description="Every answer, with its expected cost.")
    migrations: list[EpochMigration] = Field(description="Who takes a position anew, and what they have to load first.")
    moved: list[MovedWorker] = Field(
        description="Everyone who stands elsewhere than at home, those of before included."
    )
    num_new_pairs: int = Field(ge=0, description="Directed pairs of workers that did not exchange messages before.")
    new_pairs: list[PairGroup] = Field(description="The same pairs by position, for connections to be warmed up.")
    from_iteration: int | None = Field(
        description="Iteration from whose start the plan holds, where the report named one; null: from the next that all workers "
        "agree on."
    )

    def to_bytes(self) -> bytes:
        """What is stored and served."""
        return self.model_dump_json(by_alias=True).encode("utf-8")


def read_body(content: bytes) -> EpochBody:
    """The form of stored bytes."""
    return EpochBody.model_validate_json(content)
