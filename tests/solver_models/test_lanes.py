"""Lanes run at once and are all waited for."""

from __future__ import annotations

import threading

import pytest

from solver_models.lanes import run_lanes


def test_lanes_run_at_once() -> None:
    """Each waits until all are there; results come in the order of the calls."""
    barrier = threading.Barrier(3, timeout=60)

    def lane(number: int) -> int:
        barrier.wait()
        return number

    assert run_lanes([lambda: lane(0), lambda: lane(1), lambda: lane(2)]) == [0, 1, 2]


def test_one_lane_needs_no_thread() -> None:
    """It runs where it is called."""
    assert run_lanes([threading.get_ident]) == [threading.get_ident()]


@pytest.mark.parametrize("failing", [0, 1])
def test_what_a_lane_raises_is_raised_when_all_have_ended(failing: int) -> None:
    """Nobody goes on in the background."""
    ended = []

    def lane(number: int) -> None:
        if number == failing:
            raise ValueError(f"lane {number}")
        ended.append(number)

    with pytest.raises(ValueError, match=f"lane {failing}"):
        run_lanes([lambda: lane(0), lambda: lane(1)])
    assert ended == [1 - failing]
