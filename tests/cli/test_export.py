"""``replan export``, and ``validate`` and ``replay`` on schedule files of PyTorch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.main import run
from planner.failure_key import failure_key
from planner.formats.plan_file import write_plan
from planner.operation import Worker
from planner.plan import Plan
from planner.schedule import parse_schedule
from planner.timing import time_schedule
from tests.plans import ORDERS, planned_problem, tiny_plan

JOB = {
    "schema_version": 1,
    "name": "tiny",
    "topology": {"nodes": "n[0-3]", "gpus_per_node": 1},
    "layout": {"pipeline_parallel": 2, "data_parallel": 2},
    "microbatches": 2,
    "stage_costs": {"forward_us": 1, "input_grad_us": 1, "weight_grad_us": 1},
    "optimizer": "global",
}
SOUND = "0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1I0,1F1,1I1,1W0,1W1\n"
"""Takes 7 us: rank 1 waits 1 us for its first forward and then runs six operations without a gap."""

FUSED = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
"""Takes 9 us: rank 1 ends at 7 us as before, and only then can rank 0 run its last backward of 2 us."""


@pytest.fixture
def job_path(tmp_path: Path) -> str:
    """A job of two pipelines and two slots, two microbatches each, every operation 1 us."""
    path = tmp_path / "job.json"
    path.write_text(json.dumps(JOB))
    return str(path)


@pytest.fixture
def csv_path(tmp_path: Path) -> Path:
    """A sound schedule file for it."""
    path = tmp_path / "schedule.csv"
    path.write_text(SOUND)
    return path


def run_json(arguments: list[str], capsys: pytest.CaptureFixture[str], status: int = 0) -> Any:
    """Run with --json and read what was printed."""
    assert run([*arguments, "--json"]) == status
    return json.loads(capsys.readouterr().out)


def error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Exit status, code and detail of a command that is refused."""
    status = run([*arguments, "--json"])
    document = json.loads(capsys.readouterr().err)
    return status, document["code"], document["detail"]


def plan_of(orders: str, *, dead: frozenset[Worker] = frozenset()) -> Plan:
    """A plan of the tiny job with these orders; its summaries are the tiny plan's and not looked at here."""
    problem = planned_problem(dead=dead)
    schedule, period_ns = time_schedule(problem, parse_schedule(orders, 2, 2))
    return tiny_plan(
        problem=problem,
        schedule=schedule,
        failed_workers=tuple(sorted(dead)),
        failure_key=failure_key(problem),
        period_ns=period_ns,
        bound_ns=period_ns,
    )


def test_a_fault_free_plan_becomes_one_file_a_pipeline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two pipelines in step: files alike, said so; the JSON tells weights and whose microbatches they hold."""
    orders = "".join(
        f"{k}/0: 0F{k}.0 0F{k}.1 0B{k}.0 0B{k}.1\n{k}/1: 1F{k}.0 1B{k}.0 1F{k}.1 1B{k}.1\n" for k in range(2)
    )
    write_plan(plan_of(orders), tmp_path / "plan.json")
    folder = tmp_path / "a" / "schedules"
    command = ["export", str(tmp_path / "plan.json"), "--pytorch-csv", str(folder)]
    assert run(command) == 0
    assert capsys.readouterr().out == (
        f"2 files written to {folder}, all alike: any serves every pipeline\n"
        "  each holds 2 microbatches, gradient weight 2/4\n"
    )
    names = ["pipeline-0.csv", "pipeline-1.csv"]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert [(folder / name).read_text() for name in names] == ["0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"] * 2
    document = run_json(command, capsys)
    assert [(f["file"], f["weight"], f["microbatches"]) for f in document["files"]] == [
        ("pipeline-0.csv", "2/4", ["0.0", "0.1"]),
        ("pipeline-1.csv", "2/4", ["1.0", "1.1"]),
    ]


def test_a_plan_without_a_pipeline_becomes_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Pipeline 0 runs all four; the line says that the numbers are the file's own."""
    orders = "0/0: 0F0.0 0F1.0 0F0.1 0F1.1 0B0.0 0B1.0 0B0.1 0B1.1\n"
    orders += "0/1: 1F0.0 1B0.0 1F1.0 1B1.0 1F0.1 1B0.1 1F1.1 1B1.1\n"
    dead = frozenset({Worker(1, 0), Worker(1, 1)})
    write_plan(plan_of(orders, dead=dead), tmp_path / "plan.json")
    command = ["export", str(tmp_path / "plan.json"), "--pytorch-csv", str(tmp_path)]
    assert run(command) == 0
    assert "pipeline-0.csv: 4 microbatches, gradient weight 4/4, renumbered" in capsys.readouterr().out
    assert run_json(command, capsys)["files"][0]["microbatches"] == ["0.0", "1.0", "0.1", "1.1"]
    assert not (tmp_path / "pipeline-1.csv").exists()


def test_files_of_another_plan_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A pipeline that stands still leaves its file of before in the folder: it is kept, and told apart."""
    orders = "0/0: 0F0.0 0F1.0 0F0.1 0F1.1 0B0.0 0B1.0 0B0.1 0B1.1\n"
    orders += "0/1: 1F0.0 1B0.0 1F1.0 1B1.0 1F0.1 1B0.1 1F1.1 1B1.1\n"
    write_plan(plan_of(orders, dead=frozenset({Worker(1, 0), Worker(1, 1)})), tmp_path / "plan.json")
    folder = tmp_path / "schedules"
    folder.mkdir()
    (folder / "pipeline-1.csv").write_text(SOUND)
    command = ["export", str(tmp_path / "plan.json"), "--pytorch-csv", str(folder)]
    assert run(command) == 0
    assert capsys.readouterr().out.endswith("\n  not of this plan, left as they were: pipeline-1.csv\n")
    assert run_json(command, capsys)["other_files"] == ["pipeline-1.csv"]
    assert (folder / "pipeline-1.csv").read_text() == SOUND


def test_a_rerouting_plan_is_refused_and_nothing_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 3, not_expressible, the worker and the microbatch named; not even the folder is made."""
    write_plan(plan_of(ORDERS, dead=frozenset({Worker(1, 1)})), tmp_path / "plan.json")
    status, code, detail = error(
        ["export", str(tmp_path / "plan.json"), "--pytorch-csv", str(tmp_path / "new")], capsys
    )
    assert (status, code) == (3, "not_expressible")
    assert "microbatch 1.0 is rerouted: worker 0/1 runs its stage 1 for 1/1, which is down" in detail
    assert not (tmp_path / "new").exists()


def test_a_folder_that_cannot_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file stands in its place: status 3."""
    path = tmp_path / "plan.json"
    orders = "".join(
        f"{k}/0: 0F{k}.0 0B{k}.0 0F{k}.1 0B{k}.1\n{k}/1: 1F{k}.0 1B{k}.0 1F{k}.1 1B{k}.1\n" for k in (0, 1)
    )
    write_plan(plan_of(orders), path)
    assert error(["export", str(path), "--pytorch-csv", str(path)], capsys)[:2] == (3, "input_invalid")


def test_validate_reports_period_and_gap_of_a_schedule_file(
    csv_path: Path, job_path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In words and as JSON."""
    assert run(["validate", str(csv_path), "--job", job_path]) == 0
    words = capsys.readouterr().out
    assert "valid. 12 operations of 2 ranks, 2 stages and 2 microbatches keep every constraint" in words
    assert "period 7 us; no schedule of one pipeline is faster than 7 us" in words
    document = run_json(["validate", str(csv_path), "--job", job_path], capsys)
    assert (document["valid"], document["period_us"], document["gap"], document["violations"]) == (True, 7.0, 0.0, [])
    csv_path.write_text(FUSED)
    fused = run_json(["validate", str(csv_path), "--job", job_path], capsys)
    assert (fused["period_us"], fused["bound_us"], fused["gap"]) == (9.0, 7.0, pytest.approx(2 / 7))


def test_validate_lists_the_faults_of_a_schedule_file(
    csv_path: Path, job_path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 5; each fault has its row and cell."""
    csv_path.write_text(SOUND.replace("0F0,0F1", "0F0,0F2"))
    found = run_json(["validate", str(csv_path), "--job", job_path], capsys, status=5)
    assert [(v["code"], v["row"], v["cell"], v["operation"]) for v in found["violations"]] == [
        ("unknown_operation", 1, 2, "0F2"),
        ("out_of_order", 1, 5, "0I1"),
        ("missing_operation", 1, None, "0F1"),
    ]
    assert (found["valid"], found["period_us"], found["gap"]) == (False, None, None)
    assert run(["validate", str(csv_path), "--job", job_path]) == 5
    assert "unknown_operation: row 1 (rank 0), cell 2: 0F2 is of microbatch 2" in capsys.readouterr().out
    assert error(["replay", str(csv_path), "--job", job_path], capsys)[:2] == (5, "schedule_invalid")


def test_replay_runs_a_schedule_file(csv_path: Path, job_path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The period that validate reports; with jitter another mean."""
    assert run(["replay", str(csv_path), "--job", job_path]) == 0
    assert "7 us in the steady state\n" in capsys.readouterr().out
    found = run_json(["replay", str(csv_path), "--job", job_path, "--iterations", "3"], capsys)
    assert (found["plan_id"], found["period_us"], found["makespans_us"]) == (None, 7.0, [7.0] * 3)
    noisy = run_json(["replay", str(csv_path), "--job", job_path, "--jitter", "10%"], capsys)
    assert noisy["mean_period_us"] != 7.0


def test_the_number_of_microbatches_may_be_given(
    csv_path: Path, job_path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file of a pipeline that took another's over holds four where the job says two."""
    four = "".join(",".join(f"{v}F{j},{v}B{j}" for j in range(4)) + "\n" for v in range(2))
    csv_path.write_text(four)
    command = ["validate", str(csv_path), "--job", job_path]
    assert run(command) == 5
    capsys.readouterr()
    assert run_json([*command, "--microbatches", "4"], capsys)["num_microbatches"] == 4


@pytest.mark.parametrize("command", ["validate", "replay"])
def test_plans_and_schedule_files_are_not_mixed_up(
    command: str, csv_path: Path, job_path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A schedule file without a job, a plan with one, and a count without a file: each is told what to do."""
    plan_path = tmp_path / "plan.json"
    write_plan(tiny_plan(), plan_path)
    assert error([command, str(csv_path)], capsys)[:2] == (2, "usage")
    assert error([command, str(plan_path), "--microbatches", "2"], capsys)[:2] == (2, "usage")
    assert error([command, str(plan_path), "--job", job_path], capsys)[:2] == (3, "schedule_malformed")
    csv_path.write_text(SOUND + "\n")
    status, code, detail = error([command, str(csv_path), "--job", job_path], capsys)
    assert (status, code) == (3, "schedule_malformed")
    assert detail == "row 3 (rank 2) is blank; expected the operations of a rank"
    assert error([command, str(tmp_path / "none.csv"), "--job", job_path], capsys)[:2] == (3, "input_invalid")
    assert error([command, str(csv_path), "--job", str(csv_path)], capsys)[:2] == (3, "job_invalid")
