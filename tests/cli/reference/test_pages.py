"""The reference pages are what the code gives, and nothing is missing from them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from api.app import create_app
from api.settings import Settings
from cli.reference.markdown import table
from cli.reference.pages import pages

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docs" / "reference"
PACKAGES = ("planner", "solver_models", "simulation", "benchmarks", "api", "client/replan_client")


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    """The pages as the code gives them now."""
    return pages()


def test_committed_pages_are_those_that_the_code_gives(made: dict[str, str]) -> None:
    """Letter for letter; ``python -m cli.reference`` writes them anew."""
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(made)
    differing = [name for name, text in made.items() if (FOLDER / name).read_text(encoding="utf-8") != text]
    assert differing == [], "run python -m cli.reference"


def test_every_error_class_has_its_code_listed(made: dict[str, str]) -> None:
    """Whatever class anywhere in the sources has a code of its own stands in the page."""
    codes = {
        code
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        for code in re.findall(r'^    code(?:: [\w\[\]]+)? = "(\w+)"$', path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert len(codes) > 60
    assert [code for code in sorted(codes) if f"| `{code}` |" not in made["errors.md"]] == []


def test_every_route_has_a_section(made: dict[str, str]) -> None:
    """One for each method of each path."""
    paths = create_app(Settings()).openapi()["paths"]
    routes = {f"### {method.upper()} {path}" for path, item in paths.items() for method in item}
    assert set(re.findall(r"^### .*", made["routes.md"], re.MULTILINE)) == routes


def test_bars_and_line_breaks_do_not_break_a_table() -> None:
    """A bar is escaped, a line break is a space."""
    assert table(("a", "b"), [("x|y", "one\ntwo")]) == "| a | b |\n|---|---|\n| x\\|y | one two |"
