"""Durations, shares and lists on the command line."""

from __future__ import annotations

import click
import pytest

from cli.output import bytes_text, duration_text, percent_text
from cli.parameters import Duration, NumberList, Share, WorkerList
from planner.operation import Worker


@pytest.mark.parametrize(
    ("text", "seconds"), [("2s", 2.0), ("500ms", 0.5), ("1m", 60.0), ("1.5", 1.5), ("250us", 0.00025), ("24h", 86400.0)]
)
def test_durations(text: str, seconds: float) -> None:
    """Units are us, ms, s, m and h; none means seconds."""
    assert Duration().convert(text, None, None) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "0", "-1s", "1d", "25h", "1e3", "nan", "s"])
def test_durations_out_of_range(text: str) -> None:
    """Anything else is a usage error."""
    with pytest.raises(click.BadParameter):
        Duration().convert(text, None, None)


@pytest.mark.parametrize(("text", "share"), [("1%", 0.01), ("0.01", 0.01), ("100 %", 1.0), (".5", 0.5), ("0", 0.0)])
def test_shares(text: str, share: float) -> None:
    """A percentage or a number up to one."""
    assert Share().convert(text, None, None) == pytest.approx(share)


@pytest.mark.parametrize("text", ["", "2", "101%", "-1%", "nan", "%"])
def test_shares_out_of_range(text: str) -> None:
    """Above one or below zero is a usage error."""
    with pytest.raises(click.BadParameter):
        Share().convert(text, None, None)


def test_lists() -> None:
    """Workers keep their order; numbers are sorted and each stands once."""
    assert WorkerList().convert("1/2,0/3", None, None) == (Worker(1, 2), Worker(0, 3))
    assert NumberList().convert("5,1-3,2", None, None) == (1, 2, 3, 5)
    for text in ("", "a", "3-1", "1-99999999"):
        with pytest.raises(click.BadParameter):
            NumberList().convert(text, None, None)


def test_texts_have_units() -> None:
    """Durations, bytes and shares as people read them."""
    assert [duration_text(ns) for ns in (0, 999, 27_000, 18_522_000, 1_310_405_000)] == [
        "0 ns",
        "999 ns",
        "27 us",
        "18.522 ms",
        "1.31041 s",
    ]
    assert [bytes_text(size) for size in (0, 1536, 80 * 2**30)] == ["0 B", "1.5 KiB", "80 GiB"]
    assert [percent_text(share) for share in (0.0, 0.0035, 0.00000123)] == ["0.00 %", "0.35 %", "0.00012 %"]
