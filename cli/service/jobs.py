"""``replan jobs``: list, show, register and delete the jobs of a service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cli.errors import ExitCode
from cli.parameters import json_option
from cli.service.options import open_client, service_options

_PAGE = 100


@click.group(short_help="List, show, register and delete a service's jobs.")
def jobs() -> None:
    """Look after the jobs that a service plans for."""


@jobs.command("list", short_help="One line a job.")
@service_options
@json_option
def list_jobs(server: str, key_file: Path | None, timeout_s: float, as_json: bool) -> int:
    """List the registered jobs."""
    from cli.output import print_json
    from cli.service.printing import print_jobs

    found: list[dict[str, Any]] = []
    with open_client(server, key_file, timeout_s) as client:
        after: str | None = None
        while True:
            page = client.get("jobs", after=after, limit=_PAGE).document()
            found += page["jobs"]
            after = page["next"]
            if after is None:
                break
    if as_json:
        print_json({"jobs": found})
    else:
        print_jobs(found)
    return ExitCode.OK


@jobs.command(short_help="A job's current epoch, and who has it.")
@click.argument("job_id")
@service_options
@json_option
def show(job_id: str, server: str, key_file: Path | None, timeout_s: float, as_json: bool) -> int:
    """Show JOB_ID: its current epoch, and which workers have acknowledged that."""
    from cli.output import print_json
    from cli.service.printing import acknowledged_text, job_text, print_epoch

    with open_client(server, key_file, timeout_s) as client:
        job = client.get("jobs", job_id).document()
        epoch = client.get("jobs", job_id, "epochs", "current").document()
        acknowledged = client.get("jobs", job_id, "epochs", str(epoch["epoch"]), "acknowledgements").document()
    if as_json:
        print_json({"job": job, "epoch": epoch, "acknowledgements": acknowledged})
        return ExitCode.OK
    print_epoch(epoch, f"{job_text(job)} ({epoch['cause']} {epoch['created_at']})")
    click.echo(f"  {acknowledged_text(acknowledged)}")
    return ExitCode.OK


@jobs.command(short_help="Register a job, or its next revision.")
@click.argument("job_id")
@click.argument("job_path", metavar="JOB", type=click.Path(path_type=Path))
@click.option(
    "--tolerance",
    type=click.IntRange(0, 1024),
    help="Failed workers to have plans ready for; left out, as many as before, 1 for a new job.",
)
@click.option(
    "--mode",
    type=click.Choice(["normalized", "all", "none"]),
    help="Make these plans ready at once; left out, the same as before, none for a new job.",
)
@service_options
@json_option
def register(
    job_id: str,
    job_path: Path,
    tolerance: int | None,
    mode: str | None,
    server: str,
    key_file: Path | None,
    timeout_s: float,
    as_json: bool,
) -> int:
    """Register the job file JOB as JOB_ID. The same file again changes nothing; another one is a new revision."""
    from cli.output import print_json
    from cli.service.printing import job_text
    from planner.formats.documents import format_of, parse_document, read_text

    text = read_text(job_path)
    document = parse_document(text, format=format_of(job_path, text))
    with open_client(server, key_file, timeout_s) as client:
        # What is not said is left to the service, which knows what the job has.
        body: dict[str, Any] = {"job": document}
        if tolerance is not None:
            body["tolerance"] = tolerance
        if mode is not None:
            body["mode"] = None if mode == "none" else mode
        answer = client.send("PUT", "jobs", job_id, body=body).document()
    if as_json:
        print_json(answer)
    else:
        click.echo(job_text(answer))
        if answer["operation"] is not None:
            click.echo(f"  plans are being made ready: operation {answer['operation']}")
    return ExitCode.OK


@jobs.command(short_help="Forget a job and its epochs.")
@click.argument("job_id")
@service_options
@json_option
def delete(job_id: str, server: str, key_file: Path | None, timeout_s: float, as_json: bool) -> int:
    """Delete JOB_ID with its epochs; plans made ready for it stay."""
    from cli.output import print_json

    with open_client(server, key_file, timeout_s) as client:
        client.send("DELETE", "jobs", job_id)
    if as_json:
        print_json({"deleted": job_id})
    else:
        click.echo(f"{job_id}: deleted")
    return ExitCode.OK
