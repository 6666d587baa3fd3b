"""A lower bound on the period, and where it came from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """No schedule of the problem has a smaller period.

    Parameters
    ----------
    name
        Family: ``work``, ``warm_up``, ``tail``, ``memory_area``, ``across_slots``, ``late_gradients``, ``makespan`` or ``ranks``;
        derived in ``docs/model.md``, section 6.
    value_ns
        Nanoseconds. Periods are integers, so a rational bound is rounded up.
    slot
        Slot whose work the argument counts.
    detail
        One line for people, with the numbers that made the value.
    """

    name: str
    value_ns: int
    slot: int | None
    detail: str
