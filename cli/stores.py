"""The store that a command works on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from api.store import Store

store_option = click.option(
    "--store",
    metavar="URL",
    help="SQLite file, or URL of a database, that keeps everything.  [REPLAN_STORE, else replan.db]",
)
"""Adds ``--store`` to a command."""


@contextmanager
def opened_store(store: str | None, *, must_exist: bool = False) -> Iterator[Store]:
    """Open a store; ``None`` for the one that the environment names.

    A command that only looks at a store says that it ``must_exist``: one that was just made would look like a good one.

    Raises
    ------
    StoreError, OptionError
        If it cannot be opened.
    """
    from api.settings import Settings
    from api.store import Store

    opened = Store(Settings().store if store is None else store, must_exist=must_exist)
    try:
        yield opened
    finally:
        opened.close()
