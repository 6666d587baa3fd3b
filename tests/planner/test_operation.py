"""Text of operations and workers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import ScheduleFormatError
from planner.operation import Kind, Operation, Worker, parse_operation, parse_worker

NUMBERS = st.integers(0, 999_999_999)


@given(st.builds(Operation, st.sampled_from(Kind), NUMBERS, NUMBERS, NUMBERS))
def test_operations_read_as_they_are_written(operation: Operation) -> None:
    """Text and back is the same operation."""
    assert parse_operation(str(operation)) == operation


@given(st.builds(Worker, NUMBERS, NUMBERS))
def test_workers_read_as_they_are_written(worker: Worker) -> None:
    """Text and back is the same worker."""
    assert parse_worker(str(worker)) == worker


def test_text_names_stage_kind_home_and_microbatch() -> None:
    """``2F1.3`` is the forward of stage 2 for microbatch 3 of pipeline 1."""
    assert parse_operation("2F1.3") == Operation(Kind.F, stage=2, pipeline=1, microbatch=3)
    assert parse_worker("1/2") == Worker(pipeline=1, slot=2)


@pytest.mark.parametrize(
    "text",
    ["", "F1.3", "2X1.3", "2f1.3", "02F1.3", "2F1", "2F1.3 ", " 2F1.3", "2F-1.3", "2F1.3\n", "2F1.1000000000", "٢F1.3"],
)
def test_malformed_operations_are_refused(text: str) -> None:
    """Anything but the exact form is an error that shows the form."""
    with pytest.raises(ScheduleFormatError, match=r"expected the form 2F1\.3"):
        parse_operation(text)


@pytest.mark.parametrize("text", ["", "1", "1/", "/2", "1/2/3", "01/2", "-1/2", "1/2\n", "1 /2"])
def test_malformed_workers_are_refused(text: str) -> None:
    """Anything but the exact form is an error that shows the form."""
    with pytest.raises(ScheduleFormatError, match="expected pipeline/slot"):
        parse_worker(text)
