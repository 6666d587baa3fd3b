"""Warming up: afterwards nothing is compiled in anybody's time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = """
from pathlib import Path
from planner.failures import parse_failures
from planner.formats.job_file import load_job
from solver_models.compilation import watched_compilation
from solver_models.planning import make_plan
from solver_models.result import SolveOptions
from solver_models.warm_up import warm_up

with watched_compilation() as compilation:
    warm_up()
print(bool(compilation))
for name, node in (("recycle-worked-example", "n06"), ("v-placement", "a100-2"), ("uneven-stages", "a100-3")):
    job = load_job(Path(f"examples/{name}.yaml"))
    plan = make_plan(job, parse_failures(job, [node], ()), SolveOptions(deadline_s=1.0))
    print(name, [note for note in plan.notes if "compiled" in note])
"""


@pytest.mark.slow
def test_nothing_is_compiled_after_warming_up(tmp_path: Path) -> None:
    """With an empty cache the warm-up compiles, and jobs of every placement, which climb to annealing, then do not."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=ROOT,
        env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["True", "recycle-worked-example []", "v-placement []", "uneven-stages []"]


@pytest.mark.slow
def test_the_first_run_of_the_command_searches_as_long_as_any_other(tmp_path: Path) -> None:
    """It compiles, then plans again: the plan says nothing of a search cut short."""
    output = tmp_path / "plan.json"
    command = [
        sys.executable,
        "-m",
        "cli.main",
        "plan",
        "examples/v-placement.yaml",
        "--fail",
        "a100-2",
        "--deadline",
        "1s",
    ]
    done = subprocess.run(
        [*command, "-o", str(output), "--json"],
        cwd=ROOT,
        env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert '"notes": []' in done.stdout
