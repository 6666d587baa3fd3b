"""All checks in their order."""

from __future__ import annotations

from planner.dataflow import Dataflow, trace_dataflow
from planner.errors import InvalidScheduleError
from planner.problem import Problem
from planner.render_grid import render_around
from planner.schedule import Schedule
from planner.validation import order, structure, times
from planner.validation.findings import Findings, Violation

MAX_VIOLATIONS = 1000
"""Violations listed unless told otherwise."""

_SHOWN = 5


def validate(
    problem: Problem, schedule: Schedule, period_ns: int, *, limit: int = MAX_VIOLATIONS
) -> tuple[Violation, ...]:
    """Check a schedule against its problem, whoever made it.

    Parameters
    ----------
    problem
        The instance.
    schedule
        Any schedule, with planned times in nanoseconds.
    period_ns
        Period the schedule claims: the same times moved by ``n`` periods are to be iteration ``n``.
    limit
        Most violations listed, at least 1.

    Returns
    -------
    tuple of Violation
        Empty if the schedule keeps every constraint. Where more exist than listed the last one says so. Memory is
        only checked where every operation exists in the problem.

    Raises
    ------
    ProblemError
        If the problem's times or bytes are too large for 64-bit sums.

    Examples
    --------
    >>> from planner.problem import Slot, Stage
    >>> from planner.schedule import parse_schedule
    >>> one = Problem(stages=(Stage(forward_ns=1, input_grad_ns=1, weight_grad_ns=1),),
    ...               slots=(Slot(stages=(0,)),), microbatches=(1,))
    >>> validate(one, parse_schedule("0/0: 0F0.0@0+1 0B0.0@1+2", 1, 1), 3)
    ()
    >>> [v.code for v in validate(one, parse_schedule("0/0: 0F0.0@0+1 0B0.0@0+2", 1, 1), 1)]
    ['overlap', 'precedence', 'period']
    """
    findings = Findings(problem, schedule, max(limit, 1))
    flow = _check_structure(findings)
    if flow is not None and times.check_range(findings):
        times.check_durations(findings, flow)
        times.check_overlap(findings, flow)
        times.check_precedence(findings, flow)
        if bool(flow.known.all()):
            times.check_memory(findings, flow)
        times.check_period(findings, flow, period_ns)
        # Any other cycle shows as an overlap or a precedence that is broken.
        if not findings.violations:
            order.check_order(findings, flow)
    return findings.result()


def require_valid(problem: Problem, schedule: Schedule, period_ns: int) -> None:
    """Refuse a schedule with any violation.

    Raises
    ------
    InvalidScheduleError
        With the first violations and the grid around the first, its place marked.
    """
    _refuse(schedule, validate(problem, schedule, period_ns))


def require_sound(problem: Problem, schedule: Schedule) -> Dataflow:
    """Check only that the right operations stand on the right workers, each once; orders and times are not looked at.

    Returns
    -------
    Dataflow
        Inputs and costs of every row.

    Raises
    ------
    InvalidScheduleError
        As :func:`require_valid`.
    """
    findings = Findings(problem, schedule, MAX_VIOLATIONS)
    flow = _check_structure(findings)
    _refuse(schedule, findings.result())
    assert flow is not None
    return flow


def _check_structure(findings: Findings) -> Dataflow | None:
    """Run the checks without times; ``None`` where the schedule's grid is not the problem's."""
    problem, schedule = findings.problem, findings.schedule
    if (schedule.num_pipelines, schedule.num_slots) != (problem.num_pipelines, problem.num_slots):
        message = (
            f"the schedule is for {schedule.num_pipelines} pipelines x {schedule.num_slots} slots; "
            f"expected {problem.num_pipelines} x {problem.num_slots}"
        )
        findings.add(Violation("wrong_grid", None, None, None, message))
        return None
    flow = trace_dataflow(problem, schedule)
    structure.check_known(findings, flow)
    structure.check_conservation(findings, flow)
    structure.check_placement(findings, flow)
    return flow


def _refuse(schedule: Schedule, violations: tuple[Violation, ...]) -> None:
    if not violations:
        return
    lines = [f"the schedule breaks its problem's constraints in {len(violations)} places:"]
    lines += [f"  {violation}" for violation in violations[:_SHOWN]]
    if len(violations) > _SHOWN:
        lines.append(f"  and {len(violations) - _SHOWN} more")
    placed = next((v for v in violations if v.worker is not None and v.operation is not None), None)
    if placed is not None and placed.worker is not None and placed.operation is not None:
        lines.append(render_around(schedule, placed.worker, placed.operation).rstrip())
    raise InvalidScheduleError("\n".join(lines))
