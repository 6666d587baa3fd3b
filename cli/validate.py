"""``replan validate``: check a plan file from its hash to its programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.errors import ExitCode
from cli.parameters import json_option, plan_argument, schedule_file_options
from cli.schedule_file import require_plan, validate_schedule_file

if TYPE_CHECKING:
    from planner.validation import Violation

_MOST_SHOWN = 20


@click.command(short_help="Check a plan from its hash to its programs.")
@plan_argument
@schedule_file_options
@json_option
def validate(plan_path: Path, job_path: Path | None, microbatches: int | None, as_json: bool) -> int:
    """Check PLAN: hash, form, every constraint, the period by replay, programs free of deadlock, and its other figures.

    Exit status 0 where all hold, 5 where one does not; every violation is listed by worker, operation and time.

    With --job PLAN is a PyTorch schedule file of one pipeline: every fault is listed by row and cell, and its period and gap
    follow from the job's costs.
    """
    if job_path is not None:
        return validate_schedule_file(plan_path, job_path, microbatches, as_json=as_json)
    require_plan(plan_path, microbatches)
    from planner.claims import unproved_claims
    from planner.formats.plan_file import read_plan
    from planner.plan_check import check_plan
    from planner.validation import validate as find_violations

    plan = read_plan(plan_path)
    violations = find_violations(plan.problem, plan.schedule, plan.period_ns)
    unproved: tuple[str, ...] = ()
    if not violations:
        check_plan(plan)
        unproved = unproved_claims(plan)
    if as_json:
        from cli.output import print_json

        print_json(
            {
                "valid": not violations,
                "plan_id": plan.plan_id,
                "num_operations": plan.schedule.num_operations,
                "unproved": list(unproved),
                "violations": [_document(violation) for violation in violations],
            }
        )
    elif violations:
        click.echo(f"{plan_path}: invalid, {len(violations)} violations")
        for violation in violations[:_MOST_SHOWN]:
            click.echo(f"  {violation.code}: {violation.message}")
        if len(violations) > _MOST_SHOWN:
            click.echo(f"  and {len(violations) - _MOST_SHOWN} more (--json lists them)")
    else:
        from cli.output import duration_text

        click.echo(
            f"{plan_path}: valid. {plan.schedule.num_operations} operations keep every constraint, a replay reaches the "
            f"period of {duration_text(plan.period_ns)}, the programs cannot deadlock"
        )
        for claim in unproved:
            click.echo(f"  taken as it stands: {claim}")
    return ExitCode.INVALID_PLAN if violations else ExitCode.OK


def _document(violation: Violation) -> dict[str, Any]:
    return {
        "code": violation.code,
        "worker": None if violation.worker is None else str(violation.worker),
        "operation": None if violation.operation is None else str(violation.operation),
        "time_us": None if violation.time_ns is None else violation.time_ns / 1000,
        "message": violation.message,
    }
