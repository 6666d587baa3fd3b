"""Links, bookmarks, and the browser's own buttons."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from tests.api.page.steps import DRAWN, choose, open_job, try_out
from tests.browser import Visit, visiting
from tests.jobs import DOCUMENT, ServedJob
from tests.serving import Server

RACK = "<script>alert(1)</script>\u05d0|" + "long" * 20


def test_to_the_content_stays_in_the_view(visit: Visit) -> None:
    """The first thing that Tab comes to leads behind the header, and nowhere else."""
    open_job(visit, "hurt")
    visit.page.keyboard.press("Tab")
    visit.page.keyboard.press("Enter")
    assert visit.page.evaluate("document.activeElement.id") == "main"
    assert visit.page.evaluate("location.hash") == "#/jobs/hurt"
    assert visit.text("h1") == "hurt"


@pytest.mark.slow
def test_back_and_forward(visit: Visit) -> None:
    """Each view that was gone to is come back to as it was left."""
    visit.open()
    visit.page.get_by_role("link", name="hurt", exact=True).click()
    visit.see("History", within="main")
    choose(visit, "rd!")
    visit.until("location.hash.includes('worker=0%2F1')")
    visit.page.get_by_role("link", name="1", exact=True).click()
    visit.see("This is epoch 1, not what runs now")
    visit.page.go_back()
    visit.until("document.querySelector('.verdict .state')?.textContent.includes('PLAN READY')")
    visit.until("window.replan.view.map.chosen === 1")
    visit.page.go_back()
    visit.see("without a plan")
    visit.page.go_forward()
    visit.see("History", within="main")
    # The address that is there already, typed without what was added to it.
    visit.until("location.hash.includes('worker=')")
    visit.page.evaluate("location.hash = '#/jobs/hurt'")
    visit.until("window.replan.view.map.cells && window.replan.view.map.chosen === null")


@pytest.mark.slow
@pytest.mark.parametrize(
    "query",
    ["?from=-1e308&to=1e308", "?from=1e300&to=2e300", "?from=5&to=10", "?from=2&to=1", "?top=1e12&row=1e9", "?row=-5&top=-9",
     "?worker=99999999999999999999/0", "?epoch=1e99", "?epoch=0", "?mode=x&from=&to="],
)  # fmt: skip
def test_a_link_without_sense_shows_the_whole_plan(visit: Visit, query: str) -> None:
    """Whatever its figures are, what is shown lies on the plan, and can be zoomed."""
    open_job(visit, "hurt", query)
    view = "(({from, to, top, rowHeight}) => [from, to, top, rowHeight])(window.replan.view.timeline.view)"
    for _ in range(2):
        start, end, top, row = visit.page.evaluate(view)
        assert -2_000 <= start < end <= 31_000
        assert (0 <= top <= 12, 2 <= row <= 40) == (True, True)
        visit.page.get_by_role("button", name="zoom in").click()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("event", "says"),
    [
        ("f||n|nope", "Node nope is no node of job"),
        ("s|7|n|n01", "1 event of the link cannot be read and is left out."),
        ("s|0|n|n01", "1 event of the link cannot be read and is left out."),
        ("%zz", "1 event of the link cannot be read and is left out."),
        ("f||r|nowhere", "1 event of the link cannot be read and is left out."),
        ("f||n|n06", "All of n06 is down already"),
        ("r||n|n01", "n01 cannot recover: nobody reported it"),
    ],
)
def test_a_link_with_an_event_that_cannot_be(visit: Visit, event: str, says: str) -> None:
    """It is told, with names as they are written, and the what-if can be forgotten."""
    visit.expected = ("409", "422")
    open_job(visit, "hurt", f"?try={quote(event)}")
    visit.see(says, within=".what-if")


@pytest.mark.slow
def test_more_events_than_can_be_tried(visit: Visit) -> None:
    """70 events of a link are too many for the service, which says so."""
    visit.expected = ("422",)
    open_job(visit, "hurt", "?" + "&".join(["try=f||n|n01"] * 70))
    visit.see("at most 64 entries", within=".result")


@pytest.mark.slow
def test_a_link_of_an_epoch_that_never_was(visit: Visit) -> None:
    """It is told, and the way to what there is."""
    visit.expected = ("404",)
    visit.open("#/jobs/hurt?epoch=99")
    visit.see("names an epoch that is not there")
    visit.page.get_by_role("link", name="Follow the current epoch").click()
    visit.see("PLAN READY")


@pytest.mark.slow
def test_a_copied_link_brings_the_what_if_back(visit: Visit, server: Server, browser: Any) -> None:
    """With a rack of any name; once the job moved on it offers to try on what is current."""
    topology = {key: value for key, value in DOCUMENT["topology"].items() if key != "nodes_per_rack"}
    racks = {RACK: "n[00-01]", "other": "n[02-11]"}
    job = ServedJob(server.client, "linked", DOCUMENT | {"topology": topology | {"racks": racks}})
    job.register()
    visit.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_job(visit, "linked")
    choose(visit, "r!")
    visit.page.get_by_label("Try with").select_option(index=1)
    try_out(visit)
    visit.see("Training would go on")
    visit.page.get_by_role("button", name="Copy a link to this view").click()
    visit.see("Copied.")
    link = visit.page.evaluate("navigator.clipboard.readText()")
    shown = visit.text(".trial li")
    assert RACK in shown
    with visiting(browser, visit.base, expected=("409",)) as other:
        other.open(link[link.index("#") :])
        other.until(DRAWN)
        other.see("Training would go on")
        assert other.text(".trial li") == shown
        job.report("node_failed", "n06")
        other.page.reload()
        other.see("This was to be tried on epoch 1, but the job is at epoch 2 by now.")
        other.page.get_by_role("link", name="Try it on the current epoch").click()
        other.see("Now (epoch 2)")
        assert other.text(".trial li") == shown


@pytest.mark.slow
def test_an_epoch_of_another_layout_shows_its_own_map(visit: Visit, server: Server) -> None:
    """After a revision with other nodes the old epoch is still drawn on the old ones."""
    job = ServedJob(server.client, "revised")
    job.register()
    layout = DOCUMENT["layout"] | {"data_parallel": 4}
    ServedJob(
        server.client,
        "revised",
        DOCUMENT | {"layout": layout, "topology": DOCUMENT["topology"] | {"nodes": "m[00-15]"}},
    ).register()
    open_job(visit, "revised")
    shown = "[window.replan.view.map.cells.length, window.replan.view.map.cluster.nodes[0]]"
    assert visit.page.evaluate(shown) == [16, "m00"]
    open_job(visit, "revised", "?epoch=1")
    visit.until(f"JSON.stringify({shown}) === '[12,\"n00\"]'")
