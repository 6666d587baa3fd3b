"""Choice by expected cost: which answer loses least until the next event, when that comes at a constant rate.

:mod:`planner.ladder` weighs answers by the *mean* time ``H`` until the next failure or repair. Here that time ``h`` is random,
exponentially distributed. An answer stands still for ``K`` seconds and then trains at period ``T`` instead of ``T0``. Up to the
event it loses ``h`` where ``h <= K`` and ``K + (h - K) (1 - T0 / T)`` else, so on average

    lost = H (1 - exp(-K / H)) + (1 - T0 / T) H exp(-K / H)

(the mean of ``min(h, K)``, and of what of ``h`` lies beyond ``K``). For ``K`` far below ``H`` that is the ladder's own (37) in
``docs/model.md``; for ``K`` near ``H`` or above it is less, since an event may end the standing still.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from planner.errors import OptionError
from planner.ladder import Rung


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedRung:
    """A rung of the ladder with what it is expected to lose.

    Parameters
    ----------
    rung
        The rung; it can be taken, and its ``one_time_s`` is known.
    lost_s
        Seconds it loses on average up to the next event.
    """

    rung: Rung
    lost_s: float


def expected_lost_s(one_time_s: float, slowdown: float, horizon_s: float) -> float:
    """Mean seconds lost up to an event at an exponentially distributed time.

    Parameters
    ----------
    one_time_s
        ``K``, at least 0.
    slowdown
        ``1 - T0 / T``, 0 to 1.
    horizon_s
        ``H``, mean time until the event, above 0.

    Raises
    ------
    OptionError
        If a value is out of its range.

    Examples
    --------
    Standing still for good loses it all: ``expected_lost_s(1e9, 0, 600)`` is 600. Going on at half speed loses half.
    """
    if not one_time_s >= 0 or not 0 <= slowdown <= 1 or not 0 < horizon_s < math.inf:
        raise OptionError(
            f"one_time_s {one_time_s}, slowdown {slowdown}, horizon_s {horizon_s}; expected at least 0, 0 to 1, above 0"
        )
    beyond = math.exp(-one_time_s / horizon_s)
    return horizon_s * (1 - beyond) + slowdown * horizon_s * beyond


def event_horizon_s(between_failures_s: float, repair_s: float | None, num_down: int) -> float:
    """Mean seconds until the next failure or repair: both at constant rates, each of ``num_down`` nodes repaired on its own.

    Examples
    --------
    Failures every 3,600 s, two nodes down that take 7,200 s each: ``1 / (1 / 3600 + 2 / 7200)`` is 1,800 s.
    """
    rate = 1 / between_failures_s
    if repair_s and num_down:
        rate += num_down / repair_s
    return 1 / rate


def weigh(rungs: Sequence[Rung], fault_free_ns: int, horizon_s: float) -> tuple[ExpectedRung, ...]:
    """What each rung that can be taken is expected to lose, least first; of equals the less drastic first.

    Rungs whose standing still is not known are left out, as nothing can be expected of them.
    """
    weighed = [
        ExpectedRung(
            rung=rung,
            lost_s=expected_lost_s(rung.one_time_s, 1 - fault_free_ns / max(rung.period_ns, fault_free_ns), horizon_s),
        )
        for rung in rungs
        if rung.available and rung.period_ns and rung.one_time_s is not None
    ]
    return tuple(sorted(weighed, key=lambda expected: expected.lost_s))
