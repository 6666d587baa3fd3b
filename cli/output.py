"""Printing: JSON for machines, aligned text for people, colours on a terminal only."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PLAIN_WIDTH = 120
"""Columns used where the output is no terminal."""


def print_json(document: Any) -> None:
    """Print one JSON document on standard output."""
    click.echo(json.dumps(document, indent=2, allow_nan=False))


def make_console() -> Console:
    """A console on standard output: colours and the real width on a terminal, plain text elsewhere."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else PLAIN_WIDTH
    return Console(file=sys.stdout, width=width, highlight=False, soft_wrap=False, emoji=False, markup=False)


def print_facts(console: Console, facts: list[tuple[str, str]]) -> None:
    """Print names and values in two columns; values wrap within theirs."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(f"  {name}", value)
    _print(console, table)


def print_table(console: Console, columns: list[str], rows: list[list[str]]) -> None:
    """Print rows under headings, numbers to the right."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for index, name in enumerate(columns):
        numeric = all(not row[index] or row[index][0].isdigit() for row in rows)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    _print(console, table)


def _print(console: Console, table: Table) -> None:
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as captured:
        console.print(table)
    # Tables pad every line to their width, which only files and pipes would keep.
    click.echo("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()), nl=False)


def duration_text(value_ns: int) -> str:
    """A duration in the unit that suits it, to six digits.

    Examples
    --------
    >>> duration_text(18_522_000)
    '18.522 ms'
    """
    for unit, size in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if value_ns >= size:
            return f"{value_ns / size:.6g} {unit}"
    return f"{value_ns} ns"


def bytes_text(value: int) -> str:
    """Bytes in the binary unit that suits them.

    Examples
    --------
    >>> bytes_text(1536)
    '1.5 KiB'
    """
    for unit, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if value >= size:
            return f"{value / size:.4g} {unit}"
    return f"{value} B"


def percent_text(share: float) -> str:
    """A share as a percentage: two digits after the point, more where it is small.

    Examples
    --------
    >>> percent_text(0.0035)
    '0.35 %'
    """
    return f"{100 * share:.2g} %" if 0 < share < 0.0001 else f"{100 * share:.2f} %"
