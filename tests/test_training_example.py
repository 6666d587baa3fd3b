"""examples/train.py, as docs/execution.md shows it, with real workers, a service, and a store that outlives them."""

from __future__ import annotations

import re
import runpy
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch, the extra of replan-client, is not installed")

from replan_client.torch import profile  # noqa: E402

from cli.main import run  # noqa: E402
from planner.formats.job_file import load_job  # noqa: E402
from tests.client.torch.processes import Child, Here, Processes, processes  # noqa: E402
from tests.serving import serving  # noqa: E402

ROOT = Path(__file__).parents[1]
NAMES = ("0/0", "0/1", "1/0", "1/1")


def run_script(here: Here, folder: str, environment: dict[str, str]) -> None:
    """What ``python train.py WORKER`` does, in a process that has imported torch."""
    import os

    os.chdir(folder)
    os.environ |= environment
    sys.argv = ["train.py", here.name]
    runpy.run_path("train.py", run_name="__main__")


def start(group: Processes, folder: Path, url: str, job_id: str, *, first: int = 0) -> dict[str, Child]:
    """Register a job as the manual does, and start its workers."""
    assert run(["jobs", "register", job_id, str(folder / "train-job.yaml"), "--server", url]) == 0
    environment = {
        "REPLAN_SERVER": url,
        "JOB_ID": job_id,
        "STORE_HOST": "127.0.0.1",
        "STORE_PORT": str(group.store.port),
        "FIRST_ITERATION": str(first),
    }
    return {name: group.start(name, run_script, str(folder), environment) for name in NAMES}


def checkpoint(folder: Path, iteration: int) -> list[Any]:
    """What a checkpoint has of both stages, optimizers and all."""
    return [torch.load(folder / "checkpoints" / f"{iteration}-{stage}.pt") for stage in range(2)]


def check_equal(found: list[Any], expected: list[Any]) -> None:
    """Parameters and optimizer states are equal but for the order of sums."""
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the example, with a folder for its checkpoints."""
    for name in ("train.py", "train-job.yaml"):
        shutil.copy(ROOT / "examples" / name, tmp_path)
    (tmp_path / "checkpoints").mkdir()
    return tmp_path


def test_the_manual_shows_the_script_as_it_is() -> None:
    """Letter for letter."""
    (shown,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "execution.md").read_text(), re.DOTALL)
    assert shown == (ROOT / "examples" / "train.py").read_text()


def test_the_profiler_fills_in_the_job_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the script's own function, as the manual calls it; without measuring links, which has tests of its own."""
    monkeypatch.syspath_prepend(str(folder))
    arguments = ["train:training", "--stages", "2", "--job", str(folder / "train-job.yaml"), "--repeats", "1"]
    assert profile.main(arguments) == 0
    stages = load_job(folder / "train-job.yaml").stages
    # Two linear layers with biases, float32.
    assert [stage.parameter_bytes for stage in stages] == [4 * (16 * 64 + 64 + 64 * 16 + 16)] * 2


@pytest.mark.slow
def test_a_checkpoint_is_gone_on_from(folder: Path, tmp_path: Path) -> None:
    """All train to the end; once more from the middle, as another job, they come to the same end."""
    with serving(tmp_path / "replan.db") as server, processes(limit_s=120) as group:
        url = str(server.client.base_url)
        for child in start(group, folder, url, "whole").values():
            child.result()
        expected = checkpoint(folder, 30)
        (folder / "checkpoints" / "30-0.pt").unlink()
        (folder / "checkpoints" / "30-1.pt").unlink()
        for child in start(group, folder, url, "resumed", first=20).values():
            child.result()
        check_equal(checkpoint(folder, 30), expected)
        assert expected[0][1]["state"][0]["step"] == 30


@pytest.mark.slow
def test_a_kill_changes_nothing(folder: Path, tmp_path: Path) -> None:
    """A worker is killed once the first checkpoint is there, and started again; checkpoints are those of an undisturbed run."""
    with serving(tmp_path / "replan.db") as server, processes(limit_s=200) as group:
        url = str(server.client.base_url)
        for child in start(group, folder, url, "whole").values():
            child.result()
        expected = checkpoint(folder, 30)
        shutil.rmtree(folder / "checkpoints")
        (folder / "checkpoints").mkdir()
        children = start(group, folder, url, "killed")
        while not list((folder / "checkpoints").glob("10-*.pt")):
            time.sleep(0.001)
        children.pop("1/1").kill()
        for child in children.values():
            child.result()
        check_equal(checkpoint(folder, 30), expected)
