"""Durations beyond a day on the command line."""

from __future__ import annotations

import re
from typing import Any

import click

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(s|m|min|h|d|)")
_SECONDS = {"s": 1.0, "": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
MAX_S = 1e9


class LongDuration(click.ParamType[float]):
    """Seconds: ``90s``, ``30m``, ``6h``, ``2d``; a plain number counts seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Turn the text into seconds above 0."""
        match = _DURATION.fullmatch(str(value).strip())
        seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
        if not 0 < seconds <= MAX_S:
            self.fail(
                f"{value!r} is not a duration; expected 90s, 30m, 6h or 2d, above 0 and at most 1e9 s", param, ctx
            )
        return seconds
