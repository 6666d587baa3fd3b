"""Every command of ``replan`` with all of its options."""

from __future__ import annotations

from collections.abc import Iterator

import click

from cli.main import cli
from cli.reference.markdown import code, head, paragraphs, table

_INTRODUCTION = (
    "Every command of `replan` with every option, as `replan COMMAND --help` tells them. Sessions, outputs and the meaning of "
    "each exit status are in [cli.md](../cli.md)."
)
_EVERYWHERE = frozenset({"as_json", "help"})


def commands_page() -> str:
    """Text of the page."""
    sections = [_section(path, command) for path, command in commands(cli, ("replan",))]
    return "\n".join([head("Commands", _INTRODUCTION, "Every command takes `--help`.", _json_line()), *sections])


def commands(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Each command that does something, with the words that call it, in alphabetical order."""
    if isinstance(command, click.Group):
        for name in sorted(command.commands):
            yield from commands(command.commands[name], (*path, name))
    else:
        yield path, command


def _json_line() -> str:
    without = [
        code(" ".join(path))
        for path, command in commands(cli, ("replan",))
        if all(parameter.name != "as_json" for parameter in command.params)
    ]
    exceptions = f", but for {', '.join(without)}" if without else ""
    return f"Every command takes `--json`, which makes it print one JSON object for machines{exceptions}."


def _section(path: tuple[str, ...], command: click.Command) -> str:
    context = click.Context(command, info_name=" ".join(path))
    usage = " ".join([*path, *command.collect_usage_pieces(context)])
    options = [
        (code(record[0]), record[1])
        for parameter in command.params
        if isinstance(parameter, click.Option) and parameter.name not in _EVERYWHERE
        if (record := parameter.get_help_record(context)) is not None
    ]
    text = f"## {' '.join(path)}\n\n`{usage}`\n\n{paragraphs(command.help)}\n"
    return f"{text}\n{table(('option', 'what it does'), options)}\n" if options else text
