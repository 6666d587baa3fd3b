"""What is wrong with a schedule file for a problem of one pipeline, each fault by row and cell.

=====================  ==============================================================================================
code                   meaning
=====================  ==============================================================================================
``wrong_grid``         another number of rows than the job has slots; nothing else is checked
``unknown_operation``  a stage or microbatch that the job does not have
``duplicate_operation``  an operation stands more than once
``wrong_slot``         a stage in the row of a slot that does not hold it, or in a second row
``unsplittable``       I or W of a stage that can only run B
``mixed_backward``     a microbatch has B and also I or W at the same stage
``out_of_order``       I or B ahead of its F, W ahead of its I
``last_stage_order``   forwards of the last stage that do not ascend: PyTorch would take the wrong loss
``missing_operation``  a microbatch lacks its F, or its I and W or B, at a stage
``truncated``          more faults exist than are listed; the message says how many
=====================  ==============================================================================================

The codes are stable; where :mod:`planner.validation` has the same one it means the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from planner.formats.pytorch_csv import CsvOperation, CsvPlace, PytorchCsv
from planner.operation import Kind
from planner.problem import Problem

MAX_FAULTS = 1000
"""Faults listed."""

_Places = dict[CsvOperation, CsvPlace]


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvFault:
    """One fault of a schedule file.

    Parameters
    ----------
    code
        Stable code.
    place, operation
        Where and which; ``None`` where the fault has no such place.
    time_ns
        When it shows, in nanoseconds from the start of the iteration; ``None`` where times do not matter.
    message
        The place, what was found and what was expected.
    """

    code: str
    place: CsvPlace | None = None
    operation: CsvOperation | None = None
    time_ns: int | None = None
    message: str


def find_csv_faults(schedule: PytorchCsv, problem: Problem) -> tuple[CsvFault, ...]:
    """Faults of a file, row by row; empty if every operation of the problem stands in it once, in its place.

    Parameters
    ----------
    schedule
        The file's operations.
    problem
        A problem of one pipeline, which is the file's.
    """
    faults = _all_faults(schedule, problem)
    listed = tuple(islice(faults, MAX_FAULTS))
    left = sum(1 for _ in faults)
    if not left:
        return listed
    message = f"{left} more faults are not listed; the first {MAX_FAULTS} are"
    return (*listed, CsvFault(code="truncated", message=message))


def _all_faults(schedule: PytorchCsv, problem: Problem) -> Iterator[CsvFault]:
    if len(schedule.rows) != problem.num_slots:
        rows = "1 row" if len(schedule.rows) == 1 else f"{len(schedule.rows)} rows"
        message = f"the file has {rows}; expected {problem.num_slots}, one for each slot of the job"
        yield CsvFault(code="wrong_grid", message=message)
        return
    first: _Places = {}
    for slot, row in enumerate(schedule.rows):
        last_forward = -1
        for place, operation in row:
            fault = _fault_of_one(problem, slot, operation, first)
            if fault is None and operation.kind is Kind.F and operation.stage == problem.num_stages - 1:
                if operation.microbatch < last_forward:
                    expected = f"stands after microbatch {last_forward}; expected the last stage's forwards to ascend"
                    fault = ("last_stage_order", expected)
                last_forward = max(last_forward, operation.microbatch)
            first.setdefault(operation, place)
            if fault is not None:
                code, what = fault
                yield CsvFault(code=code, place=place, operation=operation, message=f"{place}: {operation} {what}")
    yield from _missing(problem, first)


def _fault_of_one(problem: Problem, slot: int, operation: CsvOperation, first: _Places) -> tuple[str, str] | None:
    """Code and description of what is wrong with one operation, given where those ahead of it stand."""
    kind, stage, microbatch = operation.kind, operation.stage, operation.microbatch
    if stage >= problem.num_stages:
        return "unknown_operation", f"is of stage {stage}; expected 0 to {problem.num_stages - 1}"
    if microbatch >= problem.num_microbatches:
        return "unknown_operation", f"is of microbatch {microbatch}; expected 0 to {problem.num_microbatches - 1}"
    if operation in first:
        return "duplicate_operation", f"stands in {first[operation]} already; expected once"
    holder = problem.slot_of_stage[stage]
    if holder != slot:
        return "wrong_slot", f"is of stage {stage}, which slot {holder} holds; expected it in {CsvPlace(holder + 1)}"
    if kind is Kind.F:
        return None
    if kind is not Kind.B and not problem.stages[stage].splittable:
        return "unsplittable", f"is of stage {stage}, which cannot split its backward; expected B"
    others = (Kind.I, Kind.W) if kind is Kind.B else (Kind.B,)
    both = next((o for k in others if (o := CsvOperation(k, stage, microbatch)) in first), None)
    if both is not None:
        return "mixed_backward", f"stands beside {both} in {first[both]}; expected I and W, or B"
    needed = CsvOperation(Kind.I if kind is Kind.W else Kind.F, stage, microbatch)
    if needed not in first:
        return "out_of_order", f"stands ahead of {needed}; expected it after"
    return None


def _missing(problem: Problem, first: _Places) -> Iterator[CsvFault]:
    for stage in range(problem.num_stages):
        place = CsvPlace(problem.slot_of_stage[stage] + 1)
        splittable = problem.stages[stage].splittable
        for microbatch in range(problem.num_microbatches):
            has = {kind for kind in Kind if CsvOperation(kind, stage, microbatch) in first}
            lacks: list[tuple[Kind, str]] = []
            if Kind.F not in has:
                lacks.append((Kind.F, "the microbatch has no F here"))
            if Kind.B not in has and Kind.I not in has:
                expected = "expected I and W, or B" if splittable else "expected B"
                lacks.append((Kind.I if splittable else Kind.B, f"the microbatch has no backward here; {expected}"))
            elif Kind.I in has and Kind.W not in has and Kind.B not in has:
                lacks.append((Kind.W, "the microbatch has I but no W here"))
            for kind, why in lacks:
                operation = CsvOperation(kind, stage, microbatch)
                message = f"{place}: {operation} is missing: {why}"
                yield CsvFault(code="missing_operation", place=place, operation=operation, message=message)
