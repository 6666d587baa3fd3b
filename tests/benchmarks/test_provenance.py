"""Where rows are from, and how memory is counted."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import memory, provenance
from benchmarks.provenance import here
from benchmarks.suites import SUITES

MANUAL = Path(__file__).parents[2] / "docs" / "benchmarks.md"


def git(folder: Path, *arguments: str) -> None:
    """Run git as somebody."""
    names = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", "-C", str(folder), *names, *arguments], check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one commit."""
    (tmp_path / "planner").mkdir()
    (tmp_path / "planner" / "a.py").write_text("a = 1\n")
    (tmp_path / "README.md").write_text("hello\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "First")
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    return tmp_path


def test_changes_of_sources_have_a_hash(checkout: Path) -> None:
    """Edits and new files, each another one; none where they are undone, or are no sources."""
    clean = here()
    assert clean.commit is not None
    assert re.fullmatch("[0-9a-f]{40}", clean.commit)
    assert clean.changes is None
    (checkout / "README.md").write_text("changed\n")
    assert here().changes is None
    source = checkout / "planner" / "a.py"
    found = [clean.changes]
    for path, text in ((source, "a = 2\n"), (source, "a = 3\n"), (checkout / "planner" / "b.py", "b = 1\n")):
        path.write_text(text)
        found.append(here().changes)
    (checkout / "planner" / "b.py").write_text("b = 2\n")
    found.append(here().changes)
    assert len(set(found)) == 5
    (checkout / "planner" / "b.py").unlink()
    source.write_text("a = 1\n")
    assert here() == clean


def test_outside_a_checkout_there_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only the package is installed."""
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    assert (here().commit, here().changes) == (None, None)


def test_differences_are_named() -> None:
    """Memory may differ by what a virtual machine keeps for itself."""
    mine = here()
    assert mine.differences(mine.to_dict()) == ()
    assert mine.differences(replace(mine, commit="0").to_dict()) == ("commit",)
    assert mine.differences(replace(mine, versions={}).to_dict()) == ("versions",)
    assert mine.differences(replace(mine, machine=mine.machine | {"memory_gib": 0.5}).to_dict()) == ()
    assert mine.differences(replace(mine, machine=mine.machine | {"cpus": 99}).to_dict()) == ("machine",)


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="peaks are not forgotten on this system")
def test_peaks_are_forgotten() -> None:
    """64 MiB that were used before are no part of a later peak."""
    memory.forget_peak()
    before = memory.peak_bytes()
    assert before is not None
    used = np.ones(2**23)
    after = memory.peak_bytes()
    assert after is not None
    assert after >= before + used.nbytes * 0.9
    del used
    memory.forget_peak()
    later = memory.peak_bytes()
    assert later is not None
    assert later < after - 2**25


def test_the_manual_has_every_suite_as_it_is() -> None:
    """Number of instances and deadline."""
    rows = re.findall(
        r"^\| `([\w-]+)` \| (\d+) \| .* \| ([\d.]+) \|$", MANUAL.read_text(encoding="utf-8"), re.MULTILINE
    )
    told = {name: (int(count), float(deadline)) for name, count, deadline in rows}
    assert told == {name: (sum(1 for _ in suite.make()), suite.deadline_s) for name, suite in SUITES.items()}
