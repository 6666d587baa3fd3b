"""The command ``replan show``."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.parameters import NumberList, WorkerList, json_option, plan_argument, require_writable
from planner.operation import Worker

if TYPE_CHECKING:
    from planner.plan import Plan

_FILE = click.Path(path_type=Path)


@click.command(short_help="Draw a plan: text, SVG, PNG or a trace.")
@plan_argument
@click.option("--svg", type=_FILE, metavar="FILE", help="Write a Gantt chart as SVG.")
@click.option("--png", type=_FILE, metavar="FILE", help="Write a Gantt chart as PNG.")
@click.option(
    "--trace", type=_FILE, metavar="FILE", help="Write a Chrome trace; open it at ui.perfetto.dev or chrome://tracing."
)
@click.option("--workers", type=WorkerList(), help="Show these workers, in this order: 0/2,1/2.")
@click.option("--slots", type=NumberList(), help="Show only these slots: 2,5-7.")
@click.option("--pipelines", type=NumberList(), help="Show only these pipelines: 0,4-5.")
@click.option("--width", type=click.IntRange(20, 10_000), help="Columns of the text grid; default: the terminal's.")
@json_option
def show(
    plan_path: Path,
    svg: Path | None,
    png: Path | None,
    trace: Path | None,
    workers: tuple[Worker, ...] | None,
    slots: tuple[int, ...] | None,
    pipelines: tuple[int, ...] | None,
    width: int | None,
    as_json: bool,
) -> None:
    """Draw PLAN as a text grid, or as files with --svg, --png and --trace.

    Of a large plan the workers that failures touch are drawn unless you choose others; a trace holds all of them.
    """
    for path in (svg, png, trace):
        require_writable(path)
    from cli.show.selection import all_workers, select_workers
    from planner.formats.plan_file import read_plan
    from planner.validation import require_valid

    plan = read_plan(plan_path)
    require_valid(plan.problem, plan.schedule, plan.period_ns)
    chosen = select_workers(plan, workers=workers, slots=slots, pipelines=pipelines)
    is_narrowed = workers is not None or slots is not None or pipelines is not None
    if svg is not None or png is not None:
        # That its folder for caches cannot be written is of no use to whoever wants a picture; it must know before its import.
        logging.getLogger("matplotlib").setLevel(logging.ERROR)
        from cli.show.gantt import write_gantt

        for path, kind in ((svg, "svg"), (png, "png")):
            if path is not None:
                write_gantt(plan, chosen, path, kind=kind)
    if trace is not None:
        from planner.formats.chrome_trace import write_trace

        write_trace(plan, chosen if is_narrowed else all_workers(plan), trace)
    files = {kind: str(path) for kind, path in (("svg", svg), ("png", png), ("trace", trace)) if path is not None}
    if as_json:
        from cli.output import print_json

        names = [str(worker) for worker in chosen]
        grid = _grid(plan, chosen, width or 120)
        print_json({"plan_id": plan.plan_id, "workers": names, "files": files, "grid": grid})
    elif files:
        for kind, name in files.items():
            click.echo(f"{kind} written to {name}")
    else:
        _print_grid(plan, chosen, width)


def _print_grid(plan: Plan, chosen: list[Worker], width: int | None) -> None:
    import shutil

    columns = width or shutil.get_terminal_size((120, 24)).columns
    click.echo(_grid(plan, chosen, columns), nl=False)
    down = [str(worker) for worker in chosen if worker in plan.problem.dead]
    if down:
        click.echo(f"down: {' '.join(down)}")
    total = plan.problem.num_pipelines * plan.problem.num_slots
    if len(chosen) < total:
        click.echo(f"{len(chosen)} of {total} workers; choose others with --workers, --slots or --pipelines")


def _grid(plan: Plan, chosen: list[Worker], width: int) -> str:
    from planner.render_grid import render_grid

    return render_grid(plan.schedule, workers=chosen, width=width)
