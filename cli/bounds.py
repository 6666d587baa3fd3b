"""``replan bounds``: what no plan can beat."""

from __future__ import annotations

from pathlib import Path

import click

from cli.parameters import failure_options, json_option


@click.command(short_help="What no plan can beat.", epilog="\b\nreplan bounds job.yaml --fail worker:1/2")
@failure_options
@click.option("--all", "show_all", is_flag=True, help="Show every slot's bounds, not only the best of each kind.")
@json_option
def bounds(job_path: Path, fail: tuple[str, ...], degrade: tuple[str, ...], show_all: bool, as_json: bool) -> None:
    """Lower bounds on the period of JOB with these failures: no plan is faster, whoever makes it."""
    from planner.bounds import Bound, lower_bounds
    from planner.failures import parse_failures
    from planner.formats.job_file import load_job
    from planner.units import ns_to_us

    job = load_job(job_path)
    failures = parse_failures(job, fail, degrade)
    problem = job.problem(failures.dead, failures.speeds_ppm)
    problem.require_plannable()
    found = sorted(lower_bounds(problem), key=lambda bound: -bound.value_ns)
    if as_json:
        from cli.output import print_json

        def document(bound: Bound) -> dict[str, object]:
            value_us = ns_to_us(bound.value_ns)
            return {"name": bound.name, "slot": bound.slot, "value_us": value_us, "detail": bound.detail}

        workers = [str(worker) for worker in sorted(failures.dead)]
        print_json({"failed_workers": workers, "best": document(found[0]), "bounds": [document(b) for b in found]})
        return
    from cli.output import duration_text, make_console, print_table

    shown = found if show_all else list({bound.name: bound for bound in reversed(found)}.values())[::-1]
    console = make_console()
    console.print(f"{job.name}: no plan is faster than {duration_text(found[0].value_ns)} an iteration", style="bold")
    rows = [
        [b.name, "all" if b.slot is None else str(b.slot), duration_text(b.value_ns), b.detail]
        for b in sorted(shown, key=lambda bound: -bound.value_ns)
    ]
    print_table(console, ["bound", "slot", "period at least", "because"], rows)
