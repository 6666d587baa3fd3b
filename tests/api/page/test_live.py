"""What the page does while things change: bursts, deletions, focus, memory, hidden tabs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.api.page.steps import choose, open_job, try_out
from tests.browser import Visit, visiting
from tests.jobs import ServedJob
from tests.serving import Server, serving

HIDE = """(state) => {
  Object.defineProperty(document, "visibilityState", {value: state, configurable: true});
  document.dispatchEvent(new Event("visibilitychange"));
}"""


@pytest.mark.slow
def test_a_burst_of_events_is_caught_up_with_and_not_chased(visit: Visit, server: Server) -> None:
    """The page ends at the newest epoch, and has asked far less often than epochs came."""
    job = ServedJob(server.client, "burst")
    job.register()
    open_job(visit, "burst")
    asked: list[str] = []
    visit.page.on("request", lambda request: asked.append(request.url))
    events = 60
    for n in range(events):
        job.report("node_recovered" if n % 2 else "node_failed", "n06")
        visit.page.wait_for_timeout(1)
    visit.until(f"window.replan.view.body.epoch >= {job.current()['epoch']}")
    visit.see("NOTHING DOWN", within=".verdict")
    assert sum("epochs/current" in url for url in asked) < events / 2
    assert sum("/timeline" in url for url in asked) < events


@pytest.mark.slow
def test_what_has_the_focus_keeps_it(visit: Visit, server: Server) -> None:
    """In the overview, in the history and in the what-if, while an event changes what is around it."""
    job = ServedJob(server.client, "focus")
    job.register()

    def moves(change: tuple[str, str], seen: str) -> str:
        job.report(*change)
        visit.see(seen, within="main")
        return str(visit.page.evaluate("document.activeElement.textContent"))

    visit.open()
    visit.see("focus")
    visit.page.get_by_role("link", name="focus", exact=True).focus()
    assert moves(("node_failed", "n01"), "Down: n01") == "focus"
    open_job(visit, "focus")
    visit.page.get_by_role("link", name="1", exact=True).focus()
    assert moves(("node_failed", "n05"), "Down: n01, n05") == "1"
    choose(visit, "r!")
    try_out(visit)
    visit.see("Training would go on")
    visit.page.get_by_role("button", name="Forget the what-if").focus()
    assert moves(("node_recovered", "n05"), "The job moved on to epoch") == "Forget the what-if"


@pytest.mark.slow
def test_closed_views_leave_nothing_behind(visit: Visit) -> None:
    """After ten more views the page holds as many elements and listeners as after the first few."""
    tools = visit.page.context.new_cdp_session(visit.page)
    tools.send("Performance.enable")

    def held() -> tuple[float, float]:
        for _ in range(2):
            tools.send("HeapProfiler.collectGarbage")
        found = {metric["name"]: metric["value"] for metric in tools.send("Performance.getMetrics")["metrics"]}
        return found["Nodes"], found["JSEventListeners"]

    def look(times: int) -> None:
        for _ in range(times):
            visit.page.evaluate("location.hash = '#/'")
            visit.see("without a plan")
            visit.page.evaluate("location.hash = '#/jobs/hurt'")
            visit.until("window.replan.view.plans?.every(Boolean)")
            visit.see("History", within="main")

    open_job(visit, "hurt")
    look(3)
    nodes, listeners = held()
    look(10)
    after = held()
    # A view has some 900 elements and 60 listeners.
    assert after[0] < nodes + 900
    assert after[1] < listeners + 60


@pytest.mark.slow
def test_a_job_deleted_and_registered_again_is_followed(visit: Visit, server: Server) -> None:
    """What was shown as deleted is shown as it is now, as soon as it is there again."""
    job = ServedJob(server.client, "again")
    job.register()
    open_job(visit, "again")
    server.client.delete(job.path)
    visit.see("This job was deleted. What you see is how it last stood.")
    job.register()
    visit.until("document.querySelector('main .banner.problem').hidden")
    job.report("node_failed", "n06")
    visit.see("PLAN READY", within=".verdict")


@pytest.mark.slow
def test_a_job_whose_rows_are_damaged_is_not_called_deleted(visit: Visit) -> None:
    """Where the service names it as damaged the page says that, and keeps what it had."""
    open_job(visit, "hurt")
    overview = {"version": "x", "now": "2026-01-01T00:00:00Z", "jobs": [], "damaged": ["hurt"]}
    visit.page.route(
        "**/v1/overview/stream",
        lambda route: route.fulfill(
            status=200, content_type="text/event-stream", body=f"event: overview\ndata: {json.dumps(overview)}\n\n"
        ),
    )
    visit.page.evaluate("window.replan.live.again()")
    visit.see("What the service has stored of this job is damaged.")
    assert "PLAN READY" in visit.text(".verdict")


@pytest.mark.slow
def test_hidden_tabs_leave_room_for_the_one_that_is_looked_at(browser: Any, server: Server) -> None:
    """A browser holds six connections to a server: of eight tabs seven that are hidden give theirs up, and come back."""
    context = browser.new_context()
    try:
        tabs = []
        for _ in range(8):
            for tab in tabs:
                tab.evaluate(HIDE, "hidden")
            tab = context.new_page()
            tab.goto(f"{server.client.base_url}/#/jobs/hurt")
            tabs.append(tab)
        tabs[-1].get_by_role("heading", name="History").wait_for(timeout=60_000)
        tabs[0].get_by_text("Paused").wait_for(timeout=60_000)
        tabs[0].evaluate(HIDE, "visible")
        tabs[0].get_by_text("● Connected").wait_for(timeout=60_000)
    finally:
        context.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (429, '{"code": "rate_limited", "detail": "too many"}', "The service refuses this page for a while"),
        (404, "<html>", "The service answers, but not in a way that this page understands"),
        (
            200,
            "event: overview\ndata: {nonsense\n\n",
            "The service answers, but not in a way that this page understands",
        ),
        (503, '{"code": "draining", "detail": "it ends"}', "SERVICE LOST"),
    ],
)
def test_answers_that_are_no_overview(visit: Visit, status: int, body: str, says: str) -> None:
    """A refusal, another version's answer and a lost service are told apart, and all of them are got over."""
    visit.expected = (str(status),)
    pattern = "**/v1/overview/stream"
    visit.page.route(pattern, lambda route: route.fulfill(status=status, body=body, content_type="text/event-stream"))
    visit.open()
    visit.see(says, within="#lost")
    visit.page.unroute(pattern)
    visit.see("● Connected")


@pytest.mark.slow
def test_a_clock_that_is_wrong_does_not_make_things_old(browser: Any, server: Server) -> None:
    """A browser two days ahead counts ages from the service's time, and shows moments in its own zone."""
    job = ServedJob(server.client, "clock")
    job.register()
    job.report("node_failed", "n06")
    with visiting(browser, str(server.client.base_url), timezone_id="Asia/Kolkata") as visit:
        visit.page.add_init_script("const real = Date.now; Date.now = () => real() + 2 * 86400e3;")
        open_job(visit, "clock")
        since = visit.text(".verdict .since")
        assert "GMT+5:30" in since
        assert " d " not in since


@pytest.mark.slow
def test_a_what_if_that_lost_the_service_is_worked_out_later(browser: Any, tmp_path: Path) -> None:
    """Killed while something is tried: told, and gone on with once a service answers again."""
    store = tmp_path / "page.db"
    with serving(store, ready=False) as first:
        base = str(first.client.base_url)
        job = ServedJob(first.client, "job")
        job.register()
        with visiting(browser, base, expected=("ERR_", "Failed to load resource", "net::")) as visit:
            open_job(visit, "job")
            choose(visit, "r!")
            first.process.kill()
            visit.see("SERVICE LOST", within="#lost")
            try_out(visit)
            visit.see("It is worked out as soon as the service answers again.")
            visit.page.evaluate("location.hash = '#/jobs/job?try=f||n|n01'")
            visit.see("The service does not answer. It is asked for again.")
            with serving(store, "--port", base.rstrip("/").rpartition(":")[2], ready=False):
                visit.see("Training would go on")
                visit.see("History", within="main")
                visit.until("document.querySelector('main .banner.problem').hidden")
