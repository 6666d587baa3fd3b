"""Traces of executed runs beside those of plans: a run that goes exactly as planned looks the same."""

from __future__ import annotations

from typing import Any

import pytest
from replan_client.operation import Worker, parse_operation
from replan_client.torch import trace
from replan_client.torch.timeline import Activity, Timeline, TimelineEvent

from planner.dataflow import trace_dataflow
from planner.formats import chrome_trace
from planner.plan import Plan
from planner.problem import Slot, Stage
from tests.perfetto import Importer
from tests.plans import planned_problem, tiny_plan, tiny_schedule

SYNC_NS = 1009
HELD = (8, 4)
"""Bytes of a microbatch to its I, and of these to its W."""


@pytest.fixture(scope="module")
def plan() -> Plan:
    """The tiny plan with odd costs; transfers take longer than operations, so that several are under way at once."""
    stage = Stage(
        forward_ns=1001,
        input_grad_ns=2333,
        weight_grad_ns=877,
        transfer_ns=2507,
        activation_bytes=HELD[0],
        weight_grad_bytes=HELD[1],
    )
    slots = tuple(Slot(stages=(v,), sync_ns=SYNC_NS) for v in range(2))
    problem = planned_problem(stages=(stage, stage), slots=slots)
    return tiny_plan(problem=problem, schedule=tiny_schedule(problem), worker_ranks=())


@pytest.fixture(scope="module")
def planned(plan: Plan) -> list[dict[str, Any]]:
    """Trace of the plan, live workers only."""
    workers = [w for w in (plan.schedule.worker_at(n) for n in range(4)) if w not in plan.problem.dead]
    return list(chrome_trace.trace_events(plan, workers))


@pytest.fixture(scope="module")
def executed(plan: Plan) -> list[dict[str, Any]]:
    """Trace of a run that does everything when the plan says."""
    schedule, flow = plan.schedule, trace_dataflow(plan.problem, plan.schedule)
    names = [Worker(n // 2, n % 2) for n in range(4)]
    events: list[list[TimelineEvent]] = [[] for _ in names]

    def add(index: int, activity: Activity, start: int, end: int, row: int | None = None, **more: Any) -> None:
        operation = None if row is None else parse_operation(str(schedule.operation(row)))
        events[index].append(
            TimelineEvent(activity=activity, iteration=0, start_ns=start, end_ns=end, operation=operation, **more)
        )

    for row in range(schedule.num_operations):
        here, start, end = int(flow.worker[row]), int(schedule.start_ns[row]), int(schedule.end_ns[row])
        add(here, Activity.COMPUTE, start, end, row)
        if flow.is_remote[row]:
            sender = int(flow.input_row[row])
            there, sent = int(flow.worker[sender]), int(schedule.end_ns[sender])
            add(there, Activity.SEND, sent, sent + int(flow.link_ns[row]), row, peer=names[here])
            before = int(schedule.end_ns[row - 1]) if row > schedule.offsets[here] else 0
            add(here, Activity.RECEIVE, before, start, row, peer=names[there])
    for index, own in enumerate(events):
        if own:
            last = max(event.end_ns for event in own if event.activity is Activity.COMPUTE)
            add(index, Activity.ALL_REDUCE, last, last + 9, stage=index % 2)
            add(index, Activity.STEP, last + 9, last + SYNC_NS, stage=index % 2)
    timelines = [
        Timeline(worker=worker, events=tuple(sorted(own, key=lambda event: event.end_ns)))
        for worker, own in zip(names, events, strict=True)
        if own
    ]
    return list(trace.trace_events(timelines, num_slots=2, held_bytes=dict.fromkeys(range(2), HELD)))


def test_numbers_names_and_colours_are_the_same() -> None:
    """Threads, their names, and the colours of kinds."""
    assert trace.THREAD_NAMES == chrome_trace.THREAD_NAMES
    planned = {kind.name: colour for kind, colour in chrome_trace.COLOURS.items()}
    assert {kind.name: colour for kind, colour in trace.COLOURS.items()} == planned
    for value in (0, 999, 1001, 18_522_337, 2**52 + 1):
        assert trace.microseconds(value) == chrome_trace.microseconds(value)


def test_processes_and_threads_are_the_same(planned: list[dict[str, Any]], executed: list[dict[str, Any]]) -> None:
    """Every name of the plan's trace is there, and beside them only that of the waits."""

    def names(events: list[dict[str, Any]]) -> set[tuple[Any, ...]]:
        return {(e["name"], e["pid"], e["tid"], *e["args"].values()) for e in events if e["ph"] == "M"}

    more = names(executed) - names(planned)
    assert names(planned) <= names(executed)
    assert {(name, tid) for name, _, tid, _ in more} == {("thread_name", trace.RECEIVE_THREAD)}


def test_operations_are_the_same(planned: list[dict[str, Any]], executed: list[dict[str, Any]]) -> None:
    """Name, process, thread, times, colour and details of every operation, the iteration apart."""

    def operations(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        found = [e for e in events if e["ph"] == "X" and e["tid"] == trace.COMPUTE_THREAD]
        alike = [e | {"args": {k: v for k, v in e["args"].items() if k != "iteration"}} for e in found]
        return sorted(alike, key=lambda e: (e["pid"], e["ts"]))

    assert operations(executed) == operations(planned)
    assert len(operations(planned)) == 24


def test_transfers_and_arrows_are_the_same(planned: list[dict[str, Any]], executed: list[dict[str, Any]]) -> None:
    """The importer drops nothing of either and ties the same arrows; the eight messages are drawn with the same names."""
    found = [Importer().take(events) for events in (planned, executed)]
    assert [each.dropped for each in found] == [[], []]
    assert sorted(found[0].arrows) == sorted(found[1].arrows)
    assert len(found[0].arrows) == 8
    sends = [sorted((pid, name) for pid, tid, name in each.slices if tid >= trace.SEND_THREAD) for each in found]
    assert sends[0] == sends[1]


def test_memory_is_the_same(planned: list[dict[str, Any]], executed: list[dict[str, Any]]) -> None:
    """What each worker holds at each time where it changes; a plan's trace leaves out what changes within one moment."""

    def held(events: list[dict[str, Any]]) -> dict[tuple[Any, ...], dict[str, int]]:
        # The last of several at one time is what stays.
        return {(e["name"], e["pid"], e["tid"], e["ts"]): e["args"] for e in events if e["ph"] == "C"}

    assert held(planned).items() <= held(executed).items()
    assert {key[0] for key in held(executed)} == {"activation bytes"}
