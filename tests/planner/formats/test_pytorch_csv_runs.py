"""Exported schedule files in PyTorch's own runtime: it loads them and reaches the gradients of a single process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch, the extra of replan-client, is not installed")

from planner.formats.pytorch_csv_export import export_pytorch_csv  # noqa: E402
from planner.problem import Problem, Slot  # noqa: E402
from planner.schedule import Schedule, parse_schedule  # noqa: E402
from solver_models import portfolio  # noqa: E402
from solver_models.result import SolveOptions  # noqa: E402
from tests.problems import unit_problem  # noqa: E402
from tests.pytorch_pipeline import Gradients, reference, run_file  # noqa: E402

TOLERANCE = 1e-12


def planned(problem: Problem) -> Schedule:
    """Order of a plan of the problem, the first good one."""
    solved = portfolio.solve(problem, SolveOptions(deadline_s=0.3, target_gap=1.0))
    assert solved.schedule is not None
    return solved.schedule


def problem_of(slots: Sequence[tuple[int, ...]], *, whole: Sequence[int] = (), pipelines: int = 1) -> Problem:
    """Six microbatches a pipeline, as many in memory as there are slots; the stages ``whole`` run B only."""
    num_stages = sum(map(len, slots))
    base = unit_problem(pipelines, num_stages, 6)
    stages = tuple(
        replace(stage, weight_grad_ns=500, transfer_ns=100, splittable=v not in whole)
        for v, stage in enumerate(base.stages)
    )
    held = tuple(Slot(stages=s, capacity_bytes=len(slots) * len(s)) for s in slots)
    return replace(base, stages=stages, slots=held)


def run_exported(problem: Problem, schedule: Schedule, folder: Path) -> Gradients:
    """Gradients of the whole batch: each pipeline's mean, weighted by its share of the microbatches."""
    total: Gradients = {}
    for file in export_pytorch_csv(problem, schedule):
        own = folder / str(file.pipeline)
        own.mkdir()
        (own / "schedule.csv").write_text(file.text)
        found = run_file(own / "schedule.csv", [slot.stages for slot in problem.slots], file.microbatches, own)
        weight = len(file.microbatches) / problem.num_microbatches
        for v, gradients in found.items():
            parts = [weight * gradient for gradient in gradients]
            total[v] = [a + b for a, b in zip(total[v], parts, strict=True)] if v in total else parts
    return total


def require_reference(problem: Problem, found: Gradients) -> None:
    """Compare with one process that runs every microbatch at once."""
    everything = [(k, j) for k, count in enumerate(problem.microbatches) for j in range(count)]
    expected = reference(problem.num_stages, everything)
    assert sorted(found) == sorted(expected)
    for v, gradients in expected.items():
        for mine, theirs in zip(found[v], gradients, strict=True):
            assert float(theirs.abs().max()) > 0
            assert float((mine - theirs).abs().max()) <= TOLERANCE * float(theirs.abs().max())


@pytest.mark.parametrize(
    ("slots", "whole"),
    [
        (((0,), (1,)), ()),
        (((0,), (1,), (2,), (3,)), ()),
        (((0, 3), (1, 2)), ()),
        (((0, 7), (1, 6), (2, 5), (3, 4)), ()),
        (((0, 2), (1, 3)), ()),
        (((0,), (1, 2), (3,)), (1,)),
        (((0, 1), (2,)), (0, 2)),
    ],
    ids=["two", "four", "v of two", "v of four", "loop", "uneven with a whole stage", "uneven"],
)
def test_a_fault_free_plan(slots: tuple[tuple[int, ...], ...], whole: tuple[int, ...], tmp_path: Path) -> None:
    """I and W apart or fused, one stage a rank or several, neighbours on one rank or not: the gradients are the same."""
    problem = problem_of(slots, whole=whole)
    require_reference(problem, run_exported(problem, planned(problem), tmp_path))


def test_a_plan_without_a_pipeline(tmp_path: Path) -> None:
    """One of two pipelines is down as a whole: the planner gives the other all twelve microbatches."""
    problem = problem_of(((0,), (1,)), pipelines=2)
    dead = unit_problem(2, 2, 6, dead=[(1, 0), (1, 1)]).dead
    problem = replace(problem, dead=dead)
    require_reference(problem, run_exported(problem, planned(problem), tmp_path))


def test_pipelines_that_share_what_another_leaves(tmp_path: Path) -> None:
    """Pipeline 1 of three stands still; the others run three of its microbatches and one, weighted by what they run."""
    problem = unit_problem(3, 2, 4, dead=[(1, 0), (1, 1)])
    shares = {0: ["0.0", "1.0", "0.1", "0.2", "1.3", "0.3", "1.2"], 2: ["2.0", "2.1", "1.1", "2.2", "2.3"]}
    orders = ""
    for k, microbatches in shares.items():
        forwards = " ".join(f"0F{m}" for m in microbatches)
        backwards = " ".join(f"0I{m}" for m in microbatches)
        orders += f"{k}/0: {forwards} {backwards} {' '.join(f'0W{m}' for m in microbatches)}\n"
        orders += f"{k}/1: {' '.join(f'1F{m} 1I{m} 1W{m}' for m in microbatches)}\n"
    found = run_exported(problem, parse_schedule(orders, 3, 2), tmp_path)
    require_reference(problem, found)
