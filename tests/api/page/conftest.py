"""A browser and a service with jobs for the tests of the page; one of each for a module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser import Visit, chromium, visiting
from tests.jobs import DOCUMENT, ServedJob
from tests.serving import Server, serving

HOSTILE = "<script>alert(1)</script>\u202e\u05d0\u05d1\U0001f525" + "long" * 30
ENVIRONMENT = {"REPLAN_EVENT_DEADLINE_S": "0.05", "REPLAN_IMPROVEMENT_DEADLINE_S": "0.05"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A Chromium."""
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def server(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service with a job that is rerouted, one that has no plan, one with a hostile name."""
    with serving(tmp_path_factory.mktemp("store") / "page.db", environment=ENVIRONMENT) as running:
        hurt = ServedJob(running.client, "hurt")
        hurt.register()
        hurt.report("node_failed", "n06")
        lost = ServedJob(running.client, "lost")
        lost.register()
        lost.report("node_failed", "n[02,06,10]")
        ServedJob(running.client, "hostile", DOCUMENT | {"name": HOSTILE.replace("\u202e", "")}).register()
        yield running


@pytest.fixture
def visit(browser: Any, server: Server) -> Iterator[Visit]:
    """A tab on the service."""
    with visiting(browser, str(server.client.base_url)) as found:
        yield found
