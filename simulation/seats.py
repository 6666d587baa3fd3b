"""Instances take a job's nodes: how a trace with names of its own drives a job.

A spot market's instances come and go under ever new names, while a job has a fixed number of nodes. An instance that arrives
takes the first node of the job that nobody stands at; where all are taken it waits and takes the next one that is left. So what a
job sees is a trace of its own nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from simulation.trace import Trace, TraceEvent, TraceEventKind


def seat_instances(trace: Trace, nodes: Sequence[str]) -> Trace:
    """The trace that a job's nodes see.

    Parameters
    ----------
    trace
        A trace of instances.
    nodes
        Nodes of the job in rank order.

    Returns
    -------
    Trace
        Of the job's nodes. Those seated at the very start are up then; a seat left and taken at the same time stands in it as
        a loss and a return, since what was on it is gone.

    Examples
    --------
    With nodes a and b, instances 1, 2, 3 arriving at 0 and 1 leaving at 10: a and b are up at the start; at 10 a is lost and, as
    instance 3 waited, returns.
    """
    seat_of: dict[str, int] = {}
    free = list(range(len(nodes)))
    # Instances without a seat, in order of arrival.
    waiting: dict[str, None] = {}
    events: list[TraceEvent] = []
    initially_up: set[int] = set()

    def tell(event: TraceEvent, kind: TraceEventKind, seat: int) -> None:
        events.append(TraceEvent(seconds=event.seconds, kind=kind, node=nodes[seat]))

    for event in trace.events:
        if event.kind is TraceEventKind.ADD:
            if not free:
                waiting[event.node] = None
                continue
            seat_of[event.node] = seat = heappop(free)
            if event.seconds == trace.start_s:
                initially_up.add(seat)
            else:
                tell(event, TraceEventKind.ADD, seat)
        elif event.node in seat_of:
            seat = seat_of.pop(event.node)
            if seat in initially_up and event.seconds == trace.start_s:
                initially_up.remove(seat)
            else:
                tell(event, TraceEventKind.REMOVE, seat)
            if waiting:
                following = next(iter(waiting))
                del waiting[following]
                seat_of[following] = seat
                tell(event, TraceEventKind.ADD, seat)
            else:
                heappush(free, seat)
        else:
            del waiting[event.node]
    return Trace(
        name=trace.name,
        events=tuple(events),
        start_s=trace.start_s,
        end_s=trace.end_s,
        initially_down=tuple(node for seat, node in enumerate(nodes) if seat not in initially_up),
    )
