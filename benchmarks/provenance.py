"""Where results are from: commit, packages and machine."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent

PACKAGES = ("replan", "numpy", "numba", "ortools", "pulp", "highspy", "pyscipopt")

SOURCES = ("planner", "solver_models", "benchmarks", "cli", "examples", "pyproject.toml")
"""What results depend on; a change anywhere else is none of them."""

_GIT_S = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """What a result depends on beside its instance and its options.

    Parameters
    ----------
    commit
        Full hash; ``None`` outside a checkout.
    changes
        Hash of how :data:`SOURCES` differ from the commit, new files included; ``None`` where they do not.
    versions
        Version of Python and of each package, ``None`` for one that is not installed.
    machine
        Architecture, processor, CPUs that this process may use, and memory.
    """

    commit: str | None
    changes: str | None
    versions: dict[str, str | None]
    machine: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {name: getattr(self, name) for name in ("commit", "changes", "versions", "machine")}

    def differences(self, row: dict[str, Any]) -> tuple[str, ...]:
        """What a row was measured with otherwise: some of ``commit``, ``changes``, ``versions`` and ``machine``."""
        mine = self.to_dict()
        # Memory that a virtual machine is given varies by a few pages from start to start.
        mine["machine"], theirs = ({**machine, "memory_gib": None} for machine in (self.machine, row["machine"]))
        return tuple(name for name, value in mine.items() if value != (theirs if name == "machine" else row[name]))


def here() -> Provenance:
    """Provenance of what this process measures."""
    commit = _git("rev-parse", "HEAD")
    return Provenance(
        commit=commit,
        changes=None if commit is None else _changes(),
        versions={"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}},
        machine={
            "architecture": platform.machine(),
            "processor": _processor(),
            "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        },
    )


def _changes() -> str | None:
    """Hash of everything in :data:`SOURCES` that the commit does not have."""
    status = _git("status", "--porcelain", "--untracked-files=all", "--", *SOURCES) or ""
    if not status:
        return None
    found = hashlib.sha256((_git("diff", "HEAD", "--", *SOURCES) or "").encode())
    for line in sorted(status.splitlines()):
        if line.startswith("?? "):
            path = ROOT / line[3:].strip('"')
            found.update(line.encode())
            if path.is_file():
                found.update(path.read_bytes())
    return found.hexdigest()[:12]


def _git(*arguments: str) -> str | None:
    """Output of a git command on this checkout; ``None`` where there is none, or no git."""
    if not (ROOT / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False, timeout=_GIT_S
        )
    except OSError:
        return None
    return done.stdout.rstrip("\n") if done.returncode == 0 else None


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    """Name of the processor as the kernel has it."""
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
