"""Which node of the job a foreign host name stands for.

Names are compared without regard to case. A name with a domain, ``gpu0007.cluster.example``, and one without, ``gpu0007``,
are the same node; two names with different domains are not. IPv4 addresses are never cut at a dot.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from api.adapters.errors import ReportError

_IPV4 = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}")
_NUMBERED = re.compile(r"(.*?)([0-9]{1,18})")


class NodeNames:
    """Finds the nodes of a job by foreign names.

    Parameters
    ----------
    nodes
        Names of the job's nodes.
    padded
        Whether the source writes leading zeros of its own: ``n[01-10]`` where the nodes are ``n1`` to ``n10``. A number at the
        end of a name then counts by its value, where no node has the name as it stands.
    """

    def __init__(self, nodes: Iterable[str], *, padded: bool = False) -> None:
        self._exact: set[str] = set()
        self._by_full: dict[str, list[str]] = defaultdict(list)
        self._by_short: dict[str, list[str]] = defaultdict(list)
        self._by_number: dict[tuple[str, int], list[str]] = defaultdict(list)
        for node in nodes:
            name = node.lower()
            self._exact.add(node)
            self._by_full[name].append(node)
            self._by_short[_short(name)].append(node)
            if padded and (number := _number(name)) is not None:
                self._by_number[number].append(node)

    def find(self, name: str, where: str) -> str | None:
        """Node of the job that a foreign name stands for; ``None`` where it is none of them.

        Raises
        ------
        ReportError
            If it may be several.

        Examples
        --------
        >>> NodeNames(["gpu7", "login.site.example"]).find("GPU7.site.example", "line 1")
        'gpu7'
        """
        if name in self._exact:
            return name
        lower = name.lower()
        found = self._by_full.get(lower, [])
        if not found:
            # With two domains the full names have spoken already.
            found = [
                node
                for node in self._by_short.get(_short(lower), [])
                if _short(lower) == lower or _short(node.lower()) == node.lower()
            ]
        if not found and (number := _number(lower)) is not None:
            found = self._by_number.get(number, [])
        if len(found) > 1:
            raise ReportError(
                f"{where}: name {name[:80]!r} may be {found[0]} or {found[1]}; expected one node of the job"
            )
        return found[0] if found else None


def _short(name: str) -> str:
    return name if _IPV4.fullmatch(name) else name.partition(".")[0]


def _number(name: str) -> tuple[str, int] | None:
    """Beginning and number at the end of a name without its domain."""
    match = _NUMBERED.fullmatch(_short(name))
    return (match[1], int(match[2])) if match is not None else None
