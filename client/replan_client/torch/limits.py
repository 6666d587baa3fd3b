"""How long training waits for what, in seconds."""

from __future__ import annotations

from dataclasses import dataclass, fields

from replan_client.errors import ArgumentError

_FULL_SPEED_WORKERS = 64
_LOOKS = 8
"""Looks at a heartbeat within its time-out: one that is looked at less than twice starts anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Times of training through failures, each above 0. All workers of a job take the same.

    Parameters
    ----------
    heartbeat_interval_s
        From one sign of life of a process to the next.
    heartbeat_timeout_s
        Silence after which a process counts as dead. One that computes for long is not silent; one that is stopped, killed or
        cut off from the store is.
    start_timeout_s
        The same for a process that has never given a sign: it may be starting.
    link_timeout_s
        Wait for any one message or sum of an iteration, and for connections, above the longest that healthy ones take, also
        while somebody writes a checkpoint in ``on_iteration``. A process that dies hangs up and is noticed at once; this finds
        those that are stopped, or cut off.
    join_timeout_s
        Wait for processes that live, and yet do not come to a new generation; above two iterations and the link timeout. Those
        late are reported as failed.
    registration_timeout_s
        Wait for the job to be registered: workers may be started before it is.
    plan_timeout_s
        Wait for a plan where an epoch has none, and for the first epoch of a job.
    poll_s
        From one look into the store to the next while waiting; above 64 workers longer by their number, so that the store has no
        more to answer.

    Raises
    ------
    ArgumentError
        If a time is not above 0, or the heartbeat's timeout is below twice its interval.
    """

    heartbeat_interval_s: float = 1.0
    heartbeat_timeout_s: float = 15.0
    start_timeout_s: float = 600.0
    link_timeout_s: float = 60.0
    join_timeout_s: float = 900.0
    registration_timeout_s: float = 120.0
    plan_timeout_s: float = 3600.0
    poll_s: float = 0.02

    @property
    def look_s(self) -> float:
        """Seconds between two looks at the heartbeats of those who are waited for."""
        return self.heartbeat_timeout_s / _LOOKS

    def pause_s(self, num_workers: int) -> float:
        """Seconds between two looks into the store of each of so many who wait."""
        return self.poll_s * max(1.0, num_workers / _FULL_SPEED_WORKERS)

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not 0 < value < float("inf"):
                raise ArgumentError(f"{field.name} is {value}; expected a finite number of seconds above 0")
        if self.heartbeat_timeout_s < 2 * self.heartbeat_interval_s:
            raise ArgumentError(
                f"heartbeat_timeout_s is {self.heartbeat_timeout_s}; expected at least twice heartbeat_interval_s, "
                f"{self.heartbeat_interval_s}"
            )
