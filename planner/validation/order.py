"""Check that the order can run."""

from __future__ import annotations

from planner.dataflow import Dataflow
from planner.execution import find_receivers, run_until_blocked
from planner.validation.findings import Findings


def check_order(findings: Findings, flow: Dataflow) -> None:
    """No operations wait for each other in a cycle; where planned times are right only such without length still can."""
    schedule = findings.schedule
    _, position = run_until_blocked(schedule.offsets, flow.input_row, find_receivers(flow), flow.worker)
    findings.add_rows(
        "cycle",
        position[position < schedule.offsets[1:]],
        lambda row: (
            f"needs {schedule.operation(int(flow.input_row[row]))} of worker "
            f"{findings.worker(int(flow.input_row[row]))}, which waits in turn: the order cannot run"
        ),
    )
