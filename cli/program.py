"""``replan program``: what one worker, or every worker, has to run."""

from __future__ import annotations

import json
from pathlib import Path

import click

from cli.parameters import WorkerParameter, json_option, plan_argument
from planner.errors import InputError, NotFoundError
from planner.operation import Worker


@click.command(
    short_help="What one worker, or every worker, has to run.",
    epilog="\b\nreplan program plan.json --worker 3/5\nreplan program plan.json --rank 17 --json\n"
    "replan program plan.json --all programs/",
)
@plan_argument
@click.option("--worker", type=WorkerParameter(), help="Worker as pipeline/slot: 3/5.")
@click.option("--rank", type=click.IntRange(0), help="Worker of this global rank, where the plan knows the layout.")
@click.option(
    "--all",
    "folder",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write every live worker's program as DIR/<pipeline>-<slot>.json.",
)
@json_option
def program(plan_path: Path, worker: Worker | None, rank: int | None, folder: Path | None, as_json: bool) -> None:
    """Print the program that a worker of PLAN runs each iteration."""
    if sum(option is not None for option in (worker, rank, folder)) != 1:
        raise click.UsageError("give exactly one of --worker, --rank and --all", click.get_current_context())
    from planner.deadlock import require_deadlock_free
    from planner.formats.plan_file import read_plan
    from planner.lowering import lower
    from planner.validation import require_valid

    plan = read_plan(plan_path)
    require_valid(plan.problem, plan.schedule, plan.period_ns)
    programs = lower(plan.problem, plan.schedule)
    require_deadlock_free(programs)
    if folder is not None:
        workers = list(programs.workers())
        _make_folder(folder)
        for each in workers:
            _write(folder / f"{each.pipeline}-{each.slot}.json", programs.program(each).to_dict())
        if as_json:
            from cli.output import print_json

            print_json({"plan_id": plan.plan_id, "folder": str(folder), "num_programs": len(workers)})
        else:
            click.echo(f"{len(workers)} programs written to {folder}")
        return
    if rank is not None:
        worker = plan.worker_of_rank(rank)
        if worker is None:
            known = "belongs to no worker" if plan.worker_ranks else "cannot be looked up: the plan has no layout"
            raise NotFoundError(f"rank {rank} {known}", hint="name the worker instead: --worker 3/5")
    assert worker is not None
    found = programs.program(worker)
    if as_json:
        click.echo(json.dumps({"plan_id": plan.plan_id, **found.to_dict()}, indent=2))
    else:
        click.echo(found.to_text(), nl=False)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder}: {error.strerror}") from error


def _write(path: Path, document: dict[str, object]) -> None:
    from planner.formats.whole_file import write_whole

    write_whole(path, json.dumps(document).encode("ascii") + b"\n", durable=False)
