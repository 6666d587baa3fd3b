"""Pieces of a page: its head, tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_NOTE = "This page is written by `python -m cli.reference` from the code. Change the code, not the page."


def head(title: str, *paragraphs: str) -> str:
    """Title of a page, what it is, and that nobody edits it."""
    return "\n\n".join([f"# {title}", *paragraphs, _NOTE]) + "\n"


def table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; bars within its cells are escaped, line breaks become spaces."""
    lines = [names, ["---"] * len(names), *([cell(text) for text in row] for row in rows)]
    return "\n".join("|" + "|".join(line) + "|" if line[0] == "---" else f"| {' | '.join(line)} |" for line in lines)


def cell(text: str) -> str:
    """A text as it may stand in a table; ``<name>`` would be taken for HTML."""
    return re.sub(r"<(?=[a-z/])", "&lt;", " ".join(text.split()).replace("|", "\\|"))


def code(text: str) -> str:
    """A text as code; nothing for an empty one."""
    return f"`{text}`" if text else ""


def plain(text: str | None) -> str:
    """First paragraph of a docstring in Markdown: its double backticks are single ones here."""
    return paragraphs(text).partition("\n\n")[0]


def paragraphs(text: str | None) -> str:
    """All paragraphs of a docstring in Markdown."""
    return "\n\n".join(" ".join(part.split()) for part in (text or "").strip().split("\n\n")).replace("``", "`")
