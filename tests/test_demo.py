"""``make demo`` does what it says, and says so when it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[1] / "examples" / "demo.py"


def run(path: str) -> subprocess.CompletedProcess[str]:
    """Run the demo with this PATH."""
    return subprocess.run(
        [sys.executable, str(DEMO)], env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_the_demo_plans_serves_and_fetches() -> None:
    """It ends well, having shown a plan, a program from the service, and a clean stop."""
    done = run(os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    assert done.returncode == 0, done.stderr
    for part in ("Takes over", "201 Created", "OPTIMIZER_STEP", "stopped cleanly", "programs are equal"):
        assert part in done.stdout


def test_the_demo_fails_without_replan() -> None:
    """Where the command is missing, the status is 1 and the reason is told."""
    done = run(os.devnull)
    assert done.returncode == 1
    assert "not on the PATH" in done.stderr
