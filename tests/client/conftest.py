"""A real service that the client's tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.client.clients import KINDS
from tests.serving import Server, serving


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A running service; each test registers a job of its own."""
    with serving(tmp_path_factory.mktemp("client") / "replan.db") as running:
        yield running


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Each kind of client."""
    return str(request.param)
