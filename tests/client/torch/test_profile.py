"""The command that measures a model and fills in a job file."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from replan_client.torch import profile
from replan_client.torch.emulation_processes import run_processes

from planner.failures import parse_failures
from planner.formats.job_file import load_job, parse_job
from planner.job import Job
from planner.plan_check import check_plan
from solver_models.planning import make_plan
from solver_models.result import SolveOptions
from tests.client.torch.processes import processes
from tests.client.torch.profiled_model import WIDTH

EXAMPLE = Path(__file__).parents[3] / "examples" / "recycle-worked-example.yaml"
"""Three pipelines of four slots."""
MODEL = "tests.client.torch.profiled_model:training"


@pytest.fixture(scope="module", autouse=True)
def _server() -> Iterator[None]:
    """The fork server that all tests share; one thread, since stages are small."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with processes():
        yield
    torch.set_num_threads(before)


def check(job: Job) -> None:
    """Whether the costs are this model's: known sizes, and times of everything."""
    parameters = 4 * (WIDTH * WIDTH + WIDTH)
    for v, stage in enumerate(job.stages):
        assert stage.parameter_bytes == parameters
        # AdamW: two moments, and a count for each of two parameters.
        assert stage.optimizer_state_bytes == 2 * parameters + 2 * 4
        assert min(stage.costs.forward_ns, stage.costs.weight_grad_ns, stage.all_reduce_ns, stage.optimizer_ns) > 0
        assert (stage.costs.transfer_ns > 0) == (v < len(job.stages) - 1)
        assert 0 < stage.costs.weight_grad_bytes <= stage.costs.activation_bytes


def test_a_measured_job_is_planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The job file keeps all else, the planner reads it and plans around a failure in memory for five microbatches."""
    path = tmp_path / "job.yaml"
    path.write_text(EXAMPLE.read_text())
    arguments = [MODEL, "--stages", "4", "--job", str(path), "--repeats", "2", "--local-links", "2"]
    assert profile.main(arguments) == 0
    job = load_job(path)
    check(job)
    assert job.microbatches == (6, 6, 6)
    assert path.read_text().startswith(EXAMPLE.read_text())
    assert [p.name for p in tmp_path.iterdir()] == ["job.yaml"]
    printed = capsys.readouterr()
    assert printed.out == ""
    assert [line.split()[0] for line in printed.err.splitlines()] == ["stage", "0", "1", "2", "3", "sizes"]
    most = 5 * max(stage.costs.activation_bytes for stage in job.stages)
    tight = parse_job(path.read_text().replace("capacity_bytes: null", f"capacity_bytes: {most}"))
    plan = make_plan(tight, parse_failures(tight, ["n06"]), SolveOptions(deadline_s=0.5), migrate=False)
    check_plan(plan)
    assert max(slot.peak_memory_bytes for slot in plan.slots) <= most


def test_without_a_job_the_section_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """What is printed can be pasted; without links it says nothing of them."""
    assert profile.main([MODEL, "--stages", "3", "--repeats", "1"]) == 0
    section = capsys.readouterr().out
    head = EXAMPLE.read_text().replace("pipeline_parallel: 4", "pipeline_parallel: 3").replace("n[00-11]", "n[0-8]")
    assert len(parse_job(head + section).stages) == 3
    assert "transfer_us" not in section


def test_output_leaves_the_job_as_it_is(tmp_path: Path) -> None:
    """With --output the changed job is another file."""
    path, other = tmp_path / "job.yaml", tmp_path / "measured.yaml"
    path.write_text(EXAMPLE.read_text())
    arguments = [MODEL, "--stages", "4", "--job", str(path), "--output", str(other), "--repeats", "1"]
    assert profile.main(arguments) == 0
    assert path.read_text() == EXAMPLE.read_text()
    assert load_job(other).stages[0].parameter_bytes is not None


def run_under_torchrun(number: int, store: Any, argument: Any) -> Any:
    """Run the command as torchrun starts it."""
    os.environ |= {
        "RANK": str(number),
        "WORLD_SIZE": "3",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(argument["port"]),
    }
    status = profile.main([MODEL, "--stages", "4", "--job", argument["job"], "--repeats", "1"])
    # The first process hosts the store of the others.
    store.add("done", 1)
    while store.add("done", 0) < 3:
        time.sleep(0.01)
    return status


def test_processes_of_torchrun_measure_the_network_between_them(tmp_path: Path) -> None:
    """The first one measures and writes, all of them measure messages and all-reduces."""
    path = tmp_path / "job.yaml"
    path.write_text(EXAMPLE.read_text())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert run_processes(run_under_torchrun, [{"port": port, "job": str(path)}] * 3, timeout_s=120) == [0, 0, 0]
    check(load_job(path))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["no_such_module:training"], "cannot be loaded: No module named"),
        (["tests.client.torch.profiled_model:nothing"], "cannot be loaded"),
        (["tests.client.torch.profiled_model"], "expected MODULE:FUNCTION"),
        (["tests.client.torch.profiled_model:no_training"], "returned a int; expected a Training"),
        ([MODEL, "--job", "/no/such/job.yaml"], "cannot be read"),
        ([MODEL, "--job", __file__], "line 1 of the job file"),
        ([MODEL, "--output", "x.yaml"], "--output is given without --job"),
        ([MODEL, "--device", "cuda"], "finds no GPU"),
        ([MODEL, "--device", "quantum"], "quantum"),
        ([MODEL, "--local-links", "1"], "expected 2 or more"),
        ([MODEL, "--repeats", "0"], "expected at least 1 of each"),
    ],
)
def test_what_it_cannot_work_with_is_said(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit status 2 and one line that says what was wrong; a job file that is none before anything is measured."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert profile.main([*arguments, "--stages", "1"]) == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert expected in message
