"""A plan on one screen: what somebody who was just woken up needs first."""

from __future__ import annotations

import shlex
from pathlib import Path

from rich.text import Text

from cli.output import bytes_text, duration_text, make_console, percent_text, print_facts
from planner.matching import reroutes_of
from planner.migration import Migration
from planner.operation import Worker
from planner.plan import Plan, PlanStatus

_MOST_LINES = 8
"""Slots, peers and workers listed before the rest is counted."""


def print_plan(plan: Plan, output: Path | None) -> None:
    """Print the verdict, then what it rests on, then what to do next.

    Parameters
    ----------
    plan
        The plan.
    output
        Where it was written; ``None`` where it was not.
    """
    console = make_console()
    console.print(_verdict(plan))
    facts = [("Period", _period(plan)), ("Proof", _proof(plan)), ("Failed", plan.failures_text())]
    facts += [("" if n else "Takes over", line) for n, line in enumerate(takeovers(plan))]
    facts.append(("Memory", _memory(plan)))
    facts += [("" if n else "Migrations", move_text(move)) for n, move in enumerate(plan.migrations)]
    facts += [("" if n else "Would pay", move_text(move)) for n, move in enumerate(plan.advised_migrations)]
    if plan.advised_migrations:
        facts.append(("", "to plan with these moves, add --migrate"))
    facts += [("" if n else "Note", note) for n, note in enumerate(plan.notes)]
    again = ", the same plan every time" if plan.deterministic else ""
    facts.append(("Found by", f"{plan.solver} in {plan.wall_s:.2f} s, seed {plan.seed}{again}"))
    facts.append(("Plan", plan.plan_id))
    facts += _next_steps(plan, output)
    print_facts(console, facts)


def move_text(move: Migration) -> str:
    """One migration on one line."""
    seconds = "" if move.seconds is None else f", {move.seconds:.3g} s"
    return (
        f"worker {move.source} takes the place of {move.target}: "
        f"{bytes_text(move.num_bytes)} copied from {move.copy_from}{seconds}"
    )


def _verdict(plan: Plan) -> Text:
    kept = plan.throughput_kept
    loses = "" if kept is None else f", keeps {percent_text(kept)} of the fault-free throughput"
    if plan.status is PlanStatus.OPTIMAL:
        return Text(f"{plan.job_name}: planned, proved optimal{loses}", style="bold green")
    gap = "gap unknown" if plan.gap is None else f"at most {percent_text(plan.gap)} from the best possible"
    return Text(f"{plan.job_name}: planned, {gap}{loses}", style="bold yellow")


def _period(plan: Plan) -> str:
    text = f"{duration_text(plan.period_ns)} an iteration; fault-free {duration_text(plan.fault_free_ns)}"
    if plan.baseline_1f1b_ns is not None:
        text += f", fault-free 1F1B {duration_text(plan.baseline_1f1b_ns)}"
        if plan.period_ns:
            text += f" ({percent_text(plan.baseline_1f1b_ns / plan.period_ns)} of its throughput)"
    return text


def _proof(plan: Plan) -> str:
    where = "" if plan.bound_slot is None else f" of slot {plan.bound_slot}"
    gap = "unknown" if plan.gap is None else percent_text(plan.gap)
    return f"no schedule is faster than {duration_text(plan.bound_ns)} ({plan.bound_name} bound{where}): gap {gap}"


def takeovers(plan: Plan) -> list[str]:
    """For each slot with rerouted microbatches, on a line: whose they are, and who runs how many."""
    by_slot: dict[int, tuple[dict[int, int], dict[int, int]]] = {}
    for home, slot, helper, count in reroutes_of(plan.schedule).tolist():
        homes, helpers = by_slot.setdefault(slot, ({}, {}))
        homes[home] = homes.get(home, 0) + count
        helpers[helper] = helpers.get(helper, 0) + count
    lines = []
    for slot, (homes, helpers) in sorted(by_slot.items()):
        down = [str(Worker(k, slot)) for k in homes if Worker(k, slot) in plan.problem.dead]
        whose = f"{_some(down)} down" if down else "to even the load"
        peers = [f"{Worker(k, slot)} +{count}" for k, count in sorted(helpers.items())]
        lines.append(f"slot {slot} ({whose}): {sum(homes.values())} microbatches to {_some(peers)}")
    if len(lines) > _MOST_LINES:
        lines = [*lines[:_MOST_LINES], f"and {len(lines) - _MOST_LINES} more slots (--json lists all)"]
    return lines or ["nobody: every microbatch runs at home"]


def _memory(plan: Plan) -> str:
    bound = [
        (peak / slot.capacity_bytes if slot.capacity_bytes else 1.0, s, peak, slot.capacity_bytes)
        for s, (peak, slot) in enumerate(zip(plan.peak_memory_bytes, plan.problem.slots, strict=True))
        if slot.capacity_bytes is not None
    ]
    if not bound:
        peak = max(plan.peak_memory_bytes)
        if peak == 0:
            return "does not bind; the job gives no activation bytes"
        return f"does not bind; peak {bytes_text(peak)} of activations in slot {plan.peak_memory_bytes.index(peak)}"
    share, s, peak, capacity = max(bound)
    return f"fullest in slot {s}: {bytes_text(peak)} of {bytes_text(capacity)} for activations ({percent_text(share)})"


def _next_steps(plan: Plan, output: Path | None) -> list[tuple[str, str]]:
    if output is None:
        return [("Next", "not written to a file: add -o plan.json to keep it")]
    changed = next((row for row in reroutes_of(plan.schedule).tolist()), None)
    live = next(k for k in plan.problem.live_pipelines(0))
    worker = Worker(live, 0) if changed is None else Worker(changed[2], changed[1])
    path = shlex.quote(str(output))
    return [("Written to", str(output)), ("Next", f"replan program {path} --worker {worker}")]


def _some(words: list[str]) -> str:
    shown = ", ".join(words[:_MOST_LINES])
    return shown if len(words) <= _MOST_LINES else f"{shown} and {len(words) - _MOST_LINES} more"
