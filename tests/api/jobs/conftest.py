"""A running service with a registered job."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.jobs import ServedJob
from tests.serving import Server, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all tests of a module; each registers jobs of its own."""
    with serving(tmp_path_factory.mktemp("store") / "jobs.db", "--processes", "2") as running:
        yield running


@pytest.fixture
def job(server: Server, request: pytest.FixtureRequest) -> ServedJob:
    """ReCycle's worked example, registered under the test's name."""
    served = ServedJob(server.client, re.sub(r"[^A-Za-z0-9_]+", "-", request.node.name)[:100])
    assert served.register().status_code == 201
    return served
