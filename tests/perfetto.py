"""What Perfetto makes of a trace, as far as our traces have to heed it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Importer:
    """What matters of Perfetto's JSON importer.

    Times are cut to nanoseconds. Events are taken by time, and in the file's order where times are equal. A slice that overlaps
    the open one of its thread without lying in it is dropped; an arrow is tied to the slice opened last on its thread.
    """

    dropped: list[str] = field(default_factory=list)
    open: dict[tuple[int, int], list[tuple[int, str]]] = field(default_factory=dict)
    begun: dict[int, str] = field(default_factory=dict)
    arrows: list[tuple[str, str]] = field(default_factory=list)
    """Names of the slices that each arrow leads from and to."""

    slices: list[tuple[int, int, str]] = field(default_factory=list)
    """Process, thread and name of each slice that is kept, by time."""

    def take(self, events: Iterable[dict[str, Any]]) -> Importer:
        """Import a trace."""
        for event in sorted((e for e in events if e["ph"] != "M"), key=lambda e: int(e["ts"] * 1000.0)):
            stack = self.open.setdefault((event["pid"], event["tid"]), [])
            if event["ph"] == "X":
                start = int(event["ts"] * 1000.0)
                end = start + int(event["dur"] * 1000.0)
                while stack and stack[-1][0] <= start:
                    stack.pop()
                if stack and end > stack[-1][0]:
                    self.dropped.append(event["name"])
                else:
                    stack.append((end, event["name"]))
                    self.slices.append((event["pid"], event["tid"], event["name"]))
            elif event["ph"] == "s":
                self.begun[event["id"]] = stack[-1][1]
            elif event["ph"] == "f":
                self.arrows.append((self.begun[event["id"]], stack[-1][1]))
        return self
