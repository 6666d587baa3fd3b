"""Schedules written as PyTorch's schedule files, and what such files cannot hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.errors import NotExpressibleError
from planner.formats.pytorch_csv import parse_pytorch_csv
from planner.formats.pytorch_csv_checks import find_csv_faults
from planner.formats.pytorch_csv_export import export_pytorch_csv
from planner.problem import Problem, Slot
from planner.schedule import parse_schedule
from planner.validation import require_valid
from solver_models import portfolio
from solver_models.result import SolveOptions
from tests.plans import ORDERS, planned_problem
from tests.problems import unit_problem

ALONE = """\
0/0: 0F0.0 0F0.1 0I0.0 0W0.0 0B0.1
0/1: 1F0.0 1B0.0 1F0.1 1B0.1
1/0: 0F1.1 0F1.0 0B1.1 0B1.0
1/1: 1F1.1 1B1.1 1F1.0 1B1.0
"""
"""Two pipelines that each run their own; the second's microbatches come in the other order."""


def test_one_file_a_pipeline_with_ascending_last_forwards() -> None:
    """Row r is slot r; microbatches are numbered by the last stage's forwards, and their homes told."""
    first, second = export_pytorch_csv(unit_problem(2, 2, 2), parse_schedule(ALONE, 2, 2))
    assert first.text == "0F0,0F1,0I0,0W0,0B1\n1F0,1B0,1F1,1B1\n"
    assert (first.pipeline, first.microbatches, first.is_renumbered) == (0, ((0, 0), (0, 1)), False)
    assert second.text == "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
    assert (second.pipeline, second.microbatches, second.is_renumbered) == (1, ((1, 1), (1, 0)), True)


def test_a_pipeline_that_stands_still_has_no_file() -> None:
    """Pipeline 1 is down as a whole; pipeline 0 runs its microbatches from end to end, four in all."""
    problem = unit_problem(2, 2, 2, dead=[(1, 0), (1, 1)])
    orders = """\
0/0: 0F0.0 0F1.1 0F0.1 0F1.0 0B0.0 0B1.1 0B0.1 0B1.0
0/1: 1F0.0 1B0.0 1F1.1 1B1.1 1F0.1 1B0.1 1F1.0 1B1.0
"""
    (file,) = export_pytorch_csv(problem, parse_schedule(orders, 2, 2))
    assert file.text == "0F0,0F1,0F2,0F3,0B0,0B1,0B2,0B3\n1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\n"
    assert file.microbatches == ((0, 0), (1, 1), (0, 1), (1, 0))
    assert file.is_renumbered


def test_a_rerouted_microbatch_is_refused_by_name() -> None:
    """Worker 1/1 is down and 0/1 runs its stage: the message says who, which and how many, the hint what to do."""
    with pytest.raises(NotExpressibleError) as caught:
        export_pytorch_csv(planned_problem(), parse_schedule(ORDERS, 2, 2))
    assert caught.value.message.startswith(
        "microbatch 1.0 is rerouted: worker 0/1 runs its stage 1 for 1/1, which is down, and worker 1/0 its stage 0; "
        "2 microbatches are divided among pipelines."
    )
    assert caught.value.hint is not None
    assert "the other 1 with 4 microbatches each, 4 in all" in caught.value.hint


def test_the_worker_that_is_down_is_named_before_who_only_helps() -> None:
    """Microbatch 0.0 is moved to even the load, 1.0 because 1/1 is down: the latter is told."""
    orders = """\
0/0: 0F0.0 0F0.1 0B0.0 0B0.1
0/1: 1F1.0 1B1.0 1F0.1 1B0.1
1/0: 0F1.0 0F1.1 0B1.0 0B1.1
2/0: 0F2.0 0F2.1 0B2.0 0B2.1
2/1: 1F0.0 1B0.0 1F1.1 1B1.1 1F2.0 1B2.0 1F2.1 1B2.1
"""
    problem = unit_problem(3, 2, 2, dead=[(1, 1)])
    with pytest.raises(NotExpressibleError, match=r"microbatch 1\.0 .* for 1/1, which is down"):
        export_pytorch_csv(problem, parse_schedule(orders, 3, 2))
    with pytest.raises(NotExpressibleError, match=r"microbatch 0\.0 .* worker 2/1 .* for 0/1, to even the load"):
        export_pytorch_csv(replace(problem, dead=frozenset()), parse_schedule(orders, 3, 2))


def test_advice_where_the_rest_cannot_share_evenly() -> None:
    """Three pipelines of three, one with a failure: nine microbatches over two are four or five each."""
    orders = "".join(f"{k}/0: {' '.join(f'0F{k}.{j} 0B{k}.{j}' for j in range(3))}\n" for k in range(3)) + "".join(
        f"{k}/1: {' '.join(f'1F{h}.{j} 1B{h}.{j}' for h in homes for j in range(3))}\n"
        for k, homes in ((0, (0, 1)), (2, (2,)))
    )
    with pytest.raises(NotExpressibleError) as caught:
        export_pytorch_csv(unit_problem(3, 2, 3, dead=[(1, 1)]), parse_schedule(orders, 3, 2))
    assert "the other 2 with 4 or 5 microbatches each, 9 in all" in str(caught.value.hint)


@pytest.mark.parametrize(
    "slots",
    [((0,), (1,), (2,), (3,)), ((0, 3), (1, 2)), ((0, 2), (1, 3)), ((0,), (1, 2), (3,))],
    ids=["one_a_slot", "v", "loop", "uneven"],
)
def test_planned_schedules_keep_the_loader_s_rules(slots: tuple[tuple[int, ...], ...]) -> None:
    """Fault-free plans of two pipelines, under every kind of placement, read back without a fault."""
    problem = placed_problem(slots)
    solved = portfolio.solve(problem, SolveOptions(deadline_s=0.3, target_gap=1.0, deterministic=True))
    assert solved.schedule is not None
    assert solved.period_ns is not None
    require_valid(problem, solved.schedule, solved.period_ns)
    files = export_pytorch_csv(problem, solved.schedule)
    assert [(file.pipeline, len(file.microbatches)) for file in files] == [(0, 6), (1, 6)]
    for file in files:
        found = parse_pytorch_csv(file.text.encode())
        assert find_csv_faults(found, replace(problem, microbatches=(6,))) == ()
        assert "".join(",".join(str(o) for _, o in row) + "\n" for row in found.rows) == file.text


def placed_problem(slots: tuple[tuple[int, ...], ...]) -> Problem:
    """Two pipelines, six microbatches each, one stage a quarter of the model, room for as many microbatches as slots."""
    base = unit_problem(2, 4, 6)
    stages = tuple(replace(stage, weight_grad_ns=500, transfer_ns=100) for stage in base.stages)
    held = tuple(Slot(stages=s, capacity_bytes=len(slots) * len(s)) for s in slots)
    return replace(base, stages=stages, slots=held)
