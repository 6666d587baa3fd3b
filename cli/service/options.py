"""Options of every command that talks to a service: where it is and with which key."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cli.parameters import Duration
from planner.errors import InputError

if TYPE_CHECKING:
    from cli.service.client import ServiceClient

_Command = TypeVar("_Command", bound=Callable[..., Any])

_MAX_KEY_FILE_BYTES = 4096
_KEY = re.compile(r"[\x21-\x7e]{1,512}")


def service_options(command: _Command) -> _Command:
    """Add ``--server``, ``--key-file`` and ``--timeout``; the command gets ``server``, ``key_file`` and ``timeout_s``."""
    for option in (
        click.option(
            "--timeout",
            "timeout_s",
            type=Duration(),
            default="30s",
            show_default=True,
            help="Time for each request, tries included.",
        ),
        click.option(
            "--key-file",
            type=click.Path(path_type=Path),
            envvar="REPLAN_KEY_FILE",
            show_envvar=True,
            help="File that holds the API key.",
        ),
        click.option(
            "--server",
            default="http://127.0.0.1:8080",
            show_default=True,
            envvar="REPLAN_SERVER",
            show_envvar=True,
            help="URL of the service.",
        ),
    ):
        command = option(command)
    return command


def open_client(server: str, key_file: Path | None, timeout_s: float) -> ServiceClient:
    """A client of the service that the options name.

    Raises
    ------
    click.BadParameter
        If the URL is none.
    InputError
        If the file cannot be read or holds no key.
    """
    from cli.service.client import ServiceClient, parse_address

    try:
        address = parse_address(server)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--server") from error
    return ServiceClient(address, None if key_file is None else _read_key(key_file), timeout_s)


def _read_key(path: Path) -> str:
    from planner.formats.documents import read_text

    key = read_text(path, max_bytes=_MAX_KEY_FILE_BYTES, error=InputError).strip()
    if _KEY.fullmatch(key) is None:
        # What stands there may be a secret all the same, so it is not shown.
        raise InputError(f"{path} holds no API key; expected one line such as rpk_...")
    return key
