"""Lanes: the same kind of work done several times at once, a thread each.

Compiled loops that let go of the interpreter's lock run side by side. All lanes are waited for, so that what comes out does not
depend on which of them is fast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


def run_lanes(calls: Sequence[Callable[[], Result]]) -> list[Result]:
    """Run some calls, at least one, at once; their results in the same order.

    The first runs in this thread. What one of them raises is raised here, after all have ended.
    """
    if len(calls) == 1:
        return [calls[0]()]
    with ThreadPoolExecutor(max_workers=len(calls) - 1) as pool:
        others = [pool.submit(call) for call in calls[1:]]
        return [calls[0](), *(other.result() for other in others)]
