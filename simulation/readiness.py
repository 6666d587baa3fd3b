"""Nodes that return take time until they can train: processes start, state is copied.

Traces say when a node is there. Policies take it in at once, but for those whose sources give a time. This makes a trace of when
nodes are *ready* instead, the same for every policy.
"""

from __future__ import annotations

from dataclasses import replace

from simulation.trace import Trace, TraceEvent, TraceEventKind


def ready_later(trace: Trace, seconds: float) -> Trace:
    """The trace with each return some seconds later; a node that is lost before that was never back.

    Parameters
    ----------
    trace
        Of a job's nodes.
    seconds
        From a return until the node can train, at least 0.

    Examples
    --------
    With 100 s, a node lost at 10 and back at 50 is back at 150; where it is lost again at 120, it is down all the time.
    """
    events: list[TraceEvent] = []
    # When nodes that have returned are ready.
    starting: dict[str, float] = {}
    for event in trace.events:
        if event.kind is TraceEventKind.ADD:
            starting[event.node] = event.seconds + seconds
            continue
        ready_s = starting.pop(event.node, None)
        if ready_s is not None and ready_s > event.seconds:
            continue
        if ready_s is not None:
            events.append(TraceEvent(seconds=ready_s, kind=TraceEventKind.ADD, node=event.node))
        events.append(event)
    events.extend(
        TraceEvent(seconds=ready_s, kind=TraceEventKind.ADD, node=node)
        for node, ready_s in starting.items()
        if ready_s <= trace.end_s
    )
    # Sorting keeps the order of events at the same time, in which a node's return stands before its next loss.
    return replace(trace, events=tuple(sorted(events, key=lambda event: event.seconds)))
