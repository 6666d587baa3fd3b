"""The manual's sessions are real: every command in docs/cli.md is run, and every line it shows must come in this order."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from cli.errors import ExitCode
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


def test_sessions_of_the_manual(tmp_path: Path) -> None:
    """Run them one after the other in one folder, as a reader would."""
    shutil.copy(ROOT / "examples" / "recycle-worked-example.yaml", tmp_path)
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "replan"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m cli.main "$@"\n')
    script.chmod(0o755)
    environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "COLUMNS": "110"}
    for command, shown, status in sessions():
        done = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        # Columns are as wide as what stands in them: runs of spaces count as one.
        output = re.sub(r" +", " ", done.stdout + done.stderr)
        assert done.returncode == status, f"{command}: {output}"
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
