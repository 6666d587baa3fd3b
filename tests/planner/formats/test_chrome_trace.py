"""Traces as Perfetto's importer takes them in, and as the manual says they look."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from cli.show.selection import all_workers
from planner.formats.chrome_trace import COLOURS, THREAD_NAMES, microseconds, trace_events, write_trace
from planner.operation import Kind
from planner.plan import Plan
from planner.problem import Slot, Stage
from tests.perfetto import Importer
from tests.plans import planned_problem, tiny_plan, tiny_schedule

MANUAL = Path(__file__).parents[3] / "docs" / "cli.md"


def odd_plan(transfer_ns: int) -> Plan:
    """The tiny plan with costs that are no whole microseconds, sync, and memory."""
    stage = Stage(
        forward_ns=1001,
        input_grad_ns=2333,
        weight_grad_ns=877,
        transfer_ns=transfer_ns,
        activation_bytes=8,
        weight_grad_bytes=4,
    )
    problem = planned_problem(
        stages=(stage, stage), slots=(Slot(stages=(0,), sync_ns=1009), Slot(stages=(1,), sync_ns=577))
    )
    return tiny_plan(problem=problem, schedule=tiny_schedule(problem))


@pytest.mark.parametrize("transfer_ns", [0, 503, 2507])
def test_the_importer_keeps_every_slice_and_ties_every_arrow(transfer_ns: int) -> None:
    """Each of the four forwards and four gradients that cross workers has an arrow to the operation that it is for."""
    found = Importer().take(trace_events(odd_plan(transfer_ns), all_workers(odd_plan(transfer_ns))))
    assert found.dropped == []
    arrivals = [name for _, name in found.arrows]
    assert sorted(arrivals) == sorted(f"{kind}{k}.{j}" for kind in ("1F", "0I") for k in (0, 1) for j in (0, 1))
    for sent, needed in found.arrows:
        if transfer_ns:
            assert re.fullmatch(rf"to ./.: {re.escape(needed)}", sent)
        else:
            # Without length there is no transfer to see: the arrow starts at the operation before.
            assert sent == needed.replace("1F", "0F") if "F" in needed else sent == needed.replace("0I", "1I")


def test_what_the_importer_would_do_to_a_careless_trace() -> None:
    """Plain quotients let neighbours overlap by a nanosecond, and arrows ahead of slices are tied to what ran before."""
    slices = [
        {"ph": "X", "pid": 1, "tid": 1, "name": name, "ts": start / 1000, "dur": length / 1000}
        for name, start, length in (("a", 0, 500), ("b", 500, 501), ("c", 1001, 500))
    ]
    assert Importer().take(slices).dropped == ["c"]
    whole = [
        {**s, "ts": microseconds(round(s["ts"] * 1000)), "dur": microseconds(round(s["dur"] * 1000))} for s in slices
    ]
    assert Importer().take(whole).dropped == []
    arrow = [{"ph": ph, "pid": 1, "tid": 1, "id": 7, "ts": ts} for ph, ts in (("s", 0.0), ("f", 0.5))]
    assert Importer().take([whole[0], *arrow, *whole[1:]]).arrows == [("a", "a")]
    assert Importer().take([*whole, *arrow]).arrows == [("a", "b")]


@pytest.mark.parametrize("value", [0, 1, 999, 1001, 4350, 8_191, 18_522_337, 2**45 + 12_345, 2**52 + 1])
def test_times_survive_cutting_and_rounding(value: int) -> None:
    """Through JSON and back, by a viewer that cuts off and by one that rounds."""
    read = json.loads(json.dumps(microseconds(value)))
    assert (int(read * 1000), round(read * 1000)) == (value, value)


def test_numbers_and_names_are_those_of_the_manual(tmp_path: Path) -> None:
    """Processes and threads count from 1; the manual's table names threads, colours, arrows and the counter."""
    plan = odd_plan(503)
    path = tmp_path / "plan.trace.json"
    write_trace(plan, all_workers(plan), path)
    events = json.loads(path.read_text())["traceEvents"]
    assert min(event["pid"] for event in events) == 1
    assert min(event["tid"] for event in events) == 1
    section = MANUAL.read_text().partition("## replan show")[2].partition("## replan export")[0]
    threads = {int(n): name for n, name in re.findall(r"thread (\d+)(?: on)?, `(\w+)`", section)}
    assert threads == THREAD_NAMES
    assert dict(re.findall(r"\b([FIWB]) `(\w+)`", section)) == {kind.name: name for kind, name in COLOURS.items()}
    for event in events:
        if event["name"] == "thread_name":
            first = THREAD_NAMES[min(event["tid"], max(THREAD_NAMES))]
            assert re.fullmatch(rf"{first}( \d+)?", event["args"]["name"])
        if event["ph"] in "sf":
            assert f"arrows, `{event['name']}`" in section
        if event["ph"] == "C":
            assert f"counter `{event['name']}`" in section
        if event["ph"] == "X" and event["tid"] == 1:
            assert event["cname"] == COLOURS[Kind[event["cat"]]]


def test_a_worker_that_is_down_runs_nothing_and_is_named_so() -> None:
    """Its process has names only, and no arrow leads to it where workers are left out."""
    plan = odd_plan(503)
    down = [event for event in trace_events(plan, all_workers(plan)) if event["pid"] == 4]
    assert {event["ph"] for event in down} == {"M"}
    assert down[0]["args"]["name"].startswith("worker 1/1 (down)")
    alone = trace_events(plan, all_workers(plan)[:1])
    assert not [event for event in alone if event["ph"] in "sf"]
    moved = replace(plan, worker_ranks=())
    assert next(iter(trace_events(moved, all_workers(moved))))["args"]["name"] == "worker 0/0"
