"""How many requests a client may send: the generic cell rate algorithm, one number a client.

It counts on the monotonic clock, so setting the machine's clock neither locks clients out nor lets them through, and what
it remembers is bounded.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

_WINDOW_S = 60.0


class RateLimiter:
    """At most ``per_minute`` requests in a row, after which they come back evenly over a minute.

    Each client has one number: when the requests it has sent would have been due at an even pace. It may run ahead of
    now by one minute. Of ``per_minute = 60`` a client may send 60 at once, and then one each second.

    Parameters
    ----------
    per_minute
        Requests a minute, 0 for no limit.
    capacity
        Most clients remembered; the ones longest not seen go first.
    clock
        Seconds that never go back.
    """

    def __init__(self, per_minute: int, *, capacity: int = 65_536, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval_s = _WINDOW_S / per_minute if per_minute else 0.0
        self._capacity = capacity
        self._clock = clock
        self._due: OrderedDict[str, float] = OrderedDict()

    def wait_s(self, client: str) -> float:
        """Count a request; 0 where it may pass, else the seconds after which the next may, and this one is not counted."""
        if not self._interval_s:
            return 0.0
        now = self._clock()
        due = max(self._due.get(client, now), now) + self._interval_s
        ahead = due - now - _WINDOW_S
        # Additions round, so that the last request of a full minute may seem a little ahead.
        if ahead > 1e-6:
            return ahead
        self._due[client] = due
        self._due.move_to_end(client)
        if len(self._due) > self._capacity:
            self._due.popitem(last=False)
        return 0.0

    def is_exhausted(self, client: str) -> bool:
        """Whether the next request would be refused; counts nothing."""
        due = self._due.get(client)
        return due is not None and due + self._interval_s - self._clock() - _WINDOW_S > 1e-6
