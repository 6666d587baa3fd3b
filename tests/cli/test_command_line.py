"""The command line as a whole: help, usage, exit codes and the form of errors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from cli.errors import ExitCode, error_document, exit_code_of
from cli.main import cli, run
from cli.replay import replay
from planner import errors
from planner.dataflow import MAX_ITERATIONS
from planner.formats.plan_file import read_plan, write_plan
from tests.plans import tiny_plan

ROOT = Path(__file__).parents[2]


def error_classes(kind: type[errors.ReplanError] = errors.ReplanError) -> list[type[errors.ReplanError]]:
    """Every class of the error tree."""
    return [kind, *(found for child in kind.__subclasses__() for found in error_classes(child))]


@pytest.mark.parametrize("kind", error_classes(), ids=lambda kind: kind.__name__)
def test_every_error_has_an_exit_code_and_a_document(kind: type[errors.ReplanError]) -> None:
    """No error of the tree falls through, and its stable code is in the document."""
    error = kind("what was wrong", hint="what to do")
    document = error_document(error)
    assert document["exit_code"] == exit_code_of(error)
    assert exit_code_of(error) not in (ExitCode.OK, ExitCode.INTERRUPTED)
    assert (document["code"], document["detail"], document["hint"]) == (kind.code, "what was wrong", "what to do")


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (errors.HostlistError, 3),
        (errors.JobFileError, 3),
        (errors.StageLostError, 4),
        (errors.OptimizerShardLostError, 4),
        (errors.PlanHashError, 5),
        (errors.InvalidScheduleError, 5),
        (errors.DeadlockError, 5),
        (errors.SolverCrashedError, 6),
        (errors.StoreError, 7),
        (errors.ListenError, 7),
    ],
)
def test_exit_codes_are_what_the_manual_says(kind: type[errors.ReplanError], status: int) -> None:
    """Scripts may compare them."""
    assert exit_code_of(kind("x")) == status


def test_an_error_of_ours_is_one_internal_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bug ends in status 70 and one block, not in a traceback."""

    @click.command()
    def broken() -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setitem(cli.commands, "broken", broken)
    assert run(["broken"]) == 70
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "ZeroDivisionError: oops" in shown.err
    assert "Traceback" not in shown.err


def test_interrupts_end_with_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Ctrl-C while a command runs says so and nothing more."""

    @click.command()
    def slow() -> None:
        raise KeyboardInterrupt

    monkeypatch.setitem(cli.commands, "slow", slow)
    assert run(["slow"]) == 130
    assert capsys.readouterr().err == "replan: interrupted\n"


def test_interrupts_inside_compiled_code_are_interrupts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Numba raises SystemError from the interrupt it met; that is no internal error."""

    @click.command()
    def slow() -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as interrupt:
            raise SystemError("returned a result with an exception set") from interrupt

    monkeypatch.setitem(cli.commands, "slow", slow)
    assert run(["slow"]) == 130
    assert capsys.readouterr().err == "replan: interrupted\n"


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_stop_a_search_and_leave_nothing(number: signal.Signals, status: int, tmp_path: Path) -> None:
    """A search that is stopped exits with the signal's status, without a traceback, and writes no file."""
    job = str(ROOT / "examples" / "zb-1.5b.yaml")
    arguments = ["plan", job, "--fail", "worker:1/3", "--deadline", "60s", "-o", str(tmp_path / "plan.json")]
    # A shell starts what it runs in the background with interrupts ignored, and that is inherited.
    start = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from cli.main import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", start, *arguments], cwd=ROOT, stderr=subprocess.PIPE, text=True
    ) as process:
        time.sleep(6)
        process.send_signal(number)
        error = process.communicate(timeout=60)[1]
    assert process.returncode == status
    assert error in ("replan: interrupted\n", "replan: terminated\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["plan"],
        ["plan", "job.yaml", "--nonsense"],
        ["plan", "job.yaml", "--deadline", "soon"],
        ["plan", "job.yaml", "--deadline", "0s"],
        ["plan", "job.yaml", "--gap", "101%"],
        ["plan", "job.yaml", "--seed", "-1"],
        ["plan", "job.yaml", "--workers", "0"],
        ["replay", "plan.json", "--iterations", "0"],
        ["program", "plan.json"],
        ["program", "plan.json", "--worker", "3"],
        ["program", "plan.json", "--worker", "0/0", "--rank", "1"],
        ["show", "plan.json", "--slots", "3-1"],
        ["serve", "--port", "70000"],
    ],
    ids=" ".join,
)
def test_usage_errors_end_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong command line prints one block on standard error and nothing on standard output."""
    assert run(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("replan: usage (usage)\n")


def test_usage_errors_are_json_when_json_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    """Machines get one object with the code."""
    assert run(["plan", "--json"]) == 2
    document = json.loads(capsys.readouterr().err)
    assert (document["code"], document["exit_code"]) == ("usage", 2)


def every_command(group: click.Group, *words: str) -> Iterator[tuple[str, bool]]:
    """Each command with what stands before it, and whether it is a group of others."""
    yield " ".join(words), True
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from every_command(command, *words, name)
        else:
            yield " ".join([*words, name]), False


@pytest.mark.parametrize(("command", "is_group"), list(every_command(cli)))
def test_every_command_has_help_and_json(command: str, is_group: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """Help exits with 0, and every command takes --json."""
    assert run([*command.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Usage: replan")
    assert is_group or "--json" in shown


def test_help_loads_nothing_heavy() -> None:
    """Help is instant: no numba, no matplotlib, no pydantic, no solver, no web framework."""
    code = (
        "import sys; from cli.main import run; run(['plan', '--help']); "
        "print(sorted({'numba', 'numpy', 'matplotlib', 'pydantic', 'ortools', 'pulp', 'fastapi', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_reader_that_goes_away_is_no_error() -> None:
    """With standard output closed there is no traceback and the status is that of SIGPIPE."""
    reader, writer = os.pipe()
    os.close(reader)
    script = f"{sys.executable} -m cli.main --help; echo status $? >&2"
    done = subprocess.run(
        ["bash", "-c", script], cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writer)
    assert done.stderr == "status 141\n"


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="the machine has no device that is always full")
def test_a_full_disk_behind_the_output_is_told() -> None:
    """Standard output that takes nothing is no bug of ours: status 3, one block, no traceback."""
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "cli.main", "--help"],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 3
    assert done.stderr == "replan: input (input_invalid)\n  cannot write the output: No space left on device\n"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_error(closed: str, tmp_path: Path) -> None:
    """What would be printed goes nowhere, and a plan is written to its file as ever."""
    job, output = ROOT / "examples" / "recycle-worked-example.yaml", tmp_path / "plan.json"
    script = f"{sys.executable} -m cli.main plan {job} --fail n06 -o {output} {closed}"
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert read_plan(output).period_ns == 27_000


def test_more_iterations_than_can_be_replayed_are_refused(tmp_path: Path) -> None:
    """The limit that the help names is the replay's own."""
    write_plan(tiny_plan(), tmp_path / "plan.json")
    assert f"up to {MAX_ITERATIONS}." in " ".join(replay.get_help(click.Context(replay)).split())
    assert run(["replay", str(tmp_path / "plan.json"), "--iterations", str(MAX_ITERATIONS)]) == ExitCode.OK
    assert run(["replay", str(tmp_path / "plan.json"), "--iterations", str(MAX_ITERATIONS + 1)]) == ExitCode.USAGE
