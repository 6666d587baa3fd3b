"""What a search may spend: seconds of the wall clock, or work counted in *work seconds*.

How far a search comes within a deadline of seconds depends on the machine and on what else runs there. Work does not: every
expensive step tells the clock what it costs, calibrated so that a work second is about a second on an idle core. A search that
asks no other clock stops at the same step every time, and so finds the same plan.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, Self


class Clock(Protocol):
    """Tells the time, and is told what work is done."""

    def now(self) -> float:
        """Seconds since some moment in the past."""
        ...

    def charge(self, seconds: float) -> None:
        """Take note of work.

        Parameters
        ----------
        seconds
            Work seconds that it takes, at least 0.
        """
        ...

    def fork(self) -> Clock:
        """A clock for one of several lanes that run at once, from now on."""
        ...

    def join(self, forks: Sequence[Clock]) -> None:
        """Go on when the last of some lanes has ended, by the clocks that :meth:`fork` gave them."""
        ...


class WallClock:
    """``time.monotonic()``: time passes by itself, whatever work is done."""

    def now(self) -> float:
        """See :meth:`Clock.now`."""
        return time.monotonic()

    def charge(self, seconds: float) -> None:
        """Nothing: what work takes is seen from the time."""

    def fork(self) -> Clock:
        """Itself: time passes for all lanes alike."""
        return self

    def join(self, forks: Sequence[Clock]) -> None:
        """Nothing: see :meth:`fork`."""


WALL_CLOCK: Final = WallClock()


class WorkClock:
    """Stands still but for the work that it is charged."""

    def __init__(self) -> None:
        self._spent_s = 0.0

    def now(self) -> float:
        """Work seconds charged so far."""
        return self._spent_s

    def charge(self, seconds: float) -> None:
        """See :meth:`Clock.charge`."""
        self._spent_s += seconds

    def fork(self) -> Clock:
        """See :meth:`Clock.fork`."""
        lane = WorkClock()
        lane.charge(self._spent_s)
        return lane

    def join(self, forks: Sequence[Clock]) -> None:
        """See :meth:`Clock.join`."""
        self._spent_s = max(self._spent_s, *(lane.now() for lane in forks))


def new_clock(*, deterministic: bool) -> Clock:
    """A clock for one search: one that counts work where it is to be reproducible."""
    return WorkClock() if deterministic else WALL_CLOCK


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """A span of a clock's time, within which a stage has to end.

    Parameters
    ----------
    clock
        Whose time it is.
    begun, ends
        Moments of that clock; a span that ends before it begins has passed.
    """

    clock: Clock
    begun: float
    ends: float

    @classmethod
    def after(cls, seconds: float, clock: Clock = WALL_CLOCK) -> Self:
        """From now on, so many seconds of a clock."""
        now = clock.now()
        return cls(clock=clock, begun=now, ends=now + seconds)

    @property
    def passed(self) -> bool:
        """Whether it is over."""
        return self.clock.now() >= self.ends

    @property
    def left_s(self) -> float:
        """Seconds left, at least 0."""
        return max(0.0, self.ends - self.clock.now())

    @property
    def spent_s(self) -> float:
        """Seconds since it began."""
        return self.clock.now() - self.begun

    @property
    def passed_share(self) -> float:
        """Share of it that is over, 0 to 1."""
        return 1.0 if self.passed else self.spent_s / (self.ends - self.begun)

    def share(self, share: float) -> Deadline:
        """Its first part.

        Parameters
        ----------
        share
            Of the whole span, spent or not: 0 to 1.
        """
        return Deadline(clock=self.clock, begun=self.begun, ends=self.begun + share * (self.ends - self.begun))

    def by(self, clock: Clock) -> Deadline:
        """The same moments of another clock, a fork of its own."""
        return Deadline(clock=clock, begun=self.begun, ends=self.ends)

    def rest(self) -> Deadline:
        """What is left of it, beginning now."""
        return Deadline(clock=self.clock, begun=self.clock.now(), ends=self.ends)
