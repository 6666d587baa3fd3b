"""Checks of planned times, and of the memory that each worker's order needs."""

from __future__ import annotations

import numpy as np
from numba import njit

from planner.dataflow import LARGEST, NO_ROW, Dataflow, held_bytes
from planner.operation import Kind
from planner.problem import Optimizer
from planner.schedule import IntColumn
from planner.validation.findings import Findings, Violation


def check_range(findings: Findings) -> bool:
    """Planned times are small enough to add; ``False`` where one is not."""
    schedule = findings.schedule
    far = np.zeros(schedule.num_operations, dtype=np.bool_)
    for times in (schedule.start_ns, schedule.end_ns):
        far |= (times > LARGEST) | (times < -LARGEST)
    findings.add_rows(
        "time_range", np.flatnonzero(far), lambda _: f"expected times between {-LARGEST} and {LARGEST} ns"
    )
    return not bool(far.any())


def check_durations(findings: Findings, flow: Dataflow) -> None:
    """Each operation is planned for exactly the time it takes on its worker."""
    schedule = findings.schedule
    planned = schedule.end_ns - schedule.start_ns
    findings.add_rows(
        "wrong_duration",
        np.flatnonzero(flow.known & (planned != flow.duration_ns)),
        lambda row: f"is planned for {planned[row]} ns; expected {flow.duration_ns[row]} ns",
    )


def check_overlap(findings: Findings, flow: Dataflow) -> None:
    """A worker runs one operation at a time, in its order."""
    schedule = findings.schedule
    early = (np.diff(flow.worker) == 0) & (schedule.start_ns[1:] < schedule.end_ns[:-1])
    findings.add_rows(
        "overlap",
        np.flatnonzero(early) + 1,
        lambda row: f"{schedule.operation(row - 1)} ahead of it ends at {schedule.end_ns[row - 1]} ns",
    )


def check_precedence(findings: Findings, flow: Dataflow) -> None:
    """Each operation starts once its input is there, over links that deliver in send order."""
    schedule = findings.schedule
    has_input = flow.input_row != NO_ROW
    own = np.where(has_input, schedule.end_ns[flow.input_row] + flow.link_ns, schedule.start_ns)
    findings.add_rows(
        "precedence",
        np.flatnonzero(has_input & (schedule.start_ns < own)),
        lambda row: (
            f"its input {schedule.operation(int(flow.input_row[row]))} ends on worker "
            f"{findings.worker(int(flow.input_row[row]))} at {schedule.end_ns[flow.input_row[row]]} ns and takes "
            f"{flow.link_ns[row]} ns to get here; expected a start at {own[row]} ns or later"
        ),
    )
    receivers = np.flatnonzero(flow.is_remote)
    receivers = receivers[np.argsort(flow.input_row[receivers], kind="stable")]
    arrival = np.full(schedule.num_operations, np.iinfo(np.int64).min)
    num_workers = schedule.num_pipelines * schedule.num_slots
    arrival[receivers] = _link_arrivals(
        flow.worker[flow.input_row[receivers]], flow.worker[receivers], own[receivers], num_workers
    )
    findings.add_rows(
        "link_order",
        np.flatnonzero((schedule.start_ns < arrival) & (schedule.start_ns >= own)),
        lambda row: (
            f"an earlier message from worker {findings.worker(int(flow.input_row[row]))} arrives at {arrival[row]} ns, "
            f"and links deliver in send order; expected a start at {arrival[row]} ns or later"
        ),
    )


def check_memory(findings: Findings, flow: Dataflow) -> None:
    """No worker's order holds more bytes than its slot's capacity; at equal times the order decides."""
    problem, schedule = findings.problem, findings.schedule
    capacity = np.array(
        [np.iinfo(np.int64).max if s.capacity_bytes is None else s.capacity_bytes for s in problem.slots]
    )[flow.worker % schedule.num_slots]
    held = held_bytes(problem, schedule)
    findings.add_rows(
        "memory",
        np.flatnonzero((schedule.kind == Kind.F) & (held > capacity)),
        lambda row: f"the worker now holds {held[row]} bytes; expected at most {capacity[row]}",
    )


def check_period(findings: Findings, flow: Dataflow, period_ns: int) -> None:
    """From first start to last end plus sync fits the period: per slot where staggered, over all slots where global."""
    problem, schedule = findings.problem, findings.schedule
    if schedule.num_operations == 0:
        return
    slot = flow.worker % schedule.num_slots
    if problem.optimizer is Optimizer.GLOBAL:
        _check_window(findings, np.arange(schedule.num_operations), max(s.sync_ns for s in problem.slots), period_ns)
        return
    for s in range(problem.num_slots):
        _check_window(findings, np.flatnonzero(slot == s), problem.slots[s].sync_ns, period_ns, slot=s)


def _check_window(
    findings: Findings, rows: IntColumn, sync_ns: int, period_ns: int, *, slot: int | None = None
) -> None:
    schedule = findings.schedule
    if len(rows) == 0:
        return
    first = int(schedule.start_ns[rows].min())
    last_row = int(rows[schedule.end_ns[rows].argmax()])
    last = int(schedule.end_ns[last_row])
    needed = last - first + sync_ns
    if needed > period_ns:
        what = "the iteration" if slot is None else f"slot {slot}"
        message = (
            f"{what} runs from {first} to {last} ns and syncs for {sync_ns} ns, {needed} ns in all; "
            f"expected at most the period of {period_ns} ns"
        )
        findings.add(Violation("period", findings.worker(last_row), schedule.operation(last_row), last, message))


@njit(cache=True)
def _link_arrivals(source: IntColumn, target: IntColumn, own_ns: IntColumn, num_workers: int) -> IntColumn:
    """Arrival of each message: its own, or that of the one before on its directed link if later.

    Messages are sorted by their sender's rows, so that all of one sender's stand together in send order.
    """
    arrival = np.empty_like(own_ns)
    latest = np.empty(num_workers, np.int64)
    latest_source = np.full(num_workers, -1, np.int64)
    for i in range(len(own_ns)):
        arrival[i] = own_ns[i]
        if latest_source[target[i]] == source[i]:
            arrival[i] = max(arrival[i], latest[target[i]])
        latest_source[target[i]] = source[i]
        latest[target[i]] = arrival[i]
    return arrival
