"""``replan serve``: plans and programs over HTTP."""

from __future__ import annotations

from pathlib import Path

import click

from cli.errors import ExitCode
from cli.parameters import Duration, json_option


@click.command(short_help="Plans and programs over HTTP.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; there is no login.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="Port; 0 for any free one."
)
@click.option(
    "--store",
    "store_path",
    type=click.Path(path_type=Path),
    default=Path("replan.db"),
    show_default=True,
    help="SQLite file that keeps the plans.",
)
@click.option("--processes", type=click.IntRange(1, 256), help="Solver processes; default: one a CPU less one.")
@click.option(
    "--max-deadline",
    type=Duration(),
    default="60s",
    show_default=True,
    help="Longest search that a client may ask for.",
)
@click.option(
    "--log-level",
    type=click.Choice(["critical", "error", "warning", "info", "debug"]),
    default="info",
    show_default=True,
    help="How much to log on standard error.",
)
@json_option
def serve(
    host: str,
    port: int,
    store_path: Path,
    processes: int | None,
    max_deadline: float,
    log_level: str,
    as_json: bool,
) -> int:
    """Serve plans and programs over HTTP until Ctrl-C or SIGTERM; the URL is printed once it listens."""
    from api.server import run

    def announce(url: str) -> None:
        if as_json:
            from cli.output import print_json

            print_json({"url": url, "openapi": f"{url}/openapi.json", "store": str(store_path)})
        else:
            click.echo(f"replan serves {url} ({url}/openapi.json describes it); plans are kept in {store_path}")

    run(
        host,
        port,
        store_path,
        solver_processes=processes,
        max_deadline_s=max_deadline,
        log_level=log_level,
        on_listen=announce,
    )
    return ExitCode.OK
