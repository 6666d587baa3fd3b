"""``replan serve``: plans, jobs and epochs over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cli.errors import ExitCode
from cli.parameters import Duration, json_option

if TYPE_CHECKING:
    from api.server import Listening


@click.command(short_help="Plans, jobs and epochs over HTTP.")
@click.option("--host", help="Address to listen on; beyond loopback clients need API keys.  [127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="Port; 0 for any free one.  [8080]")
@click.option("--store", help="SQLite file, or URL of a database, that keeps everything.  [replan.db]")
@click.option(
    "--processes", "solver_processes", type=click.IntRange(1, 256), help="Solver processes.  [one a CPU less one]"
)
@click.option(
    "--max-deadline", "max_deadline_s", type=Duration(), help="Longest search that a client may ask for.  [60s]"
)
@click.option("--require-keys", is_flag=True, default=None, help="Ask for API keys on loopback too.")
@click.option("--create-key", is_flag=True, help="Make an admin key where the store has none, and print it.")
@click.option(
    "--log-level",
    type=click.Choice(["critical", "error", "warning", "info", "debug"]),
    help="How much to log on standard error.  [info]",
)
@click.option("--log-format", type=click.Choice(["json", "text"]), help="How to log.  [json]")
@json_option
def serve(create_key: bool, as_json: bool, **options: Any) -> int:
    """Serve plans, jobs and epochs over HTTP until Ctrl-C or SIGTERM; the URL is printed once it listens.

    What is not given here is taken from the environment, REPLAN_PORT and so on; docs/settings.md lists all of it.
    """
    from api.server import run
    from api.settings import Settings

    def announce(listening: Listening) -> None:
        url, key = listening.url, listening.key
        if as_json:
            from cli.output import print_json

            document = {"url": url, "openapi": f"{url}/openapi.json", "store": listening.store}
            print_json(document if key is None else document | {"key": key.text})
            return
        click.echo(f"replan serves {url} ({url}/openapi.json describes it); all is kept in {listening.store}")
        if key is not None:
            click.echo(f"admin key, shown this once: {key.text}")

    given = {name: value for name, value in options.items() if value is not None}
    run(Settings(**given), create_key=create_key, on_listen=announce)
    return ExitCode.OK
