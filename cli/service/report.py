"""``replan report``: tell a service what failed, came back or is slow."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.errors import ExitCode
from cli.parameters import Duration, json_option
from cli.service.options import open_client, service_options
from planner.errors import DocumentLimitError, InputError

if TYPE_CHECKING:
    from api.adapters.sources import Rules
    from cli.service.events import Reported

_VERDICTS = click.Choice(["keep", "failed"])
_KEY = re.compile(r"[\x21-\x7e]{1,256}")


def _check_key(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and _KEY.fullmatch(value) is None:
        raise click.BadParameter(f"{value!r} is no key; expected 1 to 256 visible ASCII characters without blanks")
    return value


@click.command(short_help="Tell a service what failed, came back or is slow.")
@click.argument("job_id")
@click.argument("report_file", metavar="[FILE]", type=click.Path(path_type=Path, allow_dash=True), required=False)
@click.option("--failed", multiple=True, metavar="LIST", help="Hostlist, rank:17 or worker:1/2 that is down.")
@click.option("--recovered", multiple=True, metavar="LIST", help="What is back, whole.")
@click.option("--degraded", multiple=True, metavar="LIST=SPEED", help="What is slow, with its speed: gpu0007=0.7.")
@click.option(
    "--from",
    "source",
    type=click.Choice(["slurm", "kubernetes", "torchft", "nvrx"]),
    help="Report what is new in FILE (- or nothing: standard input), made by this system.",
)
@click.option("--expected-epoch", type=click.IntRange(min=1), help="Only report while this epoch is current.")
@click.option("--iteration", type=click.IntRange(min=0), help="Iteration during which it happened.")
@click.option(
    "--idempotency-key",
    callback=_check_key,
    help="Key of this report; the same again reports nothing twice.  [a new one]",
)
@click.option("--silent-nodes", type=_VERDICTS, help="What nodes are that do not answer.  [by source]")
@click.option("--missing-nodes", type=_VERDICTS, help="What nodes are that FILE does not name.  [by source]")
@click.option("--settle", type=Duration(), help="How long a node has to be ready to be back (kubernetes).  [60s]")
@click.option("--failing-condition", multiple=True, help="Further condition that is a failure (kubernetes).")
@click.option("--no-recoveries", is_flag=True, help="Report failures of FILE only.")
@click.option("--dry-run", is_flag=True, help="Only say what would be reported from FILE.")
@service_options
@json_option
def report(
    job_id: str,
    report_file: Path | None,
    source: str | None,
    server: str,
    key_file: Path | None,
    timeout_s: float,
    as_json: bool,
    **options: Any,
) -> int:
    """Report to the service what happened to JOB_ID's nodes, and print the epoch that it made of it.

    Either name what happened with --failed, --recovered or --degraded, or let --from find what is new in the report of another
    system: run it as often as you like, the same report again is no news.
    """
    from cli.service.events import event_of, post_event, post_report

    extra = {} if options["iteration"] is None else {"iteration": options["iteration"]}
    expected_epoch = options["expected_epoch"]
    reported: tuple[Reported, ...]
    if source is None:
        _refuse_without_source(report_file, options)
        event = event_of(*_named(options)) | extra
        with open_client(server, key_file, timeout_s) as client:
            key = options["idempotency_key"]
            reported = (post_event(client, job_id, event, expected_epoch=expected_epoch, idempotency_key=key),)
    else:
        if options["failed"] or options["recovered"] or options["degraded"] or options["idempotency_key"]:
            raise click.UsageError("--from takes no --failed, --recovered, --degraded or --idempotency-key")
        from api.adapters.sources import Source, max_bytes, report_events

        kind, rules = Source(source), _rules(options)
        text = _read_report(report_file, max_bytes(kind))
        now = datetime.now(UTC)
        with open_client(server, key_file, timeout_s) as client:
            reported = post_report(
                client,
                job_id,
                lambda job, state: report_events(kind, text, job, state, now=now, rules=rules),
                extra=extra,
                expected_epoch=expected_epoch,
                is_dry_run=options["dry_run"],
            )
    _print(job_id, reported, as_json=as_json, is_dry_run=options["dry_run"])
    return ExitCode.OK


def _refuse_without_source(report_file: Path | None, options: dict[str, Any]) -> None:
    names = ("silent_nodes", "missing_nodes", "settle", "failing_condition", "no_recoveries", "dry_run")
    given = ["FILE"] if report_file is not None else []
    given += [f"--{name.replace('_', '-')}" for name in names if options[name]]
    if given:
        raise click.UsageError(f"{given[0]} needs --from")


def _named(options: dict[str, Any]) -> tuple[str, list[str], float | None]:
    """Kind, targets and speed of the one event that was named."""
    given = [name for name in ("failed", "recovered", "degraded") if options[name]]
    if len(given) != 1:
        raise click.UsageError("expected one of --failed, --recovered, --degraded and --from")
    if given != ["degraded"]:
        return f"node_{given[0]}", list(options[given[0]]), None
    targets, speeds = [], set()
    for text in options["degraded"]:
        target, equals, factor = text.rpartition("=")
        if not equals or not target:
            raise click.BadParameter(
                f"{text!r} has no speed; expected one such as gpu0007=0.7", param_hint="--degraded"
            )
        targets.append(target)
        speeds.add(factor)
    if len(speeds) > 1:
        raise click.UsageError("a report has one speed; report what has another one by itself")
    try:
        speed = float(speeds.pop())
    except ValueError:
        speed = 0.0
    if not 0 < speed < 1:
        raise click.BadParameter("a speed is a number above 0 and below 1, such as 0.7", param_hint="--degraded")
    return "node_degraded", targets, speed


def _rules(options: dict[str, Any]) -> Rules:
    from api.adapters.sources import Rules
    from api.adapters.verdicts import Verdict

    silent, missing = options["silent_nodes"], options["missing_nodes"]
    return Rules(
        silent=None if silent is None else Verdict(silent),
        missing=None if missing is None else Verdict(missing),
        settle_s=options["settle"],
        failing_conditions=options["failing_condition"],
        recoveries=not options["no_recoveries"],
    )


def _read_report(path: Path | None, max_bytes: int) -> str:
    from planner.formats.documents import read_text

    if path is not None and str(path) != "-":
        return read_text(path, max_bytes=max_bytes, error=InputError)
    data = sys.stdin.buffer.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise DocumentLimitError(f"standard input has more than {max_bytes} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"standard input is not UTF-8: byte {error.start} is {data[error.start]:#04x}") from error


def _print(job_id: str, reported: tuple[Reported, ...], *, as_json: bool, is_dry_run: bool) -> None:
    from cli.output import print_json
    from cli.service.printing import print_epoch

    if as_json:
        epoch = reported[-1].epoch if reported and not is_dry_run else None
        print_json(
            {"job": job_id, "reported": [item.event for item in reported], "dry_run": is_dry_run, "epoch": epoch}
        )
        return
    if not reported:
        click.echo(f"{job_id}: nothing new")
    for item in reported:
        event = item.event
        targets = [*_list(event["nodes"]), *(f"rank:{rank}" for rank in event["ranks"])]
        targets += [f"worker:{worker}" for worker in event["workers"]]
        said = f"{event['kind'].replace('_', ' ')} {','.join(targets)}"
        if is_dry_run:
            click.echo(f"{job_id}: would report {said}")
        else:
            print_epoch(item.epoch, f"{job_id}: epoch {item.epoch['epoch']}, {said}")


def _list(nodes: str | list[str] | None) -> list[str]:
    return [nodes] if isinstance(nodes, str) else nodes or []
