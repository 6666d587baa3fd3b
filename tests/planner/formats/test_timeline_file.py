"""Timelines as bytes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from planner.errors import PlanFileError
from planner.formats.timeline_file import dump_timeline, read_timeline
from planner.timeline import timeline_of
from tests.plans import tiny_plan


def test_bytes_hold_what_the_timeline_does() -> None:
    """Every column comes back, aligned for typed arrays, and the head says what the plan is."""
    plan = tiny_plan()
    timeline, data = timeline_of(plan), dump_timeline(plan)
    head, columns = read_timeline(data)
    assert (head["num_pipelines"], head["num_slots"], head["period_ns"], head["dead"]) == (2, 2, 12_000, [3])
    assert head["slots"][1] == {"stages": [1], "sync_start_ns": 13_000, "sync_ns": 0, "capacity_bytes": None}
    for name, values in (
        ("offsets", timeline.schedule.offsets),
        ("start_ns", timeline.start_ns),
        ("end_ns", timeline.end_ns),
        ("held_bytes", timeline.held_bytes),
        ("home", timeline.schedule.pipeline),
        ("microbatch", timeline.schedule.microbatch),
        ("stage", timeline.schedule.stage),
        ("kind", timeline.schedule.kind),
        ("rerouted", timeline.rerouted),
    ):
        assert np.array_equal(columns[name], values), name
    assert int.from_bytes(data[4:8], "little") % 8 == 0
    assert all(column["offset"] % 8 == 0 for column in head["columns"])


@pytest.mark.parametrize("damage", [lambda data: data[:0], lambda data: b"x" + data[1:], lambda data: data[:-9]])
def test_other_bytes_are_refused(damage: Callable[[bytes], bytes]) -> None:
    """Nothing, another kind of file, one that is cut short."""
    with pytest.raises(PlanFileError):
        read_timeline(damage(dump_timeline(tiny_plan())))
