"""Returns take time."""

from __future__ import annotations

import pytest

from simulation.outcome import Cause
from simulation.readiness import ready_later
from tests.simulation.worlds import another, events, job, trace

ROWS = [(10, "remove", "a"), (50, "add", "a"), (120, "remove", "b"), (300, "remove", "a")]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, ROWS),
        (100, [(10, "remove", "a"), (120, "remove", "b"), (150, "add", "a"), (300, "remove", "a")]),
        # Ready just as it is lost again: both stand in the trace, in that order.
        (250, [(10, "remove", "a"), (120, "remove", "b"), (300, "add", "a"), (300, "remove", "a")]),
        (251, [(10, "remove", "a"), (120, "remove", "b")]),
    ],
)
def test_returns_come_later(seconds: float, expected: list[tuple[float, str, str]]) -> None:
    """A node lost before it was ready was never back."""
    assert ready_later(trace(400, *ROWS), seconds).events == events(*expected)


def test_one_that_is_not_ready_by_the_end_is_never_back() -> None:
    """390 + 20 lies behind 400; and one lost and replaced at the same moment is down until it is ready."""
    made = trace(400, (10, "remove", "a"), (10, "add", "a"), (380, "remove", "b"), (390, "add", "b"))
    assert ready_later(made, 20).events == events((10, "remove", "a"), (30, "add", "a"), (380, "remove", "b"))


def test_less_is_trained_meanwhile() -> None:
    """A pipeline is missing for 1,000 s more: a quarter of them, at 24 s an iteration for 18."""
    world = another(job(), checkpoint_s=1e-9)
    made = trace(20_000, (5000, "remove", "n0"), (10_000, "add", "n0"))
    soon, late = (world.play(ready_later(made, seconds), ["replan"])[0] for seconds in (0, 1000))
    assert late.lost_s[Cause.SLOWER] - soon.lost_s[Cause.SLOWER] == pytest.approx(250)
