"""Unavoidable idling of one worker."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from planner.bounds.idle import StageWorker

WORKERS = st.builds(
    StageWorker,
    forward_ns=st.integers(0, 5),
    input_grad_ns=st.integers(0, 5),
    weight_grad_ns=st.integers(0, 5),
    round_trip_ns=st.integers(0, 40),
    capacity_bytes=st.integers(5, 30) | st.none(),
    activation_bytes=st.integers(3, 5),
    weight_grad_bytes=st.integers(0, 3),
    splittable=st.booleans(),
)


@given(WORKERS, st.integers(1, 8))
@settings(max_examples=300, deadline=None)
def test_backlog_is_the_best_filling(worker: StageWorker, load: int) -> None:
    """The backlog is the most valuable filling of what memory is left, by trying all."""
    room = None if worker.capacity_bytes is None else worker.capacity_bytes - worker.activation_bytes
    halves = range(load) if worker.splittable else range(1)
    best = max(
        whole * (worker.input_grad_ns + worker.weight_grad_ns) + half * worker.weight_grad_ns
        for whole, half in product(range(load), halves)
        if whole + half < load
        and (room is None or whole * worker.activation_bytes + half * worker.weight_grad_bytes <= room)
    )
    assert worker.backlog_ns(load) == best


@given(WORKERS, st.integers(1, 30))
@settings(max_examples=300, deadline=None)
def test_no_quantity_falls_with_the_load(worker: StageWorker, load: int) -> None:
    """Spreading relies on each worker's bound never falling in its load."""
    for name in ("until_warm_ns", "window_ns", "last_backward_ns", "turnover_ns"):
        assert getattr(worker, name)(load) <= getattr(worker, name)(load + 1), name


@given(WORKERS, st.integers(1, 10))
@settings(max_examples=200, deadline=None)
def test_more_memory_never_raises_a_bound(worker: StageWorker, load: int) -> None:
    """Every schedule of a smaller memory is one of a larger; turnover is left out, whose rounding may rise by a step."""
    larger = replace(worker, capacity_bytes=None if worker.capacity_bytes is None else worker.capacity_bytes + 3)
    for name in ("until_warm_ns", "window_ns", "last_backward_ns"):
        assert getattr(larger, name)(load) <= getattr(worker, name)(load), name
