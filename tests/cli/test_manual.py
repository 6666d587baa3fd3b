"""The manual's sessions are real: every command in docs/cli.md is run, and every line it shows must come in this order."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from cli.errors import ExitCode
from cli.main import run
from planner import errors

ROOT = Path(__file__).parents[2]
MANUAL = ROOT / "docs" / "cli.md"
_BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
_STATUS = re.compile(r"\[exit status (\d+)\]")


def sessions() -> list[tuple[str, list[str], int]]:
    """Commands of the manual in order, with the lines shown and the status expected."""
    found: list[tuple[str, list[str], int]] = []
    for block in _BLOCK.findall(MANUAL.read_text()):
        for line in block.splitlines():
            status = _STATUS.fullmatch(line)
            if line.startswith("$ "):
                found.append((line[2:], [], 0))
            elif status:
                found[-1] = (*found[-1][:2], int(status[1]))
            else:
                found[-1][1].append(line)
    return found


def run_in_shell(command: str) -> int:
    """Exit status of another program's command."""
    return subprocess.run(["bash", "-c", command], check=False).returncode


def test_sessions_of_the_manual(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run them one after the other in one folder, as a reader would."""
    shutil.copy(ROOT / "examples" / "recycle-worked-example.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "110")
    for command, shown, status in sessions():
        words = shlex.split(command)
        found = run(words[1:]) if words[0] == "replan" else run_in_shell(command)
        captured = capsys.readouterr()
        # Columns are as wide as what stands in them: runs of spaces count as one.
        output = re.sub(r" +", " ", captured.out + captured.err)
        assert found == status, f"{command}: {output}"
        at = 0
        for line in shown:
            start, dots, _ = re.sub(r" +", " ", line).partition("...")
            if not start:
                continue
            where = output.find(start if dots else f"{start}\n", at)
            assert where >= 0, f"{command}: {line!r} is not, or not in this place, in\n{output}"
            at = where + len(start)


def test_the_table_of_exit_codes_is_whole() -> None:
    """Every status and every code of the error tree stands in the manual."""
    text = MANUAL.read_text()
    table = text[text.index("## Exit status") : text.index("## What failed")]
    for code in ExitCode:
        assert re.search(rf"\b{int(code)}\b", table), code
    kinds: list[type[errors.ReplanError]] = [errors.ReplanError]
    for kind in kinds:
        # Errors that only other parts raise are in their own manuals.
        kinds.extend(child for child in kind.__subclasses__() if child.__module__ == errors.__name__)
    missing = [kind.code for kind in kinds[1:] if f"`{kind.code}`" not in table]
    assert missing == []
