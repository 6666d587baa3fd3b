"""Commands that read a job: plan and bounds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.main import run
from planner.formats.plan_file import read_plan

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "recycle-worked-example.yaml")


def run_json(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> Any:
    """Run with --json and read what was printed."""
    assert run([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def failed_with(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Status and code of a command that must fail, printing nothing on standard output."""
    status = run([*arguments, "--json"])
    shown = capsys.readouterr()
    assert shown.out == ""
    document = json.loads(shown.err)
    assert document["exit_code"] == status
    return status, document["code"]


def test_plan_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The verdict stands first; who takes over, what is proved and what to do next follow."""
    path = tmp_path / "plan.json"
    assert run(["plan", EXAMPLE, "--fail", "n06", "-o", str(path)]) == 0
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert lines[0].startswith("recycle-worked-example: planned, proved optimal, keeps ")
    text = " ".join(shown.out.split())
    assert "27 us an iteration" in text
    assert "fault-free 1F1B 27 us (100.00 % of its throughput)" in text
    assert "no schedule is faster than 27 us" in text
    assert "n06 (worker 1/2)" in text
    assert "slot 2 (1/2 down): 6 microbatches to 0/2 +3, 2/2 +3" in text
    assert f"replan program {path} --worker" in text
    assert shown.err == ""
    assert all(line == line.rstrip() for line in lines)


def test_plan_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every promised key is there, and the file holds the plan that was printed."""
    path = tmp_path / "plan.json"
    document = run_json(["plan", EXAMPLE, "--fail", "worker:1/2", "-o", str(path)], capsys)
    assert document["status"] == "optimal"
    assert (document["period_us"], document["bound_us"], document["gap"]) == (27.0, 27.0, 0.0)
    assert document["baseline_1f1b_us"] == 27.0
    assert 18.0 <= document["fault_free_us"] <= 27.0
    assert document["failed_workers"] == ["1/2"]
    # 18 microbatches through 4 stages; each F, and I and W or B.
    assert 2 * 72 <= document["num_operations"] <= 3 * 72
    assert document["peak_memory_bytes"] == [0, 0, 0, 0]
    assert [slot["live_workers"] for slot in document["slots"]] == [3, 3, 2, 3]
    assert document["migrations"] == document["notes"] == []
    assert {"solver", "wall_s", "seed", "versions"} <= set(document)
    assert read_plan(path).plan_id == document["plan_id"]
    assert sum(reroute["microbatches"] for reroute in document["reroutes"] if reroute["home"] == 1) == 6


def test_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    """9 microbatches of 3 us on each live worker of slot 2."""
    assert run(["bounds", EXAMPLE, "--fail", "worker:1/2"]) == 0
    assert "no plan is faster than 27 us" in capsys.readouterr().out
    document = run_json(["bounds", EXAMPLE, "--fail", "worker:1/2"], capsys)
    assert (document["best"]["value_us"], document["best"]["slot"]) == (27.0, 2)
    assert {"work", "warm_up", "tail"} <= {bound["name"] for bound in document["bounds"]}


@pytest.mark.parametrize(
    ("options", "outcome"),
    [
        (["--fail", "n99"], (3, "failure_invalid")),
        (["--fail", "n[0"], (3, "hostlist_malformed")),
        (["--fail", "rank:12"], (3, "failure_invalid")),
        (["--fail", "worker:3/0"], (3, "failure_invalid")),
        (["--fail", "blade:1"], (3, "failure_invalid")),
        (["--degrade", "worker:0/0=1.5"], (3, "failure_invalid")),
        (["--degrade", "worker:0/0=0"], (3, "failure_invalid")),
        (["--degrade", "worker:0/0"], (3, "failure_invalid")),
        (["--fail", "n[02,06,10]"], (4, "stage_lost")),
    ],
    ids=str,
)
@pytest.mark.parametrize("command", ["plan", "bounds"])
def test_bad_failure_sets(
    command: str,
    options: list[str],
    outcome: tuple[int, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each has its status and code, and nothing is written."""
    written = ["-o", str(tmp_path / "plan.json")] if command == "plan" else []
    assert failed_with([command, EXAMPLE, *options, *written], capsys) == outcome
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("old", "new", "outcome"),
    [
        ("microbatches: 6", "microbatches: 6\nmicrobatch: 6", (3, "job_invalid")),
        ("forward_us: 1", "forward_us: -1", (3, "job_invalid")),
        ("forward_us: 1", "forward_us: .nan", (3, "job_invalid")),
        ("microbatches: 6", "microbatches: six", (3, "job_invalid")),
        ("data_parallel: 3", "data_parallel: 4", (3, "job_invalid")),
        ("rank_order: pp-dp", "rank_order: pp-pp", (3, "job_invalid")),
        ("capacity_bytes: null", "activation_bytes: 10\ncapacity_bytes: 5", (3, "job_invalid")),
        ("schema_version: 1", "schema_version: 1" + "\nx: " + "[" * 10_000, (3, "document_limit")),
        ("schema_version: 1", "\x00", (3, "job_invalid")),
    ],
    ids=lambda value: str(value)[:24],
)
def test_bad_job_files(
    old: str, new: str, outcome: tuple[int, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unknown keys, wrong values and counts that do not fit have status 3 and their code."""
    path = tmp_path / "job.yaml"
    text = Path(EXAMPLE).read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    assert failed_with(["plan", str(path)], capsys) == outcome


def test_memory_too_small_for_one_microbatch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The slot and the missing bytes are named: 10 needed, 7 there."""
    path = tmp_path / "job.yaml"
    text = Path(EXAMPLE).read_text().replace("capacity_bytes: null", "capacity_bytes: 7")
    path.write_text(text.replace("forward_us: 1", "forward_us: 1\n  activation_bytes: 10"))
    assert run(["plan", str(path)]) == 4
    error = capsys.readouterr().err
    assert "memory_too_small" in error
    assert "slot 0" in error
    assert "3 bytes are missing" in error


def test_missing_files_and_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A job that is not there, a folder in its place, and an output that cannot be written are input errors."""
    assert failed_with(["plan", str(tmp_path / "none.yaml")], capsys) == (3, "job_invalid")
    assert failed_with(["plan", str(tmp_path)], capsys) == (3, "job_invalid")
    assert failed_with(["plan", EXAMPLE, "-o", str(tmp_path)], capsys) == (3, "input_invalid")
    assert failed_with(["plan", EXAMPLE, "-o", str(tmp_path / "none" / "p.json")], capsys) == (3, "input_invalid")
