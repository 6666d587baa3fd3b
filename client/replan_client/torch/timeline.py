"""What one worker did when: the executed side of what a plan says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from replan_client.operation import Operation, Worker


class Activity(StrEnum):
    """What a stretch of time was spent on."""

    COMPUTE = "compute"
    """An operation."""
    RECEIVE = "receive"
    """Waiting for a message, with nothing to compute before it is there."""
    SEND = "send"
    """Handing a message over; it travels on beside what is computed next."""
    FLUSH = "flush"
    """Waiting, before the first all-reduce, until all that was sent is out."""
    ALL_REDUCE = "all_reduce"
    """Summing a stage's gradients, waiting for peers included."""
    BARRIER = "barrier"
    """Waiting for all workers."""
    STEP = "step"
    """Stepping a stage's parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEvent:
    """One stretch of time of one worker.

    Parameters
    ----------
    activity
        What was done.
    iteration
        In which iteration.
    start_ns, end_ns
        By the monotonic clock of the worker's machine.
    operation
        The operation that ran, or the message by the operation that needs it.
    peer
        The other side of a message.
    stage
        Stage of an all-reduce or a step.
    """

    activity: Activity
    iteration: int
    start_ns: int
    end_ns: int
    operation: Operation | None = None
    peer: Worker | None = None
    stage: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """What one worker did over some iterations.

    Parameters
    ----------
    worker
        Its position.
    events
        In the order of their ends; those of several iterations one after the other.
    origin_ns
        By the worker's monotonic clock, a moment that all workers have in common, such as the end of a barrier
        (:attr:`replan_client.torch.links.Links.formed_ns`). 0 where all run on one machine and so have one clock.
    """

    worker: Worker
    events: tuple[TimelineEvent, ...]
    origin_ns: int = 0
