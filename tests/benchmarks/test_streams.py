"""Many open event streams on a real server: nothing is lost, health answers, memory stays as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.service import server
from benchmarks.streams import Figures, measure, percentile
from tests.jobs import DOCUMENT


def measured(folder: Path, *, streams: int, seconds: float, warm_up_s: float) -> Figures:
    """Figures of ReCycle's worked example."""
    with server(folder, 1) as api:
        return measure(api, DOCUMENT, streams=streams, seconds=seconds, warm_up_s=warm_up_s, node="n06")


def test_percentiles() -> None:
    """The smallest value that the share of all values does not exceed."""
    assert percentile([3.0, 1.0, 2.0, 4.0], 0.5) == 3.0
    assert percentile([5.0], 0.99) == 5.0
    assert percentile([], 0.99) == 0.0


def test_every_stream_gets_every_epoch(tmp_path: Path) -> None:
    """A hundred streams of a server whose solver is busy lose nothing, and every health check is answered."""
    figures = measured(tmp_path, streams=100, seconds=1, warm_up_s=0)
    assert figures.events >= 1
    assert (figures.lost, figures.failed_checks) == (0, 0)
    assert figures.checks >= 1


@pytest.mark.slow
def test_a_thousand_streams_for_a_minute(tmp_path: Path) -> None:
    """The same with a thousand for a minute; the server grows by less than 16 MiB meanwhile, 16 KiB a stream."""
    figures = measured(tmp_path, streams=1000, seconds=60, warm_up_s=20)
    assert (figures.lost, figures.failed_checks) == (0, 0)
    assert figures.late_mib - figures.early_mib < 16
