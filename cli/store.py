"""``replan store``: carry plans from one store to another."""

from __future__ import annotations

from pathlib import Path

import click

from cli.errors import ExitCode
from cli.parameters import json_option, require_writable
from cli.stores import opened_store, store_option
from planner.errors import InputError
from planner.formats.whole_file import whole_file

_file_argument = click.argument("path", metavar="FILE", type=click.Path(path_type=Path))


@click.group(short_help="Carry precomputed plans between stores.")
def store() -> None:
    """Carry precomputed plans from one store to another: precompute where CPUs are, serve where the training runs."""


@store.command("export", short_help="Write precomputed plans to a file.")
@_file_argument
@store_option
@click.option(
    "--job",
    "jobs",
    multiple=True,
    metavar="JOB",
    type=click.Path(path_type=Path),
    help="Only plans of this job file. May be repeated.",
)
@json_option
def export(path: Path, store: str | None, jobs: tuple[Path, ...], as_json: bool) -> int:
    """Write the best plan of each failure key to FILE; whole or not at all."""
    require_writable(path)
    with opened_store(store) as opened:
        if jobs:
            from planner.formats.job_file import load_job
            from planner.job_hash import job_sha256

            digests = tuple(job_sha256(load_job(job)) for job in jobs)
        else:
            digests = opened.template_jobs()
        with whole_file(path) as stream:
            count = opened.export_templates(digests, stream)
    _say(as_json, {"plans": count, "jobs": len(set(digests)), "output": str(path)}, f"{count} plans written to {path}")
    return ExitCode.OK


@store.command("import", short_help="Take precomputed plans from a file.")
@_file_argument
@store_option
@json_option
def import_(path: Path, store: str | None, as_json: bool) -> int:
    """Take the plans of FILE, each unless the store has a better one; nothing is taken of a damaged file."""
    try:
        stream = path.open("rb")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    with stream, opened_store(store) as opened:
        counts = opened.import_templates(stream)
    _say(
        as_json,
        {"read": counts.read, "stored": counts.stored},
        f"{counts.read} plans read from {path}, {counts.stored} of them new or better",
    )
    return ExitCode.OK


def _say(as_json: bool, document: dict[str, object], text: str) -> None:
    if as_json:
        from cli.output import print_json

        print_json(document)
    else:
        click.echo(text)
