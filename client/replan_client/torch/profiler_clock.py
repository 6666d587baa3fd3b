"""Time between points of PyTorch code, on the CPU and on a GPU."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch


class Clock:
    """Marks moments on a device and gives the times between them.

    On a GPU a mark is an event in the current stream: it is passed when everything asked for before has been done.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._cuda = device.type == "cuda"
        self._marks: list[Any] = []

    def mark(self) -> None:
        """Mark this moment."""
        if self._cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record(torch.cuda.current_stream(self._device))
            self._marks.append(event)
        else:
            self._marks.append(time.perf_counter_ns())

    def take_us(self) -> list[float]:
        """Microseconds from each mark to the next; the marks are forgotten."""
        marks, self._marks = self._marks, []
        pairs = pairwise(marks)
        if self._cuda:
            torch.cuda.synchronize(self._device)
            return [first.elapsed_time(second) * 1000 for first, second in pairs]
        return [(second - first) / 1000 for first, second in pairs]


def typical_us(repeats: Sequence[float], device: torch.device) -> float:
    """The one time that stands for several.

    On the CPU the shortest: other processes and interrupts only ever add. On a GPU, whose clock rate changes, the median.

    Examples
    --------
    >>> typical_us([12.0, 10.0, 30.0], torch.device("cpu"))
    10.0
    """
    return statistics.median(repeats) if device.type == "cuda" else min(repeats)


def time_laps(device: torch.device, run: Callable[[Clock], None], *, repeats: int, warm_up: int) -> tuple[float, ...]:
    """Run something that marks ``n + 1`` moments again and again; the typical times of its ``n`` laps in microseconds.

    Parameters
    ----------
    device
        Where it runs.
    run
        Marks its beginning, the ends of its laps, and nothing else; the same number of marks each time.
    repeats
        Runs that count, 1 or more.
    warm_up
        Runs before them that do not: kernels are chosen, memory is fetched, gradients are made.
    """
    clock = Clock(device)
    for _ in range(warm_up):
        run(clock)
        clock.take_us()
    laps = []
    for _ in range(repeats):
        run(clock)
        laps.append(clock.take_us())
    return tuple(typical_us(lap, device) for lap in zip(*laps, strict=True))
