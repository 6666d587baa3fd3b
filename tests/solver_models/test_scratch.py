"""Folders that solver processes leave when everything is killed at once."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from solver_models.scratch import ScratchFolder, sweep

ROOT = Path(__file__).parents[2]
MAKER = "import time; from solver_models.scratch import ScratchFolder; print(ScratchFolder().path, flush=True); time.sleep(600)"


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files of this test's own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def age(path: Path, seconds: float) -> None:
    """Make a folder look this old."""
    then = time.time() - seconds
    os.utime(path, (then, then))


def test_a_folder_goes_with_its_content(temporary: Path) -> None:
    """Also with folders in it."""
    folder = ScratchFolder()
    (folder.path / "deeper").mkdir()
    (folder.path / "deeper" / "file").write_text("x")
    folder.remove()
    assert list(temporary.iterdir()) == []


def test_the_folder_of_a_killed_process_is_swept_and_that_of_a_live_one_is_not(temporary: Path) -> None:
    """Both are old; only whose maker was killed goes, and it goes when the next folder is made."""
    environment = os.environ | {"TMPDIR": str(temporary)}
    processes = [
        subprocess.Popen([sys.executable, "-c", MAKER], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        killed, live = (Path(process.stdout.readline().strip()) for process in processes)  # type: ignore[union-attr]
        age(killed, 120)
        age(live, 120)
        processes[0].kill()
        processes[0].wait()
        ScratchFolder().remove()
        assert list(temporary.iterdir()) == [live]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_what_may_still_be_wanted_stays(temporary: Path) -> None:
    """A folder so young that its lock may be to come, one without a lock file, other names, files and links."""
    (temporary / "target").mkdir()
    for name in ("replan-solve-young", "replan-solve-old", "replan-solve-ancient", "replan-demo-x"):
        (temporary / name).mkdir()
    (temporary / "replan-solve-file").touch()
    (temporary / "replan-solve-link").symlink_to(temporary / "target")
    (temporary / "replan-solve-young" / "lock").touch()
    age(temporary / "replan-solve-young", 1)
    age(temporary / "replan-solve-old", 86_400)
    age(temporary / "replan-solve-ancient", 3 * 86_400)
    before = {path.name for path in temporary.iterdir()}
    sweep(temporary)
    assert before - {path.name for path in temporary.iterdir()} == {"replan-solve-ancient"}
    sweep(temporary / "missing")
