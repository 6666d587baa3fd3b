"""``replan bench``: runs that are gone on with, comparisons, reports, and what is refused."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.results_file import read_results
from benchmarks.row import UNTRIED
from cli.errors import ExitCode
from cli.main import run
from tests.benchmarks.test_pool import wait_until, workers_of

ROOT = Path(__file__).parents[2]
RUN = [
    "bench",
    "run",
    "small",
    "--instances",
    "D2-P2-M2-*",
    "--solvers",
    "list_scheduling,naive,round_robin",
    "--processes",
    "1",
]
ROWS = 4 * 3
"""Four instances of that shape, three solvers."""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    path = tmp_path_factory.mktemp("bench") / "results.jsonl"
    assert run([*RUN, "--out", str(path), "--json"]) == 0
    return path


@pytest.fixture
def results(measured: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copy(measured, tmp_path / "results.jsonl"))


def edit(path: Path, number: int, **changes: Any) -> None:
    """Change columns of a line."""
    lines = path.read_text().splitlines()
    lines[number] = json.dumps(json.loads(lines[number]) | changes)
    path.write_text("".join(f"{line}\n" for line in lines))


def test_rows_say_what_they_were_measured_with(results: Path) -> None:
    """Seed, machine, commit and packages; every plan has been checked."""
    found = read_results(results)
    assert len(found.rows) == ROWS
    assert found.header.suites == ("small",)
    for row in found.rows:
        assert row.status in ("optimal", "feasible")
        assert row.schedule_sha256 is not None
        assert (row.seed, row.deadline_s, row.target_gap, row.forced) == (0, 5.0, 0.0, ())
        assert row.machine["cpus"]
        assert row.versions["python"] == sys.version.split()[0]
        assert row.versions["ortools"]
    if (ROOT / ".git").exists():
        assert {len(row.commit or "") for row in found.rows} == {40}


def test_what_is_there_is_not_measured_again(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows that are missing are, also a half-written one; the others stay byte for byte."""
    lines = results.read_bytes().splitlines(keepends=True)
    results.write_bytes(b"".join(lines[:-2]) + lines[-2][:100])
    capsys.readouterr()
    assert run([*RUN, "--out", str(results), "--force", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["measured"], summary["skipped"], summary["cut_short"]) == (2, ROWS - 2, True)
    assert results.read_bytes().startswith(b"".join(lines[:-2]))
    assert len({row.key for row in read_results(results).rows}) == ROWS


def test_more_seeds_are_added_and_give_the_same_plans(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """These solvers draw nothing at random."""
    assert run([*RUN, "--out", str(results), "--seeds", "1", "--force", "--json"]) == 0
    rows = read_results(results).rows
    assert len(rows) == 2 * ROWS
    plans = {(row.instance, row.solver, row.schedule_sha256) for row in rows}
    assert len(plans) == ROWS


def test_another_commit_is_refused_unless_forced_and_then_marked(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rows that are there stay; the new ones name what differs."""
    edit(results, 1, commit="0" * 40)
    before = results.read_bytes()
    capsys.readouterr()
    command = [*RUN, "--out", str(results), "--seeds", "0,1"]
    assert run([*command, "--json"]) == ExitCode.INPUT
    problem = json.loads(capsys.readouterr().err)
    assert problem["code"] == "benchmark_source"
    assert "commit" in problem["detail"]
    assert "--force" in problem["hint"]
    assert results.read_bytes() == before
    assert run([*command, "--force"]) == 0
    rows = read_results(results).rows
    assert [row.forced for row in rows[:ROWS]] == [()] * ROWS
    assert all("commit" in row.forced for row in rows[ROWS:])
    assert len(rows) == 2 * ROWS


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("machine", {"architecture": "aarch64", "processor": "other", "cpus": 2, "memory_gib": 1.0}),
        ("versions", {"python": "3.9.0"}),
        ("changes", "0123456789ab"),
    ],
)
def test_another_machine_or_other_packages_are_refused(
    results: Path, column: str, value: object, capsys: pytest.CaptureFixture[str]
) -> None:
    """As another commit is."""
    edit(results, 2, **{column: value})
    capsys.readouterr()
    assert run([*RUN, "--out", str(results), "--json"]) == ExitCode.INPUT
    problem = json.loads(capsys.readouterr().err)
    assert problem["code"] == "benchmark_source"
    assert column in problem["detail"].partition(":")[0]


@pytest.mark.parametrize(
    ("line", "changes", "code"),
    [
        (0, {"schema_version": 1}, "benchmark_version"),
        (3, {"schema_version": 1}, "benchmark_version"),
        (0, {"format": "replan-plan"}, "benchmark_file_invalid"),
        (2, {"status": "splendid"}, "benchmark_file_invalid"),
        (2, {"instance_sha256": "0" * 64}, "benchmark_mismatch"),
    ],
)
def test_files_that_cannot_be_gone_on_with(
    results: Path, line: int, changes: dict[str, Any], code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of another version, of no version, or of another problem: refused before anything is measured, forced or not."""
    edit(results, line, **changes)
    before = results.read_bytes()
    capsys.readouterr()
    assert run([*RUN, "--out", str(results), "--force", "--json"]) == ExitCode.INPUT
    assert json.loads(capsys.readouterr().err)["code"] == code
    assert results.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (["run", "grids"], ExitCode.USAGE, "no suite 'grids'"),
        (["run", "worked"], ExitCode.INPUT, "of the suites small; expected worked"),
        (["run", "small", "--solvers", "gurobi"], ExitCode.USAGE, "no solver 'gurobi'"),
        (["run", "small", "--solvers", ""], ExitCode.USAGE, "no solver ''"),
        (["run", "small", "--instances", "x*"], ExitCode.USAGE, "called 'x*'"),
        (["run", "small", "--seeds", "0,x"], ExitCode.USAGE, "not a list of seeds"),
        (["run", "small", "--seeds", str(2**31)], ExitCode.USAGE, "not a list of seeds"),
        (["run", "small", "--deadline", "0s"], ExitCode.USAGE, "not a duration"),
        (["run"], ExitCode.USAGE, "Missing argument"),
    ],
)
def test_options_that_make_no_sense(
    results: Path, arguments: list[str], status: ExitCode, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each is named, and the file stays as it was."""
    before = results.read_bytes()
    assert run(["bench", *arguments, "--out", str(results)]) == status
    assert told in capsys.readouterr().err
    assert results.read_bytes() == before


def test_a_killed_run_is_gone_on_with(tmp_path: Path) -> None:
    """SIGKILL leaves no process behind and whole rows but for the last; each row is there once in the end."""
    command = [sys.executable, "-m", "cli.main", "bench", "run", "small", "--solvers", "rules"]
    command += ["--instances", "D2-P?-M[24]-*", "--out"]
    # A test that was kept from looking for a while may find that it came to its end: then once more.
    for attempt in range(10):
        path = tmp_path / f"results{attempt}.jsonl"
        with subprocess.Popen([*command, str(path)], cwd=ROOT, stderr=subprocess.DEVNULL) as first:
            wait_until(lambda path=path: path.exists() and path.read_bytes().count(b"\n") > 4)
            first.send_signal(signal.SIGKILL)
        wait_until(lambda pid=first.pid: not workers_of(pid))
        if first.returncode == -signal.SIGKILL:
            break
    assert first.returncode == -signal.SIGKILL
    with path.open("ab") as file:
        file.write(b'{"schema_version":2,"sui')
    there = len(read_results(path).rows)
    assert run([*command[3:], str(path), "--force"]) == 0
    rows = read_results(path).rows
    assert len(rows) == len({row.key for row in rows}) == 12 * 13 >= there > 0


def test_comparing_tells_what_got_worse(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 0 for the same, 11 for a longer period; the tolerance is a share of the period before."""
    after = Path(shutil.copy(results, tmp_path / "after.jsonl"))
    capsys.readouterr()
    assert run(["bench", "compare", str(results), str(after), "--json"]) == 0
    same = json.loads(capsys.readouterr().out)
    assert (same["pairs"], same["same"], same["same_plans"], same["worse"]) == (ROWS, ROWS, ROWS, 0)
    row = read_results(results).rows[0]
    assert row.period_ns is not None
    longer = row.period_ns + row.period_ns // 100
    edit(after, 1, period_ns=longer, gap=longer / row.bound_ns - 1)
    assert run(["bench", "compare", str(results), str(after)]) == ExitCode.WORSE
    assert "worse:\nsuite  instance" in capsys.readouterr().out
    assert run(["bench", "compare", str(results), str(after), "--tolerance", "1%", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["worse"] == 0
    assert run(["bench", "compare", str(after), str(results)]) == 0
    assert "better:" in capsys.readouterr().out


def test_two_runs_have_the_same_plans(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where deadlines cut searches, and however many of them run at once: 648 and 6,912 operations."""
    files = [tmp_path / "one.jsonl", tmp_path / "two.jsonl"]
    for processes, path in enumerate(files, start=1):
        solvers = ["--solvers", "annealing,portfolio,reroute_split", "--instances", "g[49]8-*"]
        command = ["bench", "run", "grid", *solvers, "--deadline", "300ms", "--seeds", "5"]
        assert run([*command, "--processes", str(processes), "--out", str(path)]) == 0
    rows = read_results(files[0]).rows
    assert {row.clock for row in rows} == {"work"}
    assert all(row.is_repeatable for row in rows)
    capsys.readouterr()
    assert run(["bench", "compare", *map(str, files)]) == 0
    assert f"{len(rows)} of {len(rows)} plans are the same" in capsys.readouterr().out
    assert run([*command, "--wall-clock", "--out", str(files[0])]) == ExitCode.INPUT
    assert "by the work clock; expected the wall clock" in capsys.readouterr().err


def test_by_the_wall_clock_rows_say_so(tmp_path: Path) -> None:
    """And promise nothing; the integer program is by it anyway."""
    path = tmp_path / "results.jsonl"
    command = ["bench", "run", "small", "--instances", "D2-P2-M2-f1-free", "--solvers", "portfolio,naive,milp_highs"]
    for flags, clock in ((["--wall-clock"], "wall"), ([], "work")):
        assert run([*command, *flags, "--out", str(path)]) == 0
        found = {row.solver: (row.clock, row.repeats) for row in read_results(path).rows}
        path.unlink()
        assert found == {
            "portfolio": (clock, "always" if clock == "work" else "by chance"),
            "naive": ("none", "always"),
            "milp_highs": ("wall", "unless cut"),
        }


def test_comparing_shows_what_became_of_a_plan_that_failed(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its status in the place of its period, no gap and no ratio, which would have made it better."""
    after = Path(shutil.copy(results, tmp_path / "after.jsonl"))
    row = read_results(results).rows[0]
    edit(after, 1, period_ns=1, gap=1 / row.bound_ns - 1, status="invalid")
    capsys.readouterr()
    assert run(["bench", "compare", str(results), str(after)]) == ExitCode.WORSE
    told = capsys.readouterr().out.partition("worse:\n")[2].splitlines()[1].split()
    assert told[:3] == [row.suite, row.instance, row.solver]
    assert told[4:] == ["invalid", f"{row.gap:.3%}", "-"]


def test_files_that_cannot_be_compared(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Missing ones, and ones of other problems."""
    assert run(["bench", "compare", str(results), str(tmp_path / "missing.jsonl")]) == ExitCode.INPUT
    other = Path(shutil.copy(results, tmp_path / "other.jsonl"))
    edit(other, 1, instance_sha256="0" * 64)
    assert run(["bench", "compare", str(results), str(other)]) == ExitCode.INPUT
    assert "another problem" in capsys.readouterr().err


def test_a_half_written_row_is_told_when_reading(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The others are compared."""
    after = results.with_name("after.jsonl")
    after.write_bytes(results.read_bytes() + b'{"schema')
    assert run(["bench", "compare", str(results), str(after), "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["pairs"] == ROWS
    assert "half-written" in captured.err


def test_a_report_is_the_same_for_the_same_rows(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever their order; byte for byte, plots too."""
    header, *lines = results.read_text().splitlines(keepends=True)
    shuffled = tmp_path / "shuffled.jsonl"
    shuffled.write_text("".join([header, *reversed(lines)]))
    folders = [tmp_path / "a", tmp_path / "b"]
    for source, folder in zip((results, shuffled), folders, strict=True):
        assert run(["bench", "report", str(source), "--out", str(folder), "--json"]) == 0
    names = sorted(path.name for path in folders[0].iterdir())
    assert "report.md" in names
    for name in names:
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()
    assert "## Gaps: small" in (folders[0] / "report.md").read_text()


def test_a_report_without_rows_is_refused(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """There is nothing to report."""
    results.write_text(results.read_text().splitlines(keepends=True)[0])
    assert run(["bench", "report", str(results), "--out", str(tmp_path / "out")]) == ExitCode.INPUT
    assert "no rows" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_listing_names_suites_and_solvers(capsys: pytest.CaptureFixture[str]) -> None:
    """Both ways."""
    assert run(["bench", "list"]) == 0
    text = capsys.readouterr().out
    assert run(["bench", "list", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {suite["name"] for suite in document["suites"]} >= {"grid", "zero-bubble", "growth", "cluster"}
    assert {solver["name"] for solver in document["solvers"]} >= {"portfolio", "milp_scip", "round_robin"}
    assert all(entry["name"] in text for kind in ("suites", "solvers") for entry in document[kind])
    assert set(UNTRIED) == {"not_applicable", "not_installed"}
