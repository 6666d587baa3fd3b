"""Imports point one way, and heavy libraries stay in the modules that own them."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("planner", "solver_models", "api", "cli", "benchmarks")

MAY_IMPORT = {
    "planner": {"planner"},
    "solver_models": {"planner", "solver_models"},
    "api": {"planner", "solver_models", "api"},
    "cli": {"planner", "solver_models", "cli"},
    "benchmarks": {"planner", "solver_models", "benchmarks"},
}
"""Our packages that each package may import when it is loaded."""

MAY_IMPORT_LAZILY = {("cli/serve.py", "api")}
"""Imports inside functions that go further: the command line starts the service."""

OWNERS = {
    "ortools": ("solver_models/cp_sat*", "solver_models/improve*"),
    "pulp": ("solver_models/milp*",),
    "highspy": ("solver_models/milp*",),
    "pyscipopt": ("solver_models/milp*",),
    "fastapi": ("api/*",),
    "starlette": ("api/*",),
    "uvicorn": ("api/*",),
    "sqlalchemy": ("api/*",),
    "rich": ("cli/*",),
    "click": ("cli/*",),
    "matplotlib": ("cli/*", "benchmarks/*"),
    "torch": (),
}
"""Files that may import a library."""


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Every module of the product: its path from the root, and its syntax tree."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def imports(tree: ast.AST, *, lazy: bool = False) -> Iterator[tuple[str, int, bool]]:
    """Top-level name, line and laziness of every import, also those inside functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name.partition(".")[0], node.lineno, lazy) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide what a module depends on"
            yield (node.module or "").partition(".")[0], node.lineno, lazy
        else:
            inside = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from imports(node, lazy=inside)


def test_imports_point_one_way() -> None:
    """Api, cli and benchmarks stand on solver_models, which stands on planner; nothing points back."""
    wrong = [
        f"{path}:{line} imports {name}"
        for path, tree in modules()
        for name, line, lazy in imports(tree)
        if name in PACKAGES
        and name not in MAY_IMPORT[path.partition("/")[0]]
        and not (lazy and (path, name) in MAY_IMPORT_LAZILY)
    ]
    assert wrong == []


def test_libraries_stay_with_their_owners() -> None:
    """Each heavy library is imported only where it belongs."""
    wrong = [
        f"{path}:{line} imports {name}"
        for path, tree in modules()
        for name, line, _ in imports(tree)
        if name in OWNERS and not any(fnmatch(path, owner) for owner in OWNERS[name])
    ]
    assert wrong == []


def test_nothing_imports_tests_or_examples() -> None:
    """The product does not lean on its tests."""
    wrong = [
        path for path, tree in modules() for name, _, _ in imports(tree) if name in ("tests", "examples", "pytest")
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("planner.plan", ("ortools", "pulp", "fastapi", "click", "rich", "matplotlib")),
        ("solver_models.planning", ("fastapi", "sqlalchemy", "click", "rich", "matplotlib")),
        ("api.planning", ("fastapi", "sqlalchemy", "click", "rich", "matplotlib")),
        ("cli.main", ("numpy", "numba", "pydantic", "ortools", "pulp", "fastapi", "matplotlib", "rich")),
    ],
)
def test_what_is_not_needed_is_not_loaded(module: str, absent: tuple[str, ...]) -> None:
    """Importing a module does not load libraries that only others need, not even through third parties."""
    command = f"import sys, {module}; print(*sorted(set({absent!r}) & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", command], check=True, capture_output=True, text=True, cwd=ROOT)
    assert found.stdout.split() == []
