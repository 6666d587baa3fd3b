"""All tests here need torch, the extra of replan-client: without it none is collected."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from tests.serving import serving

collect_ignore_glob = ["test_*.py"] if find_spec("torch") is None else []


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A running service."""
    with serving(tmp_path_factory.mktemp("service") / "replan.db") as server:
        yield str(server.client.base_url)
