"""A running service with a registered job."""

from __future__ import annotations

import re

import pytest

from tests.jobs import ServedJob
from tests.serving import Server


@pytest.fixture
def server(shared_server: Server) -> Server:
    """One server for all tests; each registers jobs of its own."""
    return shared_server


@pytest.fixture
def job(server: Server, request: pytest.FixtureRequest) -> ServedJob:
    """ReCycle's worked example, registered under the test's name."""
    served = ServedJob(server.client, re.sub(r"[^A-Za-z0-9_]+", "-", request.node.name)[:100])
    assert served.register().status_code == 201
    return served
