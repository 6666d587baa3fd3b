"""``replan store``: carry plans from one store to another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.errors import ExitCode
from cli.parameters import json_option, require_writable
from cli.stores import opened_store, store_option
from planner.errors import InputError, NotFoundError, ReplanError
from planner.formats.whole_file import whole_file

if TYPE_CHECKING:
    from api.store import ExportCounts

_MOST_SHOWN = 8
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
    """Write the best plan of each failure key to FILE; whole or not at all.

    Damaged plans are left out, told, and end the command with status 7, the others being written; with no plan at all FILE
    stays as it is.
    """
    require_writable(path)
    with opened_store(store, must_exist=True) as opened:
        if jobs:
            from planner.formats.job_file import load_job
            from planner.job_hash import job_sha256

            digests = tuple(job_sha256(load_job(job)) for job in jobs)
        else:
            digests = opened.template_jobs()
        with whole_file(path) as stream:
            counts = opened.export_templates(digests, stream)
            if not counts.written:
                raise _nothing_to_write(path, counts)
    _say(
        as_json,
        {
            "plans": counts.written,
            "damaged": len(counts.damaged),
            "jobs": len(set(digests)),
            "output": str(path),
        },
        f"{counts.written} plans written to {path}",
    )
    if counts.damaged:
        raise _left_out(counts)
    return ExitCode.OK


@store.command("import", short_help="Take precomputed plans from a file.")
@_file_argument
@store_option
@json_option
def import_(path: Path, store: str | None, as_json: bool) -> int:
    """Take the plans of FILE, each unless the store has a better one.

    Each plan is checked first, as `replan validate` does; nothing is taken of a file that is damaged or has one that is wrong.
    """
    from api.precompute.importing import import_checked

    try:
        stream = path.open("rb")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    with stream, opened_store(store) as opened:
        counts = import_checked(opened, stream)
    _say(
        as_json,
        {"read": counts.read, "stored": counts.stored},
        f"{counts.read} plans read from {path}, {counts.stored} of them new or better",
    )
    return ExitCode.OK


def _nothing_to_write(path: Path, counts: ExportCounts) -> ReplanError:
    if counts.damaged:
        return _left_out(counts)
    return NotFoundError(
        f"the store has no plans to write to {path}, which was left as it is",
        hint="name the store and the job file that `replan precompute` was run with",
    )


def _left_out(counts: ExportCounts) -> ReplanError:
    from api.errors import CorruptStoreError

    shown = "\n".join(counts.damaged[:_MOST_SHOWN])
    more = len(counts.damaged) - _MOST_SHOWN
    return CorruptStoreError(
        f"{len(counts.damaged)} damaged plans were left out:\n{shown}" + (f"\nand {more} more" if more > 0 else ""),
        hint="run `replan precompute` on this store, which makes them again, then export again",
    )


def _say(as_json: bool, document: dict[str, object], text: str) -> None:
    if as_json:
        from cli.output import print_json

        print_json(document)
    else:
        click.echo(text)
