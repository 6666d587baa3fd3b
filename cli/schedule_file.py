"""PyTorch schedule files in the place of plans: what ``replan validate`` and ``replan replay`` do with ``--job``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.errors import ExitCode

if TYPE_CHECKING:
    from planner.formats.pytorch_csv_assessment import CsvAssessment
    from planner.formats.pytorch_csv_checks import CsvFault

_MOST_SHOWN = 20


def require_plan(plan_path: Path, microbatches: int | None) -> None:
    """Check where no ``--job`` is given that it is not missed.

    Raises
    ------
    click.UsageError
        If the file is a schedule file by its name, or an option for one is given.
    """
    context = click.get_current_context()
    if plan_path.suffix.lower() == ".csv":
        raise click.UsageError(f"{plan_path} is a schedule file, which has no costs: add --job JOB", context)
    if microbatches is not None:
        raise click.UsageError("--microbatches is for schedule files: add --job JOB", context)


def read_assessment(path: Path, job_path: Path, microbatches: int | None) -> CsvAssessment:
    """Read a schedule file and judge it by a job file's costs.

    Raises
    ------
    InputError
        If a file cannot be read or used.
    """
    from planner.formats.job_file import load_job
    from planner.formats.pytorch_csv import read_pytorch_csv
    from planner.formats.pytorch_csv_assessment import assess_pytorch_csv

    job = load_job(job_path)
    return assess_pytorch_csv(read_pytorch_csv(path), job, num_microbatches=microbatches)


def validate_schedule_file(path: Path, job_path: Path, microbatches: int | None, *, as_json: bool) -> ExitCode:
    """Print whether a schedule file is valid, all that is wrong with it, and how good it is."""
    found = read_assessment(path, job_path, microbatches)
    if as_json:
        from cli.output import print_json

        print_json(_document(found))
    else:
        _print(path, found)
    return ExitCode.INVALID_PLAN if found.faults else ExitCode.OK


def _print(path: Path, found: CsvAssessment) -> None:
    from cli.output import duration_text, percent_text

    if found.faults:
        click.echo(f"{path}: invalid, {len(found.faults)} {'fault' if len(found.faults) == 1 else 'faults'}")
        for fault in found.faults[:_MOST_SHOWN]:
            click.echo(f"  {fault.code}: {fault.message}")
        if len(found.faults) > _MOST_SHOWN:
            click.echo(f"  and {len(found.faults) - _MOST_SHOWN} more (--json lists them)")
        if found.period_ns is not None:
            click.echo(f"  the order's period would be {duration_text(found.period_ns)}")
        return
    assert found.schedule is not None
    assert found.period_ns is not None
    assert found.bound is not None
    click.echo(
        f"{path}: valid. {found.schedule.num_operations} operations of {found.problem.num_slots} ranks, "
        f"{found.problem.num_stages} stages and {found.problem.num_microbatches} microbatches keep every constraint"
    )
    gap = "unknown" if found.gap is None else percent_text(found.gap)
    where = "" if found.bound.slot is None else f" of slot {found.bound.slot}"
    click.echo(
        f"  period {duration_text(found.period_ns)}; no schedule of one pipeline is faster than "
        f"{duration_text(found.bound.value_ns)} ({found.bound.name} bound{where}): gap {gap}"
    )


def _document(found: CsvAssessment) -> dict[str, Any]:
    problem, bound = found.problem, found.bound
    return {
        "valid": not found.faults,
        "num_ranks": problem.num_slots,
        "num_stages": problem.num_stages,
        "num_microbatches": problem.num_microbatches,
        "period_us": None if found.period_ns is None else found.period_ns / 1000,
        "bound_us": None if bound is None else bound.value_ns / 1000,
        "bound": None if bound is None else bound.name,
        "gap": found.gap,
        "violations": [_fault_document(fault) for fault in found.faults],
    }


def _fault_document(fault: CsvFault) -> dict[str, Any]:
    return {
        "code": fault.code,
        "row": None if fault.place is None else fault.place.row,
        "cell": None if fault.place is None else fault.place.cell,
        "operation": None if fault.operation is None else str(fault.operation),
        "time_us": None if fault.time_ns is None else fault.time_ns / 1000,
        "message": fault.message,
    }
