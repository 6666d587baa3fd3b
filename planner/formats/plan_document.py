"""The form of a plan file, and the way from it to a :class:`~planner.plan.Plan`."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from planner.errors import PlanFileError
from planner.failure_key import parse_failure_key
from planner.migration import Migration
from planner.operation import Kind, parse_worker
from planner.plan import Plan, PlanStatus, Seat, SlotSummary
from planner.problem import FULL_SPEED_PPM, Optimizer, Problem, Slot, Stage, scaled_ns
from planner.schedule import IntColumn, Schedule

Count = Annotated[int, Field(ge=0, le=2**62)]
Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
WorkerText = Annotated[str, Field(max_length=24)]


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class JobForm(_Form):
    """Which job the plan is for."""

    name: str = Field(description="Name of the job.")
    sha256: Hash = Field(description="Hash of the job description that was planned.")


class FailuresForm(_Form):
    """The failure set, and the counts it was reduced to."""

    nodes: list[str] = Field(description="Names of the failed nodes.")
    workers: list[WorkerText] = Field(description="Failed workers, pipeline/slot.")
    degraded_ppm: dict[WorkerText, Count] = Field(
        description="Speed of each slow worker, 1 to 999,999 parts per million."
    )
    key: str = Field(description="Failure key: dead workers per slot, then slow ones as slot@ppm.")


class StageForm(_Form):
    """Costs of one stage for one microbatch; nanoseconds and bytes."""

    forward_ns: Count
    input_grad_ns: Count
    weight_grad_ns: Count
    transfer_ns: Count
    activation_bytes: Count
    weight_grad_bytes: Count
    splittable: bool


class SlotForm(_Form):
    """A slot: its stages, sync time and memory."""

    stages: list[Count]
    sync_ns: Count
    capacity_bytes: Count | None


class ProblemForm(_Form):
    """The problem the schedule answers, on real workers."""

    optimizer: Literal["staggered", "global"]
    microbatches: list[Count]
    stages: list[StageForm]
    slots: list[SlotForm]
    dead: list[WorkerText]
    speeds_ppm: dict[WorkerText, Count]


class WorkerForm(_Form):
    """One worker's operations in its order, and their planned starts."""

    operations: str = Field(description="Operations in their text form, separated by one space.")
    start_ns: list[int] = Field(description="Start of each, nanoseconds; the durations follow from the problem.")


class BoundForm(_Form):
    """The best lower bound on the period."""

    ns: Count
    name: str
    slot: Count | None


class SlotSummaryForm(_Form):
    """See :class:`planner.plan.SlotSummary`."""

    live_workers: Count
    failed_workers: Count
    min_load: Count
    max_load: Count
    busy_ns: Count
    window_ns: Count
    bound_ns: Count
    peak_memory_bytes: Count
    capacity_bytes: Count | None


class MigrationForm(_Form):
    """See :class:`planner.migration.Migration`."""

    source: WorkerText
    target: WorkerText
    copy_from: WorkerText
    num_bytes: Count
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None


class ResultForm(_Form):
    """What is claimed of the schedule."""

    status: Literal["optimal", "feasible"]
    period_ns: Count
    bound: BoundForm
    fault_free_ns: Count
    baseline_1f1b_ns: Count | None
    slots: list[SlotSummaryForm]
    migrations: list[MigrationForm]
    advised_migrations: list[MigrationForm]
    relabelling: dict[WorkerText, WorkerText]
    notes: list[str]


class ProvenanceForm(_Form):
    """What produced the schedule."""

    solver: str
    seed: Count
    deadline_s: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    target_gap: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    solver_workers: Count
    deterministic: bool = False
    versions: dict[str, str]


class FactsForm(_Form):
    """Everything that ``plan_id`` covers, but for the schedule."""

    job: JobForm
    failures: FailuresForm
    problem: ProblemForm
    worker_ranks: list[str]
    result: ResultForm
    provenance: ProvenanceForm


class ContentForm(FactsForm):
    """Everything that ``plan_id`` covers."""

    schedule: dict[WorkerText, WorkerForm]


class PlanDocument(_Form):
    """A whole plan file."""

    format: Literal["replan-plan"]
    schema_version: Literal[1]
    plan_id: Hash
    wall_s: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    content: ContentForm


def plan_from_document(document: PlanDocument) -> Plan:
    """Build the plan that a document describes.

    Raises
    ------
    ReplanError
        If the parts contradict each other.
    """
    problem = problem_from_form(document.content.problem)
    schedule = schedule_from_form(document.content.schedule, problem)
    return plan_from_facts(document.content, problem, schedule, document.wall_s)


def plan_from_facts(content: FactsForm, problem: Problem, schedule: Schedule, wall_s: float) -> Plan:
    """Build a plan of a schedule and everything else that a plan's content says.

    Raises
    ------
    ReplanError
        If the parts contradict each other.
    """
    result, provenance, failures = content.result, content.provenance, content.failures
    return Plan(
        job_name=content.job.name,
        job_sha256=content.job.sha256,
        problem=problem,
        schedule=schedule,
        worker_ranks=tuple(content.worker_ranks),
        failed_nodes=tuple(failures.nodes),
        failed_workers=tuple(parse_worker(text) for text in failures.workers),
        degraded=tuple((parse_worker(text), ppm) for text, ppm in _by_worker(failures.degraded_ppm)),
        failure_key=parse_failure_key(failures.key),
        status=PlanStatus(result.status),
        period_ns=result.period_ns,
        bound_ns=result.bound.ns,
        bound_name=result.bound.name,
        bound_slot=result.bound.slot,
        fault_free_ns=result.fault_free_ns,
        baseline_1f1b_ns=result.baseline_1f1b_ns,
        slots=tuple(SlotSummary(**slot.model_dump()) for slot in result.slots),
        migrations=tuple(_migration(move) for move in result.migrations),
        advised_migrations=tuple(_migration(move) for move in result.advised_migrations),
        relabelling=tuple(
            sorted(
                (
                    Seat(worker=parse_worker(worker), part=parse_worker(part))
                    for worker, part in result.relabelling.items()
                ),
                key=lambda seat: seat.worker,
            )
        ),
        notes=tuple(result.notes),
        solver=provenance.solver,
        seed=provenance.seed,
        deadline_s=provenance.deadline_s,
        target_gap=provenance.target_gap,
        solver_workers=provenance.solver_workers,
        deterministic=provenance.deterministic,
        versions=tuple(sorted(provenance.versions.items())),
        wall_s=wall_s,
    )


def _migration(form: MigrationForm) -> Migration:
    return Migration(
        source=parse_worker(form.source),
        target=parse_worker(form.target),
        copy_from=parse_worker(form.copy_from),
        num_bytes=form.num_bytes,
        seconds=form.seconds,
    )


def problem_from_form(form: ProblemForm) -> Problem:
    """Build the problem that a plan's content describes."""
    return Problem(
        stages=tuple(Stage(**stage.model_dump()) for stage in form.stages),
        slots=tuple(
            Slot(stages=tuple(slot.stages), sync_ns=slot.sync_ns, capacity_bytes=slot.capacity_bytes)
            for slot in form.slots
        ),
        microbatches=tuple(form.microbatches),
        optimizer=Optimizer(form.optimizer),
        dead=frozenset(parse_worker(text) for text in form.dead),
        speeds_ppm={parse_worker(text): ppm for text, ppm in _by_worker(form.speeds_ppm)},
    )


def schedule_from_form(workers: dict[str, WorkerForm], problem: Problem) -> Schedule:
    """Build the schedule that a plan's content describes; each operation lasts as long as the problem says.

    Raises
    ------
    PlanFileError
        If a worker's operations cannot be read, name what the problem does not have, or have another number of starts.
    """
    num_workers = problem.num_pipelines * problem.num_slots
    by_index: dict[int, WorkerForm] = {}
    for text, form in workers.items():
        worker = parse_worker(text)
        if worker.slot >= problem.num_slots or worker.pipeline >= problem.num_pipelines:
            raise PlanFileError(f"the schedule names worker {text}, which the problem does not have")
        if form.operations.count(" ") + 1 != len(form.start_ns):
            raise PlanFileError(
                f"worker {text} has {form.operations.count(' ') + 1} operations and {len(form.start_ns)} starts"
            )
        by_index[worker.pipeline * problem.num_slots + worker.slot] = form
    order = sorted(by_index)
    counts = np.zeros(num_workers, np.int64)
    counts[order] = [len(by_index[index].start_ns) for index in order]
    rows = _parse_operations(" ".join(by_index[index].operations for index in order), int(counts.sum()))
    _check_ranges(rows, problem)
    start = _starts([ns for index in order for ns in by_index[index].start_ns])
    stage, kind = rows[:, 0], rows[:, 1]
    return Schedule(
        num_pipelines=problem.num_pipelines,
        num_slots=problem.num_slots,
        offsets=np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]),
        kind=kind,
        stage=stage,
        pipeline=rows[:, 2],
        microbatch=rows[:, 3],
        start_ns=start,
        end_ns=start + operation_durations(problem, np.repeat(np.arange(num_workers), counts), kind, stage),
    )


def operation_durations(problem: Problem, worker_idx: IntColumn, kind: IntColumn, stage: IntColumn) -> IntColumn:
    """Duration of each row's operation on its worker, in nanoseconds, shape ``(N,)``."""
    classes = sorted({FULL_SPEED_PPM, *problem.speeds_ppm.values()})
    class_of_worker = np.full(problem.num_pipelines * problem.num_slots, classes.index(FULL_SPEED_PPM), np.int64)
    for worker, ppm in problem.speeds_ppm.items():
        class_of_worker[worker.pipeline * problem.num_slots + worker.slot] = classes.index(ppm)
    table = np.zeros((len(classes), len(Kind), problem.num_stages), np.int64)
    for c, ppm in enumerate(classes):
        for v, cost in enumerate(problem.stages):
            forward, inputs, weights = (
                scaled_ns(ns, ppm) for ns in (cost.forward_ns, cost.input_grad_ns, cost.weight_grad_ns)
            )
            table[c, :, v] = [forward, inputs, weights, inputs + weights]
    return np.asarray(table[class_of_worker[worker_idx], kind, stage], dtype=np.int64)


_LETTERS = re.compile(r"[0-9FIWB. ]*", re.ASCII)
_SEPARATED = [*((kind.name, f" {kind.value} ") for kind in Kind), (".", " ")]


def _parse_operations(text: str, count: int) -> IntColumn:
    # Lenient on purpose and fast: the reader compares the id of what was understood with the file's, so that any
    # spelling but the canonical one is refused there.
    if _LETTERS.fullmatch(text) is None:
        raise PlanFileError("the schedule's operations cannot be read; expected the form 2F1.3 2I1.3")
    for letter, number in _SEPARATED:
        text = text.replace(letter, number)
    numbers = np.fromstring(text, dtype=np.int64, sep=" ")
    if len(numbers) != 4 * count:
        raise PlanFileError("the schedule's operations cannot be read; expected the form 2F1.3 2I1.3")
    return numbers.reshape(-1, 4)


def _check_ranges(rows: IntColumn, problem: Problem) -> None:
    limits = (
        ("stage", problem.num_stages),
        ("kind", len(Kind)),
        ("pipeline", problem.num_pipelines),
        ("microbatch", max(problem.microbatches)),
    )
    for column, (name, limit) in enumerate(limits):
        lowest, highest = int(rows[:, column].min(initial=0)), int(rows[:, column].max(initial=0))
        if lowest < 0 or highest >= limit:
            raise PlanFileError(f"the schedule names {name} {max(highest, -lowest)}; expected 0 to {limit - 1}")


def _starts(values: list[int]) -> IntColumn:
    try:
        return np.array(values, dtype=np.int64)
    except OverflowError as error:
        raise PlanFileError("a start in the schedule does not fit 64 bits") from error


def _by_worker(values: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(values.items(), key=lambda item: parse_worker(item[0]))
