"""The page and its service: lost and back, with keys, with nothing registered. Each test has a server of its own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from api.security.scopes import Scope
from api.security.stored_keys import create_key
from api.store import Store
from tests.api.page.steps import choose, give_key, report, try_out
from tests.browser import visiting
from tests.jobs import ServedJob
from tests.postgres import PostgresServer
from tests.serving import serving

LOST = ("ERR_", "Failed to load resource", "net::")


def test_the_service_is_lost_and_comes_back(browser: Any, tmp_path: Path) -> None:
    """A store without jobs says so; a killed server is told in so many words, until one answers again."""
    store = tmp_path / "page.db"
    with serving(store, ready=False) as first:
        base = str(first.client.base_url)
        with visiting(browser, base, expected=LOST) as visit:
            visit.open()
            visit.see("No job is registered")
            first.process.kill()
            visit.see("SERVICE LOST, or the network to it: this page cannot tell which. What you see is old")
            assert re.search(r"Last answer \d+ s ago, at \d+ \w+ \d{4}, \d\d:\d\d:\d\d \S+\.", visit.text("#lost"))
            visit.see("The list of jobs is not known", within="main")
            assert "No job is registered" not in visit.text("main")
            visit.see("a new failure gets no new plan", within="#lost")
            visit.see(f"curl http://127.0.0.1:{urlsplit(base).port}/readyz", within="#lost")
            visit.keep("lost")
            with serving(store, "--port", str(urlsplit(base).port), ready=False):
                visit.until("!document.getElementById('lost').checkVisibility()")
                visit.see("● Connected")


@pytest.mark.slow
def test_what_was_shown_stays_while_the_service_is_lost(browser: Any, tmp_path: Path) -> None:
    """Jobs stay on the screen, marked as old; what changed meanwhile is there once the service is back."""
    store = tmp_path / "page.db"
    with serving(store, ready=False) as first:
        base = str(first.client.base_url)
        with visiting(browser, base, expected=LOST) as visit:
            ServedJob(first.client, "job").register()
            visit.open()
            visit.see("NOTHING DOWN")
            first.process.kill()
            visit.see("SERVICE LOST")
            assert visit.page.locator(".card.job").count() == 1
            assert visit.page.evaluate("document.body.classList.contains('stale')")
            opened = Store(str(store))
            opened.delete_job("job")
            opened.close()
            with serving(store, "--port", str(urlsplit(base).port), ready=False):
                visit.see("No job is registered")
                visit.see("● Connected")


@pytest.mark.slow
def test_keys_are_asked_for_and_kept_by_the_tab_alone(browser: Any, tmp_path: Path) -> None:
    """A wrong key is told; one that may read looks and tries, and is told that it may not report."""
    store = tmp_path / "page.db"
    opened = Store(str(store))
    keys = {scope: create_key(opened, name=scope.label, scope=scope).text for scope in Scope}
    opened.close()
    with serving(store, ready=False, environment={"REPLAN_REQUIRE_KEYS": "true"}) as server:
        server.client.headers["Authorization"] = f"Bearer {keys[Scope.ADMIN]}"
        job = ServedJob(server.client, "job")
        job.register()
        with visiting(browser, str(server.client.base_url), expected=("401", "403")) as visit:
            visit.open()
            visit.see("This service asks for an API key")
            visit.keep("key")
            give_key(visit, "rpk_wrong")
            visit.see("The key that was given is not good")
            give_key(visit, keys[Scope.READ])
            visit.see("NOTHING DOWN")
            visit.open("#/jobs/job")
            visit.see("History", within="main")
            choose(visit, "r!")
            try_out(visit)
            report(visit)
            visit.see("This key may look but not report")
            assert job.current()["epoch"] == 1
            assert visit.page.evaluate("[localStorage.length, document.cookie, location.href.includes('rpk_')]") == [
                0,
                "",
                False,
            ]
            visit.page.get_by_role("button", name="Cancel").click()
            visit.page.get_by_role("button", name="Forget the key").click()
            visit.see("This service asks for an API key")


@pytest.mark.slow
def test_a_store_that_does_not_answer_is_told(browser: Any, postgres_server: PostgresServer) -> None:
    """The server lives, its database does not: the page says which of the two it is, and recovers."""
    with (
        serving(postgres_server.make_database(), ready=False) as server,
        visiting(browser, str(server.client.base_url), expected=LOST) as visit,
    ):
        ServedJob(server.client, "job").register()
        visit.open()
        visit.see("NOTHING DOWN")
        postgres_server.stop()
        try:
            visit.see("The service answers, but its store does not.")
        finally:
            postgres_server.start()
        visit.see("● Connected")
