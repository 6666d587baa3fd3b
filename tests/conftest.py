"""Fixtures that tests of several packages share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.postgres import postgres, postgres_server
from tests.serving import Server, serving

__all__ = ["postgres", "postgres_server"]

# Tests start hundreds of processes, each of which would compile all of our modules anew: a quarter of what its start takes.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service with its defaults, for all tests that leave it as it was; each registers jobs of its own."""
    with serving(tmp_path_factory.mktemp("shared") / "replan.db", "--processes", "2") as running:
        yield running
