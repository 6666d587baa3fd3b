"""Epochs and jobs on one screen."""

from __future__ import annotations

from typing import Any

from cli.output import make_console, percent_text, print_facts, print_table

_MOST_LINES = 8
_SOURCES = {"store": "made ready before", "solved": "made now, a better one may follow", "improved": "improved"}


def print_epoch(body: dict[str, Any], heading: str) -> None:
    """Print what an epoch says: what is down, which plan is in force, what is to be done.

    Parameters
    ----------
    body
        The epoch as the service answers it.
    heading
        First line.
    """
    console = make_console()
    console.print(heading)
    facts = [("Failed", _failed(body)), ("Plan", _plan(body))]
    if body["problem"] is not None:
        facts.append(("", body["problem"]["message"]))
        if body["problem"]["hint"]:
            facts.append(("", body["problem"]["hint"]))
    facts.append(("Chosen", _chosen(body)))
    facts += _listed("Migrations", [_migration(move) for move in body["migrations"]])
    if body["num_new_pairs"]:
        facts.append(("Warm up", f"{body['num_new_pairs']} new point-to-point pairs"))
    start = body["from_iteration"]
    facts.append(("Holds", "from the next iteration that all agree on" if start is None else f"from iteration {start}"))
    print_facts(console, facts)


def print_jobs(jobs: list[dict[str, Any]]) -> None:
    """Print one line a job."""
    console = make_console()
    if not jobs:
        console.print("no jobs")
        return
    columns = ["job", "name", "revision", "epoch", "tolerance", "mode", "updated"]
    rows = [
        [
            *(job["id"], job["name"], str(job["revision"]), str(job["epoch"]), str(job["tolerance"])),
            *(job["mode"] or "", job["updated_at"]),
        ]
        for job in jobs
    ]
    print_table(console, columns, rows)


def job_text(job: dict[str, Any]) -> str:
    """One line about a job."""
    return f"{job['id']}: {job['name']}, revision {job['revision']}, epoch {job['epoch']}, tolerance {job['tolerance']}"


def acknowledged_text(found: dict[str, Any]) -> str:
    """One line about who has an epoch."""
    missing = found["missing"]
    have = f"epoch {found['epoch']}: {found['num_live'] - len(missing)} of {found['num_live']} workers have it"
    more = f" and {len(missing) - _MOST_LINES} more" if len(missing) > _MOST_LINES else ""
    return f"{have}; missing {', '.join(missing[:_MOST_LINES])}{more}" if missing else have


def _failed(body: dict[str, Any]) -> str:
    failures = body["failures"]
    targets = [failures["nodes"]] if failures["nodes"] else []
    targets += [f"rank:{rank}" for rank in failures["ranks"]] + [f"worker:{worker}" for worker in failures["workers"]]
    workers = body["failed_workers"]
    shown = ", ".join(workers[:_MOST_LINES]) + (
        f" and {len(workers) - _MOST_LINES} more" if len(workers) > _MOST_LINES else ""
    )
    text = f"{', '.join(targets)} (worker{'s' if len(workers) > 1 else ''} {shown})" if targets else "nothing"
    slow = [f"{target} at {percent_text(speed)}" for target, speed in failures["degraded"].items()]
    return f"{text}; slow: {', '.join(slow)}" if slow else text


def _plan(body: dict[str, Any]) -> str:
    plan = body["plan"]
    if plan is None:
        problem = body["problem"]
        return "none" if problem is None else f"none ({problem['code']})"
    parts = [f"{plan['period_us']:,.0f} us an iteration"]
    if plan["throughput_kept"] is not None:
        parts.append(f"keeps {percent_text(plan['throughput_kept'])} of the fault-free throughput")
    if plan["gap"] is not None:
        parts.append(f"gap {percent_text(plan['gap'])}")
    return f"{', '.join(parts)}; {_SOURCES.get(body['source'], body['source'])}"


def _chosen(body: dict[str, Any]) -> str:
    rung = next((rung for rung in body["ladder"] if rung["name"] == body["chosen"]), None)
    name = str(body["chosen"]).replace("_", " ")
    if rung is None or rung["lost_s"] is None or rung["horizon_s"] is None:
        return name
    return f"{name}; loses {rung['lost_s']:,.0f} s of {rung['horizon_s']:,.0f} s until the next event"


def _migration(move: dict[str, Any]) -> str:
    seconds = "" if move["seconds"] is None else f" in {move['seconds']:.1f} s"
    path = f"{move['from']} back" if move["from"] == move["to"] else f"{move['from']} to {move['to']}"
    return f"{path}: loads {move['bytes']:,} bytes from {move['copy_from']}{seconds}"


def _listed(name: str, lines: list[str]) -> list[tuple[str, str]]:
    shown = lines[:_MOST_LINES]
    if len(lines) > _MOST_LINES:
        shown.append(f"and {len(lines) - _MOST_LINES} more (--json lists them)")
    return [("" if n else name, line) for n, line in enumerate(shown)]
