"""Imports point one way, and each library has its place."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

MAY_IMPORT = {
    "planner": set(),
    "solver_models": {"planner"},
    "api": {"planner", "solver_models"},
    "benchmarks": {"planner", "solver_models"},
    "simulation": {"planner", "solver_models"},
    # `replan serve` starts the service, `replan bench` runs the suites; nothing else of the command line needs them.
    "cli": {"planner", "solver_models", "api", "simulation", "benchmarks", "replan_client"},
    # What a training image installs: nothing of the planner is there.
    "replan_client": set(),
}
"""The packages of the product, and which others each may import."""

PLACES = {
    "ortools": ("solver_models/cp_sat*.py", "solver_models/improve*.py"),
    "pulp": ("solver_models/milp*.py",),
    "fastapi": ("api/*.py",),
    "starlette": ("api/*.py",),
    "prometheus_client": ("api/*.py",),
    "pydantic_settings": ("api/*.py",),
    "structlog": ("api/*.py",),
    "uvicorn": ("api/*.py",),
    "sqlalchemy": ("api/store/*.py",),
    "alembic": ("api/store/*.py",),
    "psycopg": ("api/store/*.py",),
    "click": ("cli/*.py",),
    "rich": ("cli/*.py",),
    "highspy": ("solver_models/milp*.py",),
    "pyscipopt": ("solver_models/milp*.py",),
    "matplotlib": ("cli/*.py", "benchmarks/*.py", "simulation/*.py"),
    "ray": ("api/precompute/ray_executor.py",),
    "torch": ("client/replan_client/torch/*.py",),
    "httpx2": ("client/*.py",),
}
"""Libraries that only some files may import; a star also stands for subfolders."""


def imports(source: str) -> Iterator[tuple[int, str]]:
    """Line and full name of each absolute import in Python source, wherever it stands; ``from a import b`` is ``a.b``."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node.lineno, "." * node.level + f"{node.module or ''}.{alias.name}"


def faults(path: str, source: str) -> list[str]:
    """What a file imports and may not; ``path`` is relative to the repository."""
    package = path.removeprefix("client/").partition("/")[0]
    found = []
    for line, name in imports(source):
        top = name.partition(".")[0]
        if not top:
            found.append(f"{path}:{line}: {name} is a relative import; expected the full name")
        elif top in MAY_IMPORT and top != package and top not in MAY_IMPORT[package]:
            found.append(f"{path}:{line}: {package} imports {name}; it may import {sorted(MAY_IMPORT[package])}")
        elif top in ("tests", "examples"):
            found.append(f"{path}:{line}: imports {name}, which is not part of the product")
        elif top in PLACES and not any(fnmatch(path, place) for place in PLACES[top]):
            found.append(f"{path}:{line}: imports {name}; only {PLACES[top] or 'no file'} may")
    return found


def test_imports_point_one_way_and_libraries_stay_in_their_places() -> None:
    """No file of the product breaks the rules, and the rules cover every package there is."""
    packages = [path.parent for place in (ROOT, ROOT / "client") for path in place.glob("*/__init__.py")]
    assert {path.name for path in packages} - {"tests"} == set(MAY_IMPORT)
    files = [path for package in packages if package.name != "tests" for path in sorted(package.rglob("*.py"))]
    found = [
        fault for path in files for fault in faults(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("planner/timing.py", "import solver_models.result"),
        ("planner/timing.py", "def f():\n    from ortools.sat.python import cp_model"),
        ("planner/timing.py", "from . import units"),
        ("solver_models/planning.py", "from api import models"),
        ("solver_models/portfolio.py", "import pulp"),
        ("solver_models/milp.py", "import ortools"),
        ("solver_models/cp_sat.py", "import torch"),
        ("api/app.py", "from cli.main import run"),
        ("api/app.py", "import click"),
        ("cli/serve.py", "from fastapi import FastAPI"),
        ("cli/serve.py", "from tests import plans"),
        ("benchmarks/grid.py", "import api.app"),
        ("benchmarks/cluster.py", "from cli.main import run"),
        ("planner/problem.py", "from benchmarks.grid import grid"),
    ],
)
def test_broken_rules_are_found(path: str, source: str) -> None:
    """Each kind of fault is seen, in functions too."""
    assert len(faults(path, source)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        (
            "solver_models/cp_sat_model.py",
            "from ortools.sat.python import cp_model\nfrom planner.problem import Problem",
        ),
        ("solver_models/milp_model.py", "import pulp"),
        ("cli/show/command.py", "import click\nfrom cli.errors import ExitCode"),
        ("cli/serve.py", "from api.server import run"),
        ("api/planning.py", "from solver_models.planning import make_plan"),
        ("cli/simulate.py", "from simulation.run import Simulation"),
        ("cli/bench.py", "from benchmarks.run import run"),
    ],
)
def test_allowed_imports_pass(path: str, source: str) -> None:
    """What the layout allows is no fault."""
    assert faults(path, source) == []


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("planner.plan", ("ortools", "pulp", "fastapi", "click", "rich", "matplotlib")),
        ("solver_models.planning", ("fastapi", "sqlalchemy", "click", "rich", "matplotlib")),
        ("api.planning", ("fastapi", "sqlalchemy", "click", "rich", "matplotlib")),
        ("cli.main", ("numpy", "numba", "pydantic", "ortools", "pulp", "fastapi", "matplotlib", "rich", "benchmarks")),
    ],
)
def test_what_is_not_needed_is_not_loaded(module: str, absent: tuple[str, ...]) -> None:
    """Importing a module does not load libraries that only others need, not even through third parties."""
    command = f"import sys, {module}; print(*sorted(set({absent!r}) & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", command], check=True, capture_output=True, text=True, cwd=ROOT)
    assert found.stdout.split() == []
