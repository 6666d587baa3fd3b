"""Exported schedule files in PyTorch's own runtime: it loads them and reaches the gradients of a single process."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch, the extra of replan-client, is not installed")

from torch.distributed.pipelining import schedules  # noqa: E402

from planner.errors import InvalidScheduleError, ScheduleFormatError  # noqa: E402
from planner.formats.job_file import load_job  # noqa: E402
from planner.formats.pytorch_csv import parse_pytorch_csv  # noqa: E402
from planner.formats.pytorch_csv_assessment import CsvAssessment, assess_pytorch_csv  # noqa: E402
from planner.formats.pytorch_csv_checks import find_csv_faults  # noqa: E402
from planner.formats.pytorch_csv_export import export_pytorch_csv  # noqa: E402
from planner.problem import Problem, Slot  # noqa: E402
from planner.schedule import Schedule, parse_schedule  # noqa: E402
from solver_models import portfolio  # noqa: E402
from solver_models.result import SolveOptions  # noqa: E402
from tests.client.torch.processes import ChildFailedError  # noqa: E402
from tests.problems import unit_problem  # noqa: E402
from tests.pytorch_pipeline import Gradients, reference, run_file  # noqa: E402

EXAMPLES = Path(__file__).parents[3] / "examples"

TOLERANCE = 1e-12


def planned(problem: Problem) -> Schedule:
    """Order of a plan of the problem, the first good one."""
    solved = portfolio.solve(problem, SolveOptions(deadline_s=0.3, target_gap=1.0, deterministic=True))
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
        path = folder / f"pipeline-{file.pipeline}.csv"
        path.write_text(file.text)
        found = run_file(path, [slot.stages for slot in problem.slots], file.microbatches)
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


SOUND = "0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1I0,1W0,1F1,1I1,1W1\n"


def test_pytorch_reads_on_where_a_cell_ends(tmp_path: Path) -> None:
    """It takes ``0F1xyz`` for ``0F1`` and runs it, which is why such a cell is refused here."""
    (tmp_path / "schedule.csv").write_text(SOUND.replace("0F1", "0F1xyz"))
    problem = unit_problem(1, 2, 2)
    require_reference(problem, run_file(tmp_path / "schedule.csv", [[0], [1]], [(0, 0), (0, 1)]))
    with pytest.raises(ScheduleFormatError):
        parse_pytorch_csv((tmp_path / "schedule.csv").read_bytes())


@pytest.mark.parametrize(
    "text",
    [
        SOUND.replace("1F0,1I0,1W0,1F1,1I1,1W1", "1F1,1I1,1W1,1F0,1I0,1W0").replace("0F0,0F1,0I0", "0F1,0F0,0I0"),
        SOUND.replace("0F1", "0F1,0F1"),
        SOUND + "\n",
    ],
    ids=["last stage out of order", "twice", "blank line"],
)
def test_what_is_refused_fails_in_pytorch(text: str, tmp_path: Path) -> None:
    """Its loader takes the first two and fails in the run; the third counts as a rank too many."""
    (tmp_path / "schedule.csv").write_text(text)
    with pytest.raises(ChildFailedError):
        run_file(tmp_path / "schedule.csv", [[0], [1]], [(0, 0), (0, 1)])
    with pytest.raises((ScheduleFormatError, InvalidScheduleError)):
        require_no_faults(text)


def require_no_faults(text: str) -> None:
    """Take a file of two ranks and two microbatches in as ``replan validate`` does."""
    faults = find_csv_faults(parse_pytorch_csv(text.encode()), unit_problem(1, 2, 2))
    CsvAssessment(problem=unit_problem(1, 2, 2), faults=faults).require_valid()


def test_the_same_orders_can_run_here_and_in_pytorch() -> None:
    """Of random orders exactly those without a fault here are those that PyTorch validates and finds sends and receives for.

    Only the order of the last stage's forwards is a rule that PyTorch does not check.
    """
    rng = random.Random(5)
    job = replace(load_job(EXAMPLES / "recycle-worked-example.yaml"), microbatches=(2,) * 3)
    outcomes: Counter[str] = Counter()
    for _ in range(400):
        rows = []
        for rank in range(4):
            backward = ("B",) if rng.random() < 0.5 else ("I", "W")
            # Each microbatch's operations in their order, then a few swaps.
            row = [f"{rank}{kind}{j}" for kind in ("F", *backward) for j in range(2)]
            for _ in range(rng.choice((0, 0, 0, 1, 2))):
                at = rng.randrange(len(row) - 1)
                row[at : at + 2] = row[at + 1], row[at]
            rows.append(row)
        text = "".join(f"{','.join(row)}\n" for row in rows)
        codes = {fault.code for fault in assess_pytorch_csv(parse_pytorch_csv(text.encode()), job).faults}
        outcomes[",".join(sorted(codes))] += 1
        if "last_stage_order" not in codes:
            assert (not codes) == pytorch_can_run(rows), text
    assert outcomes[""] > 20
    assert outcomes["cycle"] > 5
    assert outcomes["out_of_order"] > 20


def pytorch_can_run(rows: list[list[str]]) -> bool:
    """Whether PyTorch's checks take these rows of four stages and two microbatches, and its lowering finds an order."""
    actions = {rank: [schedules._Action.from_str(cell) for cell in row] for rank, row in enumerate(rows)}
    try:
        schedules._validate_schedule(actions, 4, 4, 2)
        schedules._add_send_recv({rank: list(row) for rank, row in actions.items()}, lambda stage: stage, 4)
    except AssertionError:
        return False
    return True
