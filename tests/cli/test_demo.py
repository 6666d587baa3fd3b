"""``replan demo train``: real services, workers and kills."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from cli.errors import ExitCode
from cli.main import run
from tests.perfetto import Importer
from tests.serving import REPLAN

ROOT = Path(__file__).parents[2]
_LIMIT_S = 240
_GONE_S = 120.0
needs_torch = pytest.mark.skipif(
    find_spec("torch") is None, reason="torch, the extra of replan-client, is not installed"
)


class Demo:
    """A demonstration under way, in a process of its own; every process that comes of it carries its mark."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.out, self.temporary = folder / "out", folder / "temporary"
        self.temporary.mkdir()
        self._mark = f"DEMO_TEST={uuid.uuid4().hex}"
        name, _, value = self._mark.partition("=")
        self.process = subprocess.Popen(
            [REPLAN, "demo", "train", "--timeout", f"{_LIMIT_S}s", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {name: value, "TMPDIR": str(self.temporary), "PYTHONUNBUFFERED": "1"},
            cwd=folder,
            start_new_session=True,
        )

    def result(self) -> tuple[int, str, str]:
        """Exit status, output and errors, once it has ended."""
        output, errors = self.process.communicate(timeout=_LIMIT_S)
        return self.process.returncode, output, errors

    def wait_for(self, text: str) -> str:
        """The first line with a text, once it is there."""
        assert self.process.stdout is not None
        return next(line for line in self.process.stdout if text in line)

    def left(self) -> list[int]:
        """Its processes that still live some seconds later."""
        until = time.monotonic() + _GONE_S
        while (found := self._marked()) and time.monotonic() < until:
            time.sleep(0.05)
        return found

    def files(self) -> list[str]:
        """What lies in the folder for temporary files."""
        return sorted(path.name for path in self.temporary.iterdir())

    def end(self) -> None:
        """Kill whatever is left of it."""
        for pid in self._marked():
            os.kill(pid, signal.SIGKILL)
        self.process.communicate()

    def _marked(self) -> list[int]:
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if self._mark.encode() in path.read_bytes().split(b"\0"):
                    found.append(int(path.parent.name))
            except OSError:
                continue  # it ended meanwhile, or is somebody else's
        return found


@contextmanager
def demo(folder: Path, *options: str) -> Iterator[Demo]:
    """A demonstration of which nothing is left behind the test."""
    found = Demo(folder, *options)
    try:
        yield found
    finally:
        found.end()


def slices(path: str) -> list[tuple[int, int, str]]:
    """Process, thread and name of all that a viewer draws of a trace; it drops nothing."""
    taken = Importer().take(json.loads(Path(path).read_text())["traceEvents"])
    assert taken.dropped == []
    return list(taken.slices)


def check_document(document: dict[str, Any], *, num_iterations: int, most: float) -> None:
    """What every run that was undisturbed but for its kills says."""
    assert document["equal"] is True
    assert 0 <= document["parameters_difference"] <= most
    assert [entry["iteration"] for entry in document["iterations"]] == list(range(num_iterations))
    assert all(entry["loss"] == pytest.approx(entry["reference_loss"], rel=most) for entry in document["iterations"])
    # It does learn something.
    assert document["iterations"][-1]["loss"] < document["iterations"][0]["loss"]
    assert [entry["epoch"] for entry in document["epochs"]] == list(range(1, len(document["epochs"]) + 1))


@needs_torch
def test_a_kill_changes_nothing(tmp_path: Path) -> None:
    """The smallest one, for machines: one document, traces of plan and run, and nothing left behind."""
    with demo(tmp_path, "--quick", "--out", "out", "--json") as quick:
        status, output, errors = quick.result()
        assert (status, errors) == (0, "")
        assert quick.left() == []
        assert quick.files() == []
    document = json.loads(output)
    check_document(document, num_iterations=6, most=1e-12)
    assert document["compared_workers"] == 3
    (kill,) = document["kills"]
    assert (kill["worker"], kill["iteration"], kill["goes_on_with"]) == ("1/1", 3, 3)
    assert document["epochs"][0]["failed_workers"] == []
    after = next(entry for entry in document["epochs"] if entry["failed_workers"])
    assert (after["cause"], after["failed_workers"]) == ("event", ["1/1"])
    assert after["period_us"] >= document["epochs"][0]["period_us"] > 0
    assert after["takes_over"]
    assert set(document["generations"]) == {"0/0", "0/1", "1/0"}
    planned = slices(str(tmp_path / document["epochs"][0]["planned_trace"]))
    executed = slices(str(tmp_path / document["executed_trace"]))
    # Two pipelines, two stages, three microbatches: what is planned for each operation is what was run in each iteration.
    operations = sorted(name for _, tid, name in planned if tid == 1)
    assert len(operations) >= 2 * 2 * 3 * 2
    assert len([name for _, tid, name in executed if tid == 1]) == 6 * len(operations)
    assert run(["plan", str(tmp_path / document["job"]), "--deadline", "100ms"]) == 0


@needs_torch
@pytest.mark.slow
def test_a_difference_is_found(tmp_path: Path) -> None:
    """Undisturbed training with other dropout ends elsewhere: said so, with a status of its own."""
    with demo(tmp_path, "--quick", "--reference-seed", "1") as quick:
        status, output, errors = quick.result()
        assert quick.left() == []
        (folder,) = quick.files()
    assert status == ExitCode.TRAINING
    assert "DIFFERENT by" in output
    assert "\nDIFFERENT: parameters of 3 workers differ" in output
    assert "replan: training (training_differs)" in errors
    assert {"executed.trace.json", "job.json", "workers.log"} <= {
        path.name for path in (tmp_path / "temporary" / folder).iterdir()
    }


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize(("precision", "most"), [("float64", 1e-12), ("float32", 1e-5)])
def test_two_kills_and_a_return_change_nothing(tmp_path: Path, precision: str, most: float) -> None:
    """The whole one, for machines."""
    with demo(tmp_path, "--out", "out", "--json", "--precision", precision) as full:
        status, output, errors = full.result()
        assert (status, errors) == (0, "")
        assert full.left() == []
    document = json.loads(output)
    check_document(document, num_iterations=16, most=most)
    assert document["compared_workers"] == 11
    assert [kill["worker"] for kill in document["kills"]] == ["1/2", "2/2"]
    down = [entry["failed_workers"] for entry in document["epochs"]]
    assert [found for n, found in enumerate(down) if found != down[n - 1] or not n] == [
        [],
        ["1/2"],
        ["1/2", "2/2"],
        ["2/2"],
    ]
    (joined, *_) = document["generations"]["1/2"]
    assert joined["received_from"] is not None
    assert joined["first_iteration"] > 9


@needs_torch
@pytest.mark.slow
def test_the_sessions_in_the_manuals_are_what_happens(tmp_path: Path) -> None:
    """Every line that is shown comes, in this order, with other figures.

    Three dots stand for whatever follows in the line, and for lines left out. Who moves and takes over depends on what costs
    were measured, so of these lines only the kind is looked for.
    """
    with demo(tmp_path, "--out", "run") as full:
        status, output, _ = full.result()
    assert status == 0
    lines = [_without_figures(line) for line in output.splitlines()]
    for page in ("README.md", "docs/cli.md"):
        (session,) = re.findall(
            r"```text\n\$ replan demo train(?: --out run)?\n(.*?)```", (ROOT / page).read_text(), re.DOTALL
        )
        at = 0
        for line in session.splitlines():
            shown, dots, _ = _without_figures(line).partition("...")
            kind = re.match(" (moves|takes over) ", shown)
            if kind:
                assert any(found.startswith(kind[0]) for found in lines), f"{page}: {line!r} in\n{output}"
                continue
            found_at = [
                n for n, found in enumerate(lines) if n >= at and (found.startswith(shown) if dots else found == shown)
            ]
            assert found_at, f"{page}: {line!r} is not, or not in this place, in\n{output}"
            at = found_at[0] + (shown != "")


def _without_figures(line: str) -> str:
    """A line with ``#`` for times, sizes and small numbers, and single spaces; names and iterations stay."""
    line = re.sub(r"\d+(\.\d+)? [mnu]?s\b|\d+\.\d+(e-\d+)?|(?<=process )\d+|(?<=:)\d+", "#", line)
    return re.sub(r"\s+", " ", line)


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, ExitCode.INTERRUPTED), (signal.SIGTERM, ExitCode.TERMINATED), (signal.SIGKILL, -signal.SIGKILL)],
)
@pytest.mark.parametrize("moment", ["costs", "iteration   1", "SIGKILL to"])
def test_a_signal_leaves_nothing(tmp_path: Path, number: signal.Signals, status: int, moment: str) -> None:
    """No process and no temporary file; a terminal's Ctrl-C reaches all processes of its group."""
    with demo(tmp_path) as stopped:
        stopped.wait_for(moment)
        if number is signal.SIGINT:
            os.killpg(stopped.process.pid, number)
        else:
            stopped.process.send_signal(number)
        found, _, errors = stopped.result()
        assert found == status
        assert stopped.left() == []
        if number is not signal.SIGKILL:
            assert stopped.files() == []
            assert len(errors.splitlines()) == 1


@needs_torch
@pytest.mark.slow
def test_a_process_that_was_not_to_die_ends_it(tmp_path: Path) -> None:
    """Somebody else kills one of the processes: it is named, and nothing is left."""
    with demo(tmp_path) as failing:
        failing.wait_for("iteration   0")
        pids = set(failing._marked())
        workers = [pid for pid in pids if b"forkserver" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        os.kill(max(workers), signal.SIGKILL)
        status, _, errors = failing.result()
        assert status == ExitCode.TRAINING
        assert "demo_failed" in errors
        assert "ended with exit code -9" in errors
        assert failing.left() == []


@needs_torch
@pytest.mark.slow
def test_a_time_limit_ends_it(tmp_path: Path) -> None:
    """What takes too long is given up and leaves nothing."""
    with demo(tmp_path, "--timeout", "1s", "--json") as hasty:
        status, output, errors = hasty.result()
        assert (status, output) == (ExitCode.TRAINING, "")
        assert json.loads(errors)["code"] == "demo_failed"
        assert hasty.left() == []


@needs_torch
@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (["--iterations", "9"], ExitCode.USAGE, "expected at least 10"),
        (["--quick", "--iterations", "3"], ExitCode.USAGE, "expected at least 4"),
        (["--precision", "float16"], ExitCode.USAGE, "float16"),
        (["--seed", "-1"], ExitCode.USAGE, "-1"),
        (["--timeout", "soon"], ExitCode.USAGE, "not a duration"),
        (["--out", "file/folder"], ExitCode.INPUT, "cannot make the folder"),
    ],
)
def test_bad_options_are_refused_before_anything_starts(
    options: list[str],
    status: ExitCode,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With the status of the manual's table."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert run(["demo", "train", *options]) == status
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(("missing", "packages"), [("torch", ["replan_client"]), ("replan-client", [])])
def test_without_the_extra_it_says_what_to_install(tmp_path: Path, missing: str, packages: list[str]) -> None:
    """An interpreter that finds nothing but what the command line itself needs."""
    click = find_spec("click")
    assert click is not None and click.origin is not None
    links = {"click": Path(click.origin).parent, "cli": ROOT / "cli", "planner": ROOT / "planner"}
    links |= {name: ROOT / "client" / name for name in packages}
    for name, target in links.items():
        (tmp_path / name).symlink_to(target)
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from cli.main import run; sys.exit(run(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", code, "demo", "train", "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == ExitCode.MISSING, done.stderr
    document = json.loads(done.stderr)
    assert document["code"] == "extra_missing"
    assert document["detail"].startswith(f"{missing} is not installed")
    assert "pip install 'replan-client[torch]'" in document["hint"]
