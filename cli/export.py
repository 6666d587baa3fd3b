"""``replan export``: a plan in the forms that other systems run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.parameters import json_option, plan_argument
from planner.errors import InputError

if TYPE_CHECKING:
    from planner.formats.pytorch_csv_export import PipelineFile

_MOST_SHOWN = 20


@click.command(
    short_help="Write a plan as PyTorch schedule files.",
    epilog="\b\nreplan export plan.json --pytorch-csv schedules/",
)
@plan_argument
@click.option(
    "--pytorch-csv",
    "folder",
    type=click.Path(path_type=Path),
    metavar="DIR",
    required=True,
    help="Write each pipeline's schedule as DIR/pipeline-<number>.csv, which PyTorch loads as compute_only.",
)
@json_option
def export(plan_path: Path, folder: Path, as_json: bool) -> None:
    """Write PLAN as files that PyTorch's pipelining runs, one for each pipeline; row r is what slot r runs.

    Such a file cannot tell that a microbatch is rerouted to another pipeline: a plan that does so is refused.
    """
    from planner.deadlock import require_deadlock_free
    from planner.formats.plan_file import read_plan
    from planner.formats.pytorch_csv_export import export_pytorch_csv
    from planner.formats.whole_file import write_whole
    from planner.lowering import lower
    from planner.validation import require_valid

    plan = read_plan(plan_path)
    require_valid(plan.problem, plan.schedule, plan.period_ns)
    require_deadlock_free(lower(plan.problem, plan.schedule))
    files = export_pytorch_csv(plan.problem, plan.schedule)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder}: {error.strerror}") from error
    for file in files:
        write_whole(folder / _name(file), file.text.encode("ascii"), durable=False)
    others = _others(folder, files)
    total = plan.problem.num_microbatches
    if as_json:
        from cli.output import print_json

        print_json(
            {
                "plan_id": plan.plan_id,
                "folder": str(folder),
                "files": [_document(f, total) for f in files],
                "other_files": list(others),
            }
        )
    else:
        _print(folder, files, total)
        if others:
            click.echo(f"  not of this plan, left as they were: {', '.join(others[:_MOST_SHOWN])}")


def _name(file: PipelineFile) -> str:
    return f"pipeline-{file.pipeline}.csv"


def _others(folder: Path, files: tuple[PipelineFile, ...]) -> tuple[str, ...]:
    """Schedule files that stand in the folder and are another plan's: whoever runs all of them would run two plans."""
    found = {path.name for path in folder.glob("pipeline-*.csv")}
    return tuple(sorted(found - {_name(file) for file in files}))


def _weight(file: PipelineFile, total: int) -> str:
    """Share of the global batch: what the pipeline's mean gradient counts for."""
    return f"{len(file.microbatches)}/{total}"


def _document(file: PipelineFile, total: int) -> dict[str, Any]:
    return {
        "pipeline": file.pipeline,
        "file": _name(file),
        "num_microbatches": len(file.microbatches),
        "weight": _weight(file, total),
        "microbatches": [f"{home}.{j}" for home, j in file.microbatches],
    }


def _print(folder: Path, files: tuple[PipelineFile, ...], total: int) -> None:
    noun = "file" if len(files) == 1 else "files"
    if len({file.text for file in files}) == 1 < len(files) and not any(file.is_renumbered for file in files):
        click.echo(f"{len(files)} {noun} written to {folder}, all alike: any serves every pipeline")
        click.echo(f"  each holds {_content(files[0], total)}")
        return
    click.echo(f"{len(files)} {noun} written to {folder}")
    for file in files[:_MOST_SHOWN]:
        click.echo(f"  {_name(file)}: {_content(file, total)}")
    if len(files) > _MOST_SHOWN:
        click.echo(f"  and {len(files) - _MOST_SHOWN} more (--json lists them)")


def _content(file: PipelineFile, total: int) -> str:
    renumbered = ", renumbered (--json lists whose they are)" if file.is_renumbered else ""
    return f"{len(file.microbatches)} microbatches, gradient weight {_weight(file, total)}{renumbered}"
