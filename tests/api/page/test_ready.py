"""Plans made ready from the page, and reports that meet a better plan."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from api.security.scopes import Scope
from api.security.stored_keys import create_key
from api.store import Store
from tests.api.jobs.test_survival import PATIENT
from tests.api.page.steps import give_key, open_job, report, try_out
from tests.browser import Visit, visiting
from tests.jobs import DOCUMENT, TIGHT, ServedJob
from tests.serving import REPLAN, Server, serving


@pytest.mark.slow
def test_plans_are_made_ready_once_that_is_confirmed(visit: Visit, server: Server) -> None:
    """A button, how many plans that is, and another one: then each node's loss is known, and the map says it."""
    costs = DOCUMENT["stage_costs"] | {"forward_us": 1.25}
    job = ServedJob(server.client, "made-ready", DOCUMENT | {"stage_costs": costs})
    job.register()
    open_job(visit, job.id, "?mode=heat")
    visit.see("12 nodes: training goes on; how fast is not known", within=".heat")
    visit.page.get_by_role("button", name="Make plans ready…").click()
    # Four slots, one failure: nobody, or a worker of any of them.
    visit.see("Up to 5 plans", within="dialog")
    assert job.get("operations").json()["operations"] == []
    visit.page.get_by_role("button", name="Make them ready").click()
    visit.see("Plans are ready: ", within=".precompute")
    visit.see("For up to 1 more failed worker every plan is ready.", within=".heat")
    assert job.get("operations").json()["operations"][0]["tolerance"] == 1
    visit.keep("made-ready")


@pytest.mark.slow
def test_making_plans_ready_is_watched_by_who_comes_later_and_stopped(visit: Visit, server: Server) -> None:
    """A view that is opened while plans are made says how far that is; Stop ends it."""
    job = ServedJob(server.client, "stopped", TIGHT)
    job.register()
    body = {"tolerance": 5, "mode": "all", "deadline_s": 5}
    made = server.client.post(f"{job.path}/precompute", json=body).json()
    open_job(visit, job.id, "?mode=heat")
    visit.see("Making plans ready: ", within=".precompute")
    assert visit.page.get_by_role("button", name="Make plans ready…").is_disabled()
    visit.page.get_by_role("button", name="Stop", exact=True).click()
    visit.see("Stopped: ", within=".precompute")
    assert server.client.get(f"/v1/operations/{made['id']}").json()["state"] == "cancelled"


@pytest.mark.slow
def test_a_key_that_may_not_and_one_that_holds_no_more(browser: Any, tmp_path: Path) -> None:
    """Nonsense is no key; who may only read cannot have plans made; a revoked key is told, and another one goes on."""
    store = tmp_path / "page.db"
    opened = Store(str(store))
    keys = {scope: create_key(opened, name=scope.label, scope=scope) for scope in Scope}
    opened.close()
    with serving(store, ready=False, environment={"REPLAN_REQUIRE_KEYS": "true"}) as server:
        server.client.headers["Authorization"] = f"Bearer {keys[Scope.ADMIN].text}"
        ServedJob(server.client, "job").register()
        with visiting(browser, str(server.client.base_url), expected=("401", "403")) as visit:
            visit.open("#/jobs/job?mode=heat")
            visit.see("This service asks for an API key")
            give_key(visit, "\U0001f525 key")
            visit.see("this is not.", within="dialog")
            visit.page.keyboard.press("Escape")
            visit.see("The service takes no requests from this page without a key that is good.")
            visit.page.get_by_role("button", name="Give a key").click()
            give_key(visit, keys[Scope.READ].text)
            visit.see("History", within="main")
            visit.page.get_by_role("button", name="Make plans ready…").click()
            visit.page.get_by_role("button", name="Make them ready").click()
            visit.see("This key may not have plans made; ask for one with the scope admin", within="dialog")
            visit.page.keyboard.press("Escape")
            subprocess.run(
                [REPLAN, "keys", "revoke", "--store", str(store), keys[Scope.READ].key_id],
                check=True,
                capture_output=True,
            )
            visit.page.locator("dialog").wait_for(timeout=60_000)
            assert visit.page.evaluate("document.body.classList.contains('stale')")
            visit.page.wait_for_function("start => document.title.startsWith(start)", arg="KEY WANTED · ")
            give_key(visit, keys[Scope.ADMIN].text)
            visit.see("● Connected")
            visit.until("!document.body.classList.contains('stale')")


@pytest.mark.slow
def test_a_better_plan_meanwhile_does_not_stop_a_report(browser: Any, tmp_path: Path) -> None:
    """What was looked at holds as long as the failures are the same; another report in between stops it."""
    with serving(tmp_path / "page.db", "--processes", "2", environment=PATIENT) as server:
        job = ServedJob(server.client, "tight", TIGHT)
        job.register()
        before = job.report("node_failed", "n06")["epoch"]
        job.wait_for("improved", before)
        with visiting(browser, str(server.client.base_url), expected=("409",)) as visit:
            open_job(visit, "tight")
            visit.see("Not known while workers change over to this better plan.", within=".verdict")
            reported = """async ([epoch, node]) => {
              const {eventOf, report} = await import("/page/trial.js");
              try {
                await report("tight", [eventOf("node_failed", "node", [node])], epoch, () => {});
                return "reported";
              } catch (error) { return error.code; }
            }"""
            assert visit.page.evaluate(reported, [before, "n01"]) == "reported"
            assert job.current()["failures"]["nodes"] == "n[01,06]"
            assert visit.page.evaluate(reported, [before, "n03"]) == "epoch_conflict"
            assert job.current()["failures"]["nodes"] == "n[01,06]"


@pytest.mark.slow
def test_shards_that_were_restored_are_reported(visit: Visit, server: Server) -> None:
    """A job whose optimizer is sharded stops with any failure, says so before, and goes on once shards are restored."""
    job = ServedJob(server.client, "sharded", DOCUMENT | {"optimizer_state": "sharded"})
    job.register()
    open_job(visit, "sharded")
    visit.see("ONE MORE FAILURE MAY STOP TRAINING", within=".verdict")
    visit.see("each worker holds the only copy of a part of the optimizer's state", within=".verdict")
    job.report("node_failed", "n06")
    visit.see("NO PLAN", within=".verdict")
    visit.see("What if…, Optimizer shards restored, Declare.", within=".verdict ol")
    try_out(visit, "Optimizer shards restored")
    visit.see("Training would go on at")
    report(visit)
    visit.see("PLAN READY", within=".verdict")
    assert job.current()["shards_restored"]
