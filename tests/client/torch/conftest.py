"""All tests here need torch, the extra of replan-client: without it none is collected."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tests.serving import Server

collect_ignore_glob = ["test_*.py"] if find_spec("torch") is None else []


@pytest.fixture
def url(shared_server: Server) -> str:
    """A running service."""
    return str(shared_server.client.base_url)
