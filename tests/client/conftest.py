"""A real service that the client's tests share."""

from __future__ import annotations

import pytest

from tests.client.clients import KINDS
from tests.serving import Server


@pytest.fixture(scope="session")
def server(shared_server: Server) -> Server:
    """A running service; each test registers a job of its own."""
    return shared_server


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Each kind of client."""
    return str(request.param)
