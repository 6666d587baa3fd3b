"""Schedule files judged by a job's costs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from planner.errors import InvalidScheduleError, NotExpressibleError
from planner.formats.job_file import load_job
from planner.formats.pytorch_csv import CsvPlace, parse_pytorch_csv
from planner.formats.pytorch_csv_assessment import CsvAssessment, assess_pytorch_csv
from planner.job import Job

EXAMPLES = Path(__file__).parents[3] / "examples"

ONE_F_ONE_B = """\
0F0,0F1,0F2,0F3,0B0,0F4,0B1,0F5,0B2,0B3,0B4,0B5
1F0,1F1,1F2,1B0,1F3,1B1,1F4,1B2,1F5,1B3,1B4,1B5
2F0,2F1,2B0,2F2,2B1,2F3,2B2,2F4,2B3,2F5,2B4,2B5
3F0,3B0,3F1,3B1,3F2,3B2,3F3,3B3,3F4,3B4,3F5,3B5
"""


@pytest.fixture(scope="module")
def job() -> Job:
    """Three pipelines, four slots, six microbatches, F, I and W of 1 us each, no memory limit."""
    return load_job(EXAMPLES / "recycle-worked-example.yaml")


def assess(text: str, job: Job, num_microbatches: int | None = None) -> CsvAssessment:
    """Assess the text of a file."""
    return assess_pytorch_csv(parse_pytorch_csv(text.encode()), job, num_microbatches=num_microbatches)


def test_period_bound_and_gap(job: Job) -> None:
    """1F1B with a global optimizer takes (6 + 4 - 1) microbatches of 3 us, 27 us in all."""
    found = assess(ONE_F_ONE_B, replace(job, optimizer="global"))
    assert (found.faults, found.period_ns) == ((), 27_000)
    # Slot 0 works 18 us for its six microbatches; no schedule beats that.
    assert found.bound is not None
    assert 18_000 <= found.bound.value_ns <= 27_000
    assert found.gap == pytest.approx(27_000 / found.bound.value_ns - 1)
    found.require_valid()


def test_a_file_may_hold_another_number_of_microbatches(job: Job) -> None:
    """With six in the job and five asked for, the sixth does not exist; where homes differ the number has to be given."""
    assert {fault.code for fault in assess(ONE_F_ONE_B, job, 5).faults} == {"unknown_operation"}
    uneven = replace(job, microbatches=(6, 6, 5))
    with pytest.raises(NotExpressibleError, match="5 to 6 microbatches"):
        assess(ONE_F_ONE_B, uneven)
    assert assess(ONE_F_ONE_B, uneven, 6).faults == ()


def test_an_order_that_waits_for_itself(job: Job) -> None:
    """Rank 0 wants a gradient before it gives rank 1 what that runs first: every rank stops, each is named."""
    text = ONE_F_ONE_B.replace("0F0,0F1,0F2,0F3,0B0", "0F0,0B0,0F1,0F2,0F3")
    found = assess(text, job)
    assert [(fault.code, fault.place) for fault in found.faults] == [
        ("cycle", CsvPlace(1, 2)),
        ("cycle", CsvPlace(2, 2)),
        ("cycle", CsvPlace(3, 2)),
        ("cycle", CsvPlace(4, 3)),
    ]
    assert found.faults[0].message == (
        "row 1 (rank 0), cell 2: 0B0 waits for 1B0 in row 2 (rank 1), cell 4, which waits in turn: the order cannot run"
    )
    with pytest.raises(InvalidScheduleError, match="row 1"):
        found.require_valid()
    assert found.period_ns is None


def test_memory_is_told_by_row_and_cell(job: Job) -> None:
    """With room for three microbatches the fourth forward of the first row, and each that follows, is one too many."""
    stages = tuple(replace(s, costs=replace(s.costs, activation_bytes=10)) for s in job.stages)
    found = assess(ONE_F_ONE_B, replace(job, stages=stages, capacity_bytes=(30,) * 4))
    assert [(fault.code, fault.place) for fault in found.faults] == [
        ("memory", CsvPlace(1, 4)),
        ("memory", CsvPlace(1, 6)),
        ("memory", CsvPlace(1, 8)),
    ]
    assert "holds 40 bytes; expected at most 30" in found.faults[0].message
    assert found.period_ns is not None
    assert (found.bound, found.gap) == (None, None)
