"""Schedules' columns and text."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import ScheduleFormatError
from planner.operation import Kind, Operation, Worker
from planner.schedule import Schedule, TimedOperation, parse_schedule, schedule_from_orders
from planner.timing import time_schedule
from tests.problems import tiny_problem
from tests.random_orders import random_order

TEXT = "0/1: 1F0.0@-3+2 1B0.0@5+4\n1/0: 0F1.2@0+1\n"


def test_columns_of_a_small_schedule() -> None:
    """Rows follow workers by pipeline and slot; a worker that runs nothing has none."""
    schedule = parse_schedule(TEXT, 2, 2)
    assert schedule.offsets.tolist() == [0, 0, 2, 3, 3]
    assert schedule.kind.tolist() == [Kind.F, Kind.B, Kind.F]
    assert (schedule.stage.tolist(), schedule.pipeline.tolist(), schedule.microbatch.tolist()) == (
        [1, 1, 0],
        [0, 0, 1],
        [0, 0, 2],
    )
    assert (schedule.start_ns.tolist(), schedule.end_ns.tolist()) == ([-3, 5, 0], [-1, 9, 1])
    assert schedule.worker_of_row().tolist() == [1, 1, 2]
    assert list(schedule.rows(Worker(0, 1))) == [0, 1]
    assert list(schedule.operations(Worker(1, 0))) == [TimedOperation(Operation(Kind.F, 0, 1, 2), 0, 1)]
    assert schedule.worker_at(2) == Worker(1, 0)
    assert schedule.to_text(times=True) == TEXT
    assert schedule.to_text() == "0/1: 1F0.0 1B0.0\n1/0: 0F1.2\n"


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_schedules_read_as_they_are_written(seed: int) -> None:
    """Text with times and back is the same schedule, without times the same order."""
    rng = random.Random(seed)
    problem = tiny_problem(rng)
    order = random_order(problem, rng)
    timed = time_schedule(problem, order)[0]
    shape = (problem.num_pipelines, problem.num_slots)
    assert parse_schedule(timed.to_text(times=True), *shape) == timed
    assert parse_schedule(timed.to_text(), *shape) == order


def test_equality_looks_at_every_column() -> None:
    """One changed time makes another schedule; other types are never equal."""
    schedule = parse_schedule(TEXT, 2, 2)
    assert schedule == parse_schedule(TEXT, 2, 2)
    assert schedule != replace(schedule, end_ns=schedule.end_ns + 1)
    assert schedule != parse_schedule(TEXT, 2, 3)
    assert schedule != TEXT


def test_columns_cannot_be_written() -> None:
    """A schedule is fixed, and a copy of what it was made from."""
    starts = np.zeros(3, dtype=np.int64)
    schedule = replace(parse_schedule(TEXT, 2, 2), start_ns=starts)
    starts[0] = 9
    assert schedule.start_ns[0] == 0
    with pytest.raises(ValueError, match="read-only"):
        schedule.start_ns[0] = 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"offsets": [0, 3]}, "offsets has shape"),
        ({"offsets": [0, 2, 1, 3, 3]}, "without falling"),
        ({"offsets": [0, 0, 2, 3, 4]}, "do not run from 0 to 3"),
        ({"kind": [0, 0, 4]}, "kinds lie in 0..4"),
        ({"stage": [0, 0, -1]}, "column stage has a negative value"),
        ({"end_ns": [1, 2]}, "column end_ns has shape"),
    ],
)
def test_columns_that_do_not_fit_are_refused(change: dict[str, list[int]], message: str) -> None:
    """Shapes, offsets and ranges are checked where a schedule is made."""
    schedule = parse_schedule(TEXT, 2, 2)
    columns = {name: np.array(values, dtype=np.int64) for name, values in change.items()}
    with pytest.raises(ScheduleFormatError, match=message):
        replace(schedule, **columns)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0/0 0F0.0", "line 1: expected 'pipeline/slot: operations'"),
        ("0/0: 0F0.0\n\n", "line 2"),
        ("0/0: 0F0.0\n0/0: 0B0.0\n", "line 2: worker 0/0 stands twice"),
        ("0/0: 0F0.0  0B0.0", "line 1: operation ''"),
        ("0/0: 0F0.0@1", "0F0.0@1"),
        ("0/0: 0F0.0@1+-2", "cannot be read"),
        ("0/0: 0F0.0@01+2", "cannot be read"),
        ("0/0: zero@1+2", "operation 'zero'"),
        ("2/0: 0F0.0", "worker 2/0 lies outside 2 pipelines x 2 slots"),
    ],
)
def test_malformed_text_is_refused(text: str, message: str) -> None:
    """The line and what was expected stand in the message."""
    with pytest.raises(ScheduleFormatError) as caught:
        parse_schedule(text, 2, 2)
    assert message in str(caught.value)


def test_orders_outside_the_grid_are_refused() -> None:
    """A worker that does not exist cannot run anything."""
    with pytest.raises(ScheduleFormatError, match="worker 0/5 lies outside"):
        schedule_from_orders(1, 2, {Worker(0, 5): []})


def test_empty_schedule() -> None:
    """No operations at all is a schedule too."""
    schedule = parse_schedule("", 1, 1)
    assert isinstance(schedule, Schedule)
    assert (schedule.num_operations, schedule.to_text()) == (0, "")
