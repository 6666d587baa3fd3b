"""A trace: when which node left and came back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from simulation.errors import TraceError

MAX_EVENTS = 100_000
"""Most events of a trace. Every policy is played through each; a year of the largest job published has some thousands."""


class TraceEventKind(StrEnum):
    """What happened to a node; the words of the file."""

    ADD = "add"
    """It is there, again or for the first time."""
    REMOVE = "remove"
    """It is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceEvent:
    """One row of a trace.

    Parameters
    ----------
    seconds
        When, at least 0.
    kind
        Loss or return.
    node
        Name of the node; in a trace of a job also ``rank:17``, a single GPU by its global rank.
    """

    seconds: float
    kind: TraceEventKind
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Events in order of time, and how long was watched.

    Parameters
    ----------
    name
        What tables call it.
    events
        In order of time.
    start_s, end_s
        What was watched: training begins at ``start_s`` and is measured until ``end_s``, above it.
    initially_down
        Nodes that are not there at the start.

    Raises
    ------
    TraceError
        If the end is not after the start, an event lies outside, or there are more than :data:`MAX_EVENTS`.
    """

    name: str
    events: tuple[TraceEvent, ...]
    start_s: float
    end_s: float
    initially_down: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.end_s > self.start_s >= 0:
            raise TraceError(
                f"trace {self.name} is watched from {self.start_s:g} s to {self.end_s:g} s; expected an end after the start",
                hint="give the time to simulate with --duration",
            )
        if len(self.events) > MAX_EVENTS:
            raise TraceError(f"trace {self.name} has more than {MAX_EVENTS} events, the most that are simulated")
        for event in self.events:
            if not self.start_s <= event.seconds <= self.end_s:
                raise TraceError(f"trace {self.name} has an event at {event.seconds:g} s, outside what was watched")

    @property
    def duration_s(self) -> float:
        """Seconds watched."""
        return self.end_s - self.start_s

    def moments(self) -> Iterator[tuple[float, tuple[TraceEvent, ...]]]:
        """Events that happen at the same time, together."""
        for seconds, events in groupby(self.events, key=lambda event: event.seconds):
            yield seconds, tuple(events)
