"""Slurm hostlists: ``gpu[0007,0100-0103]`` is the everyday way to name nodes.

A hostlist is a comma-separated list of names; a name may hold groups in square brackets, each a comma-separated list of
numbers and ranges. A range whose first number is written with leading zeros keeps its width: ``n[08-10]`` is ``n08``,
``n09``, ``n10``. Reading is strict: no blanks, no empty parts, no falling ranges, and nothing is expanded before its size
is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import product

from planner.errors import HostlistError

MAX_HOSTS = 2**18
"""Most names one hostlist may stand for, 262,144."""

MAX_HOSTLIST_CHARACTERS = 2**22
"""Longest hostlist taken, 4 MiB."""

_PART = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9,-]*\])+")
_PIECE = re.compile(r"\[([0-9,-]*)\]|([A-Za-z0-9._-]+)")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_LAST_NUMBER = re.compile(r"(.*?)([0-9]{1,18})([^0-9]*)", re.DOTALL)
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def expand_hostlist(text: str, *, max_hosts: int = MAX_HOSTS) -> tuple[str, ...]:
    """Names a hostlist stands for, in the order written; a name written twice comes twice.

    Parameters
    ----------
    text
        The hostlist.
    max_hosts
        Most names it may stand for.

    Raises
    ------
    HostlistError
        If the text is malformed, too long, or stands for more than ``max_hosts`` names.

    Examples
    --------
    >>> expand_hostlist("gpu[0007,0100-0101],login")
    ('gpu0007', 'gpu0100', 'gpu0101', 'login')
    """
    if len(text) > MAX_HOSTLIST_CHARACTERS:
        raise HostlistError(f"a hostlist has {len(text)} characters; expected at most {MAX_HOSTLIST_CHARACTERS}")
    names: list[str] = []
    for part in _split_parts(text):
        groups = _groups(part, text)
        total = 1
        for group in groups:
            total *= sum(high - low + 1 for low, high, _ in group) if not isinstance(group, str) else 1
        if len(names) + total > max_hosts:
            raise HostlistError(f"hostlist {_short(text)} stands for more than {max_hosts} nodes")
        if len(groups) == 1 and isinstance(groups[0], str):
            names.append(part)
            continue
        choices = [
            (group,)
            if isinstance(group, str)
            else [str(number).zfill(width) for low, high, width in group for number in range(low, high + 1)]
            for group in groups
        ]
        names.extend("".join(pieces) for pieces in product(*choices))
    return tuple(names)


def compress_hostlist(names: Iterable[str]) -> str:
    """Shortest hostlist of the kind ``prefix[ranges]suffix`` that expands to exactly these names in this order.

    Neighbours in the sequence that differ only in their last number share a bracket; sort the names first to get the
    shortest text where order does not matter.

    Raises
    ------
    HostlistError
        If there is no name, or one holds a character that a node name cannot have.

    Examples
    --------
    >>> compress_hostlist(["gpu0007", "gpu0100", "gpu0101", "login"])
    'gpu[0007,0100-0101],login'
    """
    parts: list[str] = []
    frame: tuple[str, str] | None = None
    ranges: list[tuple[str, str]] = []

    def close() -> None:
        if not ranges or frame is None:
            return
        inside = ",".join(low if low == high else f"{low}-{high}" for low, high in ranges)
        bracket = inside if len(ranges) == 1 and ranges[0][0] == ranges[0][1] else f"[{inside}]"
        parts.append(f"{frame[0]}{bracket}{frame[1]}")
        ranges.clear()

    for name in names:
        if _NAME.fullmatch(name) is None:
            raise HostlistError(
                f"node name {_short(name)} cannot be written; expected letters, digits, '.', '_' and '-'"
            )
        match = _LAST_NUMBER.fullmatch(name)
        if match is None:
            close()
            frame = None
            parts.append(name)
            continue
        prefix, number, suffix = match.groups()
        if (prefix, suffix) != frame:
            close()
            frame = (prefix, suffix)
        if ranges and number == str(int(ranges[-1][1]) + 1).zfill(len(ranges[-1][0])):
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    close()
    if not parts:
        raise HostlistError("an empty list of nodes has no hostlist; expected at least one name")
    return ",".join(parts)


def _split_parts(text: str) -> list[str]:
    """Split at the commas outside brackets."""
    parts = []
    position = 0
    while True:
        match = _PART.match(text, position)
        if match is None:
            raise _malformed(text, position)
        parts.append(match[0])
        position = match.end()
        if position == len(text):
            return parts
        if text[position] != ",":
            raise _malformed(text, position)
        position += 1


def _groups(part: str, text: str) -> list[str | list[tuple[int, int, int]]]:
    """Pieces of one part: a literal, or the ranges of a bracket as (low, high, width)."""
    groups: list[str | list[tuple[int, int, int]]] = []
    for match in _PIECE.finditer(part):
        if match[2] is not None:
            groups.append(match[2])
        else:
            groups.append([_read_range(word, text) for word in match[1].split(",")])
    return groups


def _read_range(word: str, text: str) -> tuple[int, int, int]:
    match = _RANGE.fullmatch(word)
    if match is None:
        raise HostlistError(
            f"hostlist {_short(text)}: {_short(word)} in brackets is no number and no range such as 08-12"
        )
    low, high = match[1], match[2] if match[2] is not None else match[1]
    if int(high) < int(low):
        raise HostlistError(f"hostlist {_short(text)}: range {word} falls; expected the smaller number first")
    if len(high) < len(low) or (high[0] == "0" and len(high) > 1 and len(high) != len(low)):
        raise HostlistError(
            f"hostlist {_short(text)}: range {word} mixes widths; write both numbers with the same width"
        )
    return int(low), int(high), len(low)


def _malformed(text: str, position: int) -> HostlistError:
    found = f"{text[position]!r}" if position < len(text) else "the end"
    return HostlistError(
        f"hostlist {_short(text)} is malformed at character {position + 1}: found {found}",
        hint="expected names such as gpu[0007,0100-0103], separated by commas, without blanks",
    )


def _short(text: str) -> str:
    return repr(text) if len(text) <= 80 else f"{text[:77]!r}..."
