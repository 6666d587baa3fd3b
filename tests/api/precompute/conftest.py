"""Fixtures of the tests of precomputing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from api.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store in the file ``replan.db``."""
    opened = Store(str(tmp_path / "replan.db"))
    yield opened
    opened.close()
