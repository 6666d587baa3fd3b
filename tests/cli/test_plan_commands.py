"""Commands that read a plan: validate, replay, program and show."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from cli.main import run
from planner.failure_key import failure_key
from planner.formats.plan_file import dump_plan, write_plan
from planner.operation import Worker
from planner.plan import Plan
from planner.plan_content import canonical_json, content_id
from planner.schedule import parse_schedule
from tests.plans import planned_problem, tiny_plan, tiny_schedule


@pytest.fixture
def plan_path(tmp_path: Path) -> Path:
    """The tiny plan in a file."""
    path = tmp_path / "plan.json"
    write_plan(tiny_plan(), path)
    return path


def forged(tmp_path: Path, plan: Plan, **result: Any) -> Path:
    """A plan file with false claims and a hash that fits them."""
    document = json.loads(dump_plan(plan))
    document["content"]["result"].update(result)
    document["plan_id"] = content_id(canonical_json(document["content"]))
    path = tmp_path / "forged.json"
    path.write_text(json.dumps(document))
    return path


def run_json(arguments: list[str], capsys: pytest.CaptureFixture[str], status: int = 0) -> Any:
    """Run with --json and read what was printed."""
    assert run([*arguments, "--json"]) == status
    return json.loads(capsys.readouterr().out)


def test_validate_accepts_a_sound_plan(plan_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 0, in words and as JSON."""
    assert run(["validate", str(plan_path)]) == 0
    assert "valid. 24 operations keep every constraint" in capsys.readouterr().out
    document = run_json(["validate", str(plan_path)], capsys)
    assert (document["valid"], document["violations"]) == (True, [])


def test_validate_lists_every_violation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A schedule moved so that an F starts before its input exists is named by worker, operation and time."""
    plan = tiny_plan()
    document = json.loads(dump_plan(plan))
    document["content"]["schedule"]["0/1"]["start_ns"][0] -= 1
    document["plan_id"] = content_id(canonical_json(document["content"]))
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document))
    assert run(["validate", str(path)]) == 5
    assert "worker 0/1, 1F0.0 at 999 ns" in capsys.readouterr().out
    found = run_json(["validate", str(path)], capsys, status=5)
    assert {(v["code"], v["worker"], v["operation"]) for v in found["violations"]} >= {("precedence", "0/1", "1F0.0")}


def test_validate_refuses_a_period_the_order_cannot_keep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Twelve operations of 1,000 ns on one worker take 12,000 ns, whatever the file claims."""
    path = forged(tmp_path, tiny_plan(), period_ns=11_000, bound={"ns": 11_000, "name": "work", "slot": 1})
    found = run_json(["validate", str(path)], capsys, status=5)
    assert {violation["code"] for violation in found["violations"]} == {"period"}


@pytest.mark.parametrize(
    "claims",
    [
        {"period_ns": 13_000, "bound": {"ns": 13_000, "name": "work", "slot": 1}},
        {"period_ns": 13_000, "bound": {"ns": 12_000, "name": "work", "slot": 1}, "status": "feasible"},
    ],
)
def test_validate_refuses_false_claims(
    claims: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A period that the replay beats, or a bound that the problem does not prove, is an invalid plan."""
    path = forged(tmp_path, tiny_plan(), **claims)
    assert run(["validate", str(path)]) == 5
    assert "schedule_invalid" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["validate"], ["replay"], ["show"], ["program", "--worker", "0/0"]], ids=str)
def test_bad_plan_files_are_refused_by_every_command(
    command: list[str], plan_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cut short, edited, missing or a folder: a status, a code, and no traceback."""
    data = plan_path.read_bytes()

    def outcome() -> tuple[int, str]:
        status = run([command[0], str(plan_path), *command[1:], "--json"])
        return status, json.loads(capsys.readouterr().err)["code"]

    plan_path.write_bytes(data[:-100])
    assert outcome() == (5, "plan_invalid")
    plan_path.write_bytes(data.replace(b'"seed":0', b'"seed":1'))
    assert outcome() == (5, "plan_hash_mismatch")
    plan_path.unlink()
    assert outcome() == (3, "input_invalid")
    plan_path.mkdir()
    assert outcome() == (3, "input_invalid")


def test_replay_confirms_the_period(plan_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without jitter the replay reaches 12 us exactly; with jitter the mean differs and the seed decides it."""
    assert run(["replay", str(plan_path)]) == 0
    assert "12 us in the steady state" in capsys.readouterr().out
    exact = run_json(["replay", str(plan_path), "--iterations", "10"], capsys)
    assert (exact["period_us"], exact["exact_period_ns"], len(exact["makespans_us"])) == (12.0, "12000", 10)
    noisy = [run_json(["replay", str(plan_path), "--jitter", "5%", "--seed", str(seed)], capsys) for seed in (1, 1, 2)]
    assert noisy[0]["mean_period_us"] == noisy[1]["mean_period_us"] != noisy[2]["mean_period_us"]


def test_program_by_worker_and_by_rank(plan_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rank 3 belongs to worker 0/1, which serves both pipelines."""
    assert run(["program", str(plan_path), "--worker", "0/1"]) == 0
    by_worker = capsys.readouterr().out
    assert by_worker.startswith("0/1:\n")
    assert "COMPUTE 1F1.1" in by_worker
    assert run(["program", str(plan_path), "--rank", "3"]) == 0
    assert capsys.readouterr().out == by_worker
    document = run_json(["program", str(plan_path), "--worker", "0/1"], capsys)
    assert document["plan_id"] == tiny_plan().plan_id
    assert [f"  {instruction}" for instruction in document["instructions"]] == by_worker.splitlines()[1:]


def test_programs_of_all_live_workers(plan_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One file for each of the three live workers."""
    folder = tmp_path / "a" / "programs"
    assert run_json(["program", str(plan_path), "--all", str(folder)], capsys)["num_programs"] == 3
    assert sorted(path.name for path in folder.iterdir()) == ["0-0.json", "0-1.json", "1-0.json"]
    assert json.loads((folder / "0-1.json").read_text())["worker"] == "0/1"


@pytest.mark.parametrize("choice", [["--worker", "1/1"], ["--worker", "9/9"], ["--rank", "7"]], ids=str)
def test_no_program_for_who_is_down_or_not_there(
    choice: list[str], plan_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 3 and not_found."""
    assert run(["program", str(plan_path), *choice, "--json"]) == 3
    assert json.loads(capsys.readouterr().err)["code"] == "not_found"


def test_show_draws_a_grid(plan_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line a worker, the one that is down named below; a choice narrows it."""
    assert run(["show", str(plan_path), "--width", "100"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" ")[0] for line in lines[1:5]] == ["0/0", "0/1", "1/0", "1/1"]
    assert lines[5] == "down: 1/1"
    assert run_json(["show", str(plan_path), "--slots", "1"], capsys)["workers"] == ["0/1", "1/1"]
    assert run_json(["show", str(plan_path), "--workers", "1/0,0/0"], capsys)["workers"] == ["1/0", "0/0"]
    assert run(["show", str(plan_path), "--pipelines", "2"]) == 3


def test_show_writes_pictures_and_a_trace(plan_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """SVG is XML, PNG is PNG, the trace is JSON; each is whole and reproducible."""
    paths = {kind: tmp_path / f"plan.{kind}" for kind in ("svg", "png", "trace")}
    options = [word for kind, path in paths.items() for word in (f"--{kind}", str(path))]
    document = run_json(["show", str(plan_path), *options], capsys)
    assert document["files"] == {kind: str(path) for kind, path in paths.items()}
    assert ET.fromstring(paths["svg"].read_text()).tag.endswith("svg")
    assert "0/1" in paths["svg"].read_text()
    assert paths["png"].read_bytes().startswith(b"\x89PNG\r\n")
    first = {kind: path.read_bytes() for kind, path in paths.items()}
    assert run(["show", str(plan_path), *options]) == 0
    assert first == {kind: path.read_bytes() for kind, path in paths.items()}


def test_show_refuses_a_missing_folder_before_it_works(plan_path: Path, tmp_path: Path) -> None:
    """Nothing is written where one of the files could not be."""
    png = tmp_path / "plan.png"
    assert run(["show", str(plan_path), "--png", str(png), "--svg", str(tmp_path / "none" / "plan.svg")]) == 3
    assert not png.exists()


def test_trace_keeps_the_viewer_s_rules(tmp_path: Path) -> None:
    """Integer ids, times from zero, slices of a thread one after the other, arrows that start and end in slices."""
    problem = planned_problem()
    stages = tuple(
        type(stage)(
            forward_ns=1000,
            input_grad_ns=1000,
            weight_grad_ns=1000,
            transfer_ns=2500,
            activation_bytes=8,
            weight_grad_bytes=4,
        )
        for stage in problem.stages
    )
    problem = planned_problem(stages=stages)
    schedule = tiny_schedule(problem)
    plan = tiny_plan(problem=problem, schedule=schedule)
    from cli.show.selection import all_workers
    from planner.formats.chrome_trace import trace_events

    events = list(trace_events(plan, all_workers(plan)))
    assert all(isinstance(event[key], int) for event in events for key in ("pid", "tid"))
    slices: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in events:
        if event["ph"] == "X":
            slices.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    assert min(start for spans in slices.values() for start, _ in spans) == 0
    for spans in slices.values():
        assert all(before[1] <= after[0] for before, after in pairwise(spans))
    arrows = [event for event in events if event["ph"] in "sf"]
    # Every microbatch sends one activation and one gradient: 4 * 2 arrows.
    assert len({event["id"] for event in arrows}) == 8
    for event in arrows:
        assert any(start <= event["ts"] < end for start, end in slices[event["pid"], event["tid"]])
    # Memory returns to nothing on every worker.
    held = {event["pid"]: event["args"]["bytes"] for event in events if event["ph"] == "C"}
    assert set(held.values()) == {0}
    # Worker 0/0 sends a second activation while the first is under way: 2,500 ns against 1,000.
    names = {event["args"]["name"] for event in events if event["name"] == "thread_name" and event["pid"] == 1}
    assert names == {"compute", "optimizer", "send", "send 2"}


def test_a_large_plan_is_narrowed_to_who_matters() -> None:
    """Of 130 workers 64 are drawn: the failed worker's pipeline and those that run its microbatches are among them."""
    from cli.show.selection import MOST_WORKERS, select_workers

    num = 65
    problem = planned_problem(microbatches=(1,) * num, dead=frozenset({Worker(60, 1)}))
    lines = [f"{k}/0: 0F{k}.0 0B{k}.0" for k in range(num)]
    lines += [f"{k}/1: 1F{k}.0 1B{k}.0" for k in range(num) if k not in (60, 30)]
    lines.append("30/1: 1F30.0 1B30.0 1F60.0 1B60.0")
    schedule = parse_schedule("".join(f"{line}\n" for line in lines), num, 2)
    summary = tiny_plan().slots
    plan = tiny_plan(
        problem=problem, schedule=schedule, worker_ranks=(), failure_key=failure_key(problem), slots=summary
    )
    chosen = select_workers(plan, workers=None, slots=None, pipelines=None)
    assert len(chosen) <= MOST_WORKERS
    assert {Worker(60, 0), Worker(60, 1), Worker(30, 1)} <= set(chosen)
    assert chosen == sorted(chosen)


def test_pictures_are_drawn_without_a_word_of_the_library(tmp_path: Path) -> None:
    """A job's name in letters that the font lacks and a home that cannot be written are nothing to warn of."""
    write_plan(tiny_plan(job_name="模型 🚀"), tmp_path / "plan.json")
    command = ["show", str(tmp_path / "plan.json"), "--png", str(tmp_path / "x.png"), "--svg", str(tmp_path / "x.svg")]
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", *command],
        cwd=Path(__file__).parents[2],
        env={key: value for key, value in os.environ.items() if key != "MPLCONFIGDIR"} | {"HOME": "/proc/none"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert "模型 🚀" in (tmp_path / "x.svg").read_text(encoding="utf-8")
