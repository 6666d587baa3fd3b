"""How good a schedule file is for a job: its faults, or its period and how far that is from the best possible.

A file is one pipeline's, and the job gives what it leaves out: costs, memory and when the optimizer steps. It is judged as a
problem of one pipeline with as many microbatches as the file is to have, whose rank ``r`` is slot ``r``.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.bounds import Bound, best_bound
from planner.dataflow import trace_dataflow
from planner.errors import InvalidScheduleError, NotExpressibleError
from planner.execution import find_receivers, run_until_blocked
from planner.formats.pytorch_csv import CsvOperation, CsvPlace, PytorchCsv
from planner.formats.pytorch_csv_checks import CsvFault, find_csv_faults
from planner.job import Job
from planner.operation import Operation, Worker
from planner.plan_check import check_schedule
from planner.problem import Problem
from planner.schedule import Schedule, TimedOperation, schedule_from_orders
from planner.timing import time_schedule
from planner.validation import validate

_SHOWN_FAULTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvAssessment:
    """What a schedule file is worth.

    Parameters
    ----------
    problem
        The one-pipeline problem that it was judged as.
    faults
        What is wrong with it; empty where it keeps every constraint.
    schedule, period_ns
        Its order with the times that reach its steady period, and that period; ``None`` where the order cannot run.
    bound
        The best lower bound on the period; ``None`` where there are faults.
    """

    problem: Problem
    faults: tuple[CsvFault, ...]
    schedule: Schedule | None = None
    period_ns: int | None = None
    bound: Bound | None = None

    @property
    def gap(self) -> float | None:
        """How much faster another schedule could be at most, relative to the bound; ``None`` where not known."""
        if self.period_ns is None or self.bound is None:
            return None
        if self.period_ns == self.bound.value_ns:
            return 0.0
        return self.period_ns / self.bound.value_ns - 1 if self.bound.value_ns else None

    def require_valid(self) -> None:
        """Refuse a file with any fault.

        Raises
        ------
        InvalidScheduleError
            With the first of them.
        """
        if self.faults:
            places = "one place" if len(self.faults) == 1 else f"{len(self.faults)} places"
            lines = [f"the schedule file breaks its job's constraints in {places}:"]
            lines += [f"  {fault.code}: {fault.message}" for fault in self.faults[:_SHOWN_FAULTS]]
            if len(self.faults) > _SHOWN_FAULTS:
                lines.append(f"  and {len(self.faults) - _SHOWN_FAULTS} more")
            raise InvalidScheduleError("\n".join(lines), hint="replan validate lists all")


def assess_pytorch_csv(schedule: PytorchCsv, job: Job, *, num_microbatches: int | None = None) -> CsvAssessment:
    """Judge a schedule file by a job's costs.

    Parameters
    ----------
    schedule
        The file's operations.
    job
        The job whose pipelines would run it.
    num_microbatches
        Microbatches that the file is to hold, at least 1; ``None``: as many as each of the job's pipelines has.

    Raises
    ------
    NotExpressibleError
        If the job's pipelines have different numbers of microbatches and none is given.
    ProblemError
        If the problem has more operations, or larger times or bytes, than a problem may have.
    """
    if num_microbatches is None:
        counts = sorted(set(job.microbatches))
        if len(counts) > 1:
            raise NotExpressibleError(
                f"the job's pipelines have {counts[0]} to {counts[-1]} microbatches; a schedule file holds one pipeline",
                hint="say how many the file is to hold: --microbatches",
            )
        num_microbatches = counts[0]
    problem = Problem(
        stages=tuple(stage.costs for stage in job.stages),
        slots=job.slots,
        microbatches=(num_microbatches,),
        optimizer=job.optimizer,
    )
    faults = find_csv_faults(schedule, problem)
    if faults:
        return CsvAssessment(problem=problem, faults=faults)
    order = _order(schedule)
    blocked = _blocked(schedule, problem, order)
    if blocked:
        return CsvAssessment(problem=problem, faults=blocked)
    timed, period_ns = time_schedule(problem, order)
    faults = _faults_of_times(schedule, problem, timed, period_ns)
    if faults:
        return CsvAssessment(problem=problem, faults=faults, schedule=timed, period_ns=period_ns)
    check_schedule(problem, timed, period_ns)
    return CsvAssessment(problem=problem, faults=(), schedule=timed, period_ns=period_ns, bound=best_bound(problem))


def _order(schedule: PytorchCsv) -> Schedule:
    orders = {
        Worker(0, slot): [TimedOperation(Operation(o.kind, o.stage, 0, o.microbatch), 0, 0) for _, o in row]
        for slot, row in enumerate(schedule.rows)
    }
    return schedule_from_orders(1, len(schedule.rows), orders)


def _blocked(schedule: PytorchCsv, problem: Problem, order: Schedule) -> tuple[CsvFault, ...]:
    """Faults of an order that cannot run: for each rank that stops what it waits for."""
    flow = trace_dataflow(problem, order)
    _, position = run_until_blocked(order.offsets, flow.input_row, find_receivers(flow), flow.worker)
    cells = [cell for row in schedule.rows for cell in row]
    faults = []
    for row in position[position < order.offsets[1:]].tolist():
        (place, operation), (awaited_at, awaited) = cells[row], cells[int(flow.input_row[row])]
        message = f"{place}: {operation} waits for {awaited} in {awaited_at}, which waits in turn: the order cannot run"
        faults.append(CsvFault(code="cycle", place=place, operation=operation, message=message))
    return tuple(faults)


def _faults_of_times(schedule: PytorchCsv, problem: Problem, timed: Schedule, period_ns: int) -> tuple[CsvFault, ...]:
    """Violations that the validator finds, memory above all, told by row and cell."""
    places: dict[CsvOperation, CsvPlace] = {operation: place for row in schedule.rows for place, operation in row}
    faults = []
    for violation in validate(problem, timed, period_ns):
        operation = violation.operation
        cell = None if operation is None else CsvOperation(operation.kind, operation.stage, operation.microbatch)
        place = None if cell is None else places[cell]
        what = violation.message if place is None else f"{place}: {cell}: {violation.message.partition(': ')[2]}"
        faults.append(
            CsvFault(code=violation.code, place=place, operation=cell, time_ns=violation.time_ns, message=what)
        )
    return tuple(faults)
