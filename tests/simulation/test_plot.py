"""Pictures over time."""

from __future__ import annotations

import io

import numpy as np
import pytest

from simulation.outcome import Interval
from simulation.plot import binned, plot_outcomes, share_up
from tests.simulation.worlds import UNIT, trace

TRACE = trace(7200, (1000, "remove", "n0"), (2000, "remove", "rank:3"), (3000, "add", "n0"))


def test_share_of_gpus_up() -> None:
    """Eight GPUs: one down, two down, one back."""
    times, shares = share_up(UNIT.job, TRACE)
    assert times.tolist() == [0, 1000, 2000, 3000, 7200]
    assert shares.tolist() == [1, 7 / 8, 6 / 8, 7 / 8, 7 / 8]


def test_a_gpu_stays_down_when_its_node_returns() -> None:
    """As in the engine: it was lost on its own."""
    _, shares = share_up(UNIT.job, trace(90, (10, "remove", "n0"), (20, "remove", "rank:0"), (30, "add", "n0")))
    assert shares.tolist() == [1, 7 / 8, 7 / 8, 7 / 8, 7 / 8]


def test_rates_by_stretches_of_time() -> None:
    """2 a second, then nothing, then 4: bins that lie across are means."""
    timeline = [
        Interval(start_s=0, end_s=10, samples_per_s=2),
        Interval(start_s=10, end_s=15, samples_per_s=0),
        Interval(start_s=15, end_s=20, samples_per_s=4),
    ]
    assert binned(timeline, np.array([0.0, 5.0, 15.0, 20.0])).tolist() == [2, 1, 4]


@pytest.mark.parametrize(("kind", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_a_picture_of_each_kind(kind: str, magic: bytes) -> None:
    """Both are drawn, and name each policy (as text in an SVG's comments or shapes)."""
    outcomes = UNIT.play(TRACE, ["fault-free", "replan"])
    file = io.BytesIO()
    plot_outcomes(UNIT.job, TRACE, outcomes, file, kind)
    assert file.getvalue().startswith(magic)
