"""What a browser shows of a real service."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from planner.formats.plan_file import load_plan
from planner.operation import Worker
from planner.timeline import timeline_of
from tests.api.page.conftest import HOSTILE
from tests.api.page.steps import DRAWN, acknowledge, choose, open_job, report, try_out
from tests.browser import Visit, visiting
from tests.jobs import DOCUMENT, TIGHT, ServedJob
from tests.serving import Server


def test_the_overview_tells_what_is_worst_first(visit: Visit) -> None:
    """Each job says what failed, what it costs and what to do; the one without a plan stands on top."""
    visit.open()
    visit.see("NO PLAN")
    titles = visit.page.locator(".card.job h2 a").all_inner_texts()
    assert titles[:2] == ["lost", "hurt"]
    lost, hurt = (visit.page.locator(".card.job").nth(n).inner_text() for n in (0, 1))
    assert "3 of 12 workers are down" in lost
    assert "Bring back any one of n02, n06 or n10 (slot 2)." in lost
    assert "replan report lost --recovered n02 (or n06 or n10)" in lost
    assert "Training is stopped already." in lost
    assert "start training again from its last checkpoint" in lost
    # 19 us of 27 us: 70.4 %.
    assert "Not known until all workers have taken the plan. Then training keeps 70.4\u00a0%." in hurt
    assert "PLAN READY, not yet taken: 0 of 11 workers" in hurt
    assert "REROUTED" not in visit.text("main")
    assert "Any one more worker: training goes on. Two more, if they are n02 and n10: it stops." in hurt
    assert "replan report hurt --recovered n06" in hurt
    assert "n06" in hurt
    assert "0 of 11 workers" in hurt
    visit.keep("overview")


def test_hostile_names_are_text(visit: Visit) -> None:
    """Markup, right-to-left letters, pictures and long words are shown as they are, and widen nothing."""
    visit.open()
    name = HOSTILE.replace("\u202e", "")
    visit.see(name)
    assert visit.page.locator("script:not([src])").count() == 0
    assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    open_job(visit, "hostile")
    visit.keep("hostile")


def test_a_job_shows_all_of_its_parts(visit: Visit) -> None:
    """The verdict, the map with the failed worker, both timelines, answers, history, downloads."""
    open_job(visit, "hurt")
    verdict = visit.text(".verdict")
    assert "PLAN READY, not yet taken" in verdict
    assert "nobody has acknowledged it" in verdict
    assert "Workers that are down (pipeline/slot): 1/2" in verdict
    assert "✕ down (1)" in visit.text(".map-card .legend")
    captions = visit.page.locator("figcaption").all_inner_texts()
    assert captions[0].startswith("This plan: one iteration every 27 us")
    assert captions[1].startswith("With everybody live: one iteration every 19 us")
    assert "Reroute in place" in visit.text("section[aria-label=answers] tr.shown")
    history = visit.page.locator("section[aria-label=history] tbody tr").all_inner_texts()
    assert "down: 1/2" in history[0]
    assert len(history) == 2
    visit.keep("job")


def test_bars_are_those_of_the_plan_file(visit: Visit, server: Server) -> None:
    """Every operation that the browser draws stands where `replan show` draws it."""
    open_job(visit, "hurt")
    plan = load_plan(server.client.get("/v1/jobs/hurt/epochs/2/plan").content)
    timeline = timeline_of(plan)
    expected = {
        str(worker): [[str(bar.operation), bar.start_ns, bar.end_ns, bar.rerouted] for bar in timeline.bars(worker)]
        for worker in (Worker(k, s) for k in range(3) for s in range(4))
    }
    drawn = visit.page.evaluate(
        """() => {
          const t = window.replan.view.timeline.charts[0].gantt.timeline;
          const rows = (w) => Array.from({length: t.offsets[w + 1] - t.offsets[w]}, (_, n) => t.offsets[w] + n);
          return Object.fromEntries(Array.from({length: t.numWorkers}, (_, w) => [t.nameOf(w),
            rows(w).map((row) => [t.label(row), t.start_ns[row], t.end_ns[row], Boolean(t.rerouted[row])])]));
        }"""
    )
    assert drawn == expected
    assert drawn["1/2"] == []


@pytest.mark.slow
def test_memory_and_syncs_are_those_of_the_plan_file(visit: Visit, server: Server) -> None:
    """What a worker holds over time, and when its slot syncs, are what `planner.timeline` says of the same plan."""
    costs = TIGHT["stage_costs"] | {"all_reduce_us": 40, "optimizer_us": 5}
    job = ServedJob(server.client, "memory", TIGHT | {"stage_costs": costs})
    job.register()
    job.report("node_failed", "n06")
    open_job(visit, "memory")
    shown = visit.page.evaluate("window.replan.view.body.epoch")
    timeline = timeline_of(load_plan(job.get(f"epochs/{shown}/plan").content))
    drawn = visit.page.evaluate(
        """() => {
          const t = window.replan.view.plans[0];
          const changes = (w) => t.memory(w).filter(([, held], n, all) => held !== (n ? all[n - 1][1] : 0));
          const syncs = t.head.slots.map((s) => [s.sync_start_ns, s.sync_ns]);
          return [Array.from({length: t.numWorkers}, (_, w) => changes(w)), syncs];
        }"""
    )
    assert drawn[0] == [[list(step) for step in timeline.memory(Worker(k, s))] for k in range(3) for s in range(4)]
    assert any(drawn[0])
    assert drawn[1] == [[sync.start_ns, sync.duration_ns] for sync in timeline.syncs]
    assert all(sync.duration_ns == 45_000 for sync in timeline.syncs)


@pytest.mark.slow
def test_pixels_have_the_colour_of_what_runs(visit: Visit) -> None:
    """At 0 worker 0/0 runs F, in blue; at 26.5 us it is idle; worker 1/2 is down and has no bar."""
    visit.expected = ("willReadFrequently",)
    open_job(visit, "hurt")
    pixel = """([row, ns]) => {
      const {timeline} = window.replan.view, {gantt} = timeline.charts[0], {view} = timeline;
      const x = gantt.gutter + (ns - view.from) / (view.to - view.from) * gantt.plotWidth, y = (row + 0.2) * view.rowHeight;
      return [...gantt.canvas.getContext("2d").getImageData(x * gantt.ratio, y * gantt.ratio, 1, 1).data].slice(0, 3);
    }"""
    assert visit.page.evaluate(pixel, [0, 300]) == [0x56, 0xB4, 0xE9]
    assert visit.page.evaluate(pixel, [0, 26_500]) == [0xE9, 0xEC, 0xF0]
    # The foot of a rerouted bar is dark: 0/2 runs 2F1.1 from 3 us on.
    foot = pixel.replace("row + 0.2", "row + 0.9")
    start = visit.page.evaluate(
        """() => { const t = window.replan.view.timeline.charts[0].gantt.timeline;
                   for (let row = t.offsets[2]; ; row += 1) if (t.rerouted[row]) return t.start_ns[row]; }"""
    )
    assert visit.page.evaluate(foot, [2, start + 400]) == [0x16, 0x20, 0x2B]


def test_zoom_and_pan_by_keyboard_and_link(visit: Visit, server: Server, browser: Any) -> None:
    """Keys move the time; the address follows, and opened anew it shows the same."""
    open_job(visit, "hurt")
    visit.page.locator("canvas.gantt").first.focus()
    for key in ("+", "+", "ArrowRight", "PageDown"):
        visit.page.keyboard.press(key)
    view = "(({from, to, worker}) => [Math.round(from), Math.round(to), worker])(window.replan.view.timeline.view)"
    shown = visit.page.evaluate(view)
    assert shown[1] - shown[0] < 29_000 * 0.5
    assert "busy" in visit.text(".details")
    visit.until("location.hash.includes('worker=0%2F0')")
    with visiting(browser, visit.base) as other:
        other.open(visit.page.evaluate("location.hash"))
        other.until(DRAWN)
        other.until(f"JSON.stringify({view}) === '{json.dumps(shown, separators=(',', ':'))}'")


def test_what_if_changes_nothing_until_it_is_confirmed(visit: Visit, server: Server) -> None:
    """The plan that would be served appears with its figures; the job keeps its epoch until a second, confirmed step."""
    job = ServedJob(server.client, "tried")
    job.register()
    job.report("node_failed", "n06")
    open_job(visit, "tried")
    choose(visit, "rdd!")  # worker 0/2 on node n02
    try_out(visit)
    visit.see("Training would go on at 35.2\u00a0% of the fault-free throughput.")
    rows = dict(row.split("\t", 1) for row in visit.page.locator(".what-if tbody tr").all_inner_texts())
    # Slot 2 has one worker left for 18 microbatches of 3 us: 54 us.
    assert rows["Iteration time (period)"] == "27 us\t54 us"
    assert rows["Workers down"] == "1\t2"
    answer = server.client.post(
        f"{job.path}/what-if", json={"events": [{"kind": "node_failed", "nodes": "n02"}]}
    ).json()
    assert f"New connections\n{answer['would_be']['num_new_pairs']}" in visit.text(".result")
    assert job.current()["epoch"] == 2
    visit.keep("what-if")
    visit.until("location.hash.includes('try=')")
    visit.page.reload()
    visit.see("Training would go on at 35.2\u00a0%")
    visit.see("WHAT-IF: nothing of this has happened")
    assert "(live, not the what-if)" in visit.text("figcaption")
    visit.page.get_by_role("button", name="Declare n02 failed… (changes the live job)").click()
    report = visit.page.get_by_role("button", name="Declare now")
    assert report.is_disabled()
    visit.keep("confirm")
    visit.page.get_by_role("checkbox", name="It has happened").check()
    report.click()
    visit.see("Workers that are down (pipeline/slot): 0/2 1/2")
    assert job.current()["epoch"] == 3
    assert visit.page.locator(".trial li").count() == 0
    assert not visit.page.locator(".trying").is_visible()
    assert "(live" not in visit.text("figcaption")


def test_a_live_event_appears_by_itself(visit: Visit, server: Server) -> None:
    """In the overview and in the open job, also while something is tried, which is then worked out anew."""
    job = ServedJob(server.client, "live")
    job.register()
    visit.open()
    visit.see("live")
    open_job(visit, "live")
    choose(visit, "r!")  # worker 0/0 on node n00
    try_out(visit)
    visit.see("Training would go on")
    job.report("node_failed", "n06")
    visit.see("Workers that are down (pipeline/slot): 1/2")
    visit.see("The job moved on to epoch 2 meanwhile")
    visit.see("Now (epoch 2)")
    job.client.post(f"{job.path}/epochs/2/acknowledgements", json={"worker": "0/0"})
    visit.see("1 of 11 workers")


def test_a_plan_is_called_in_force_once_everybody_has_it(visit: Visit, server: Server) -> None:
    """Ready, taken by some, taken by all; after a minute in which some do not take it, what to look at."""
    job = ServedJob(server.client, "taken")
    job.register()
    visit.open()
    card = ".card.job:has(a[href$='taken'])"
    visit.see("NOTHING DOWN, but no worker has taken the plan yet", within=card)
    visit.see("Nothing, once all workers have taken the plan.", within=card)
    job.report("node_failed", "n06")
    visit.see("Wait 60 s: workers fetch the plan by themselves.", within=card)
    job.client.post(f"{job.path}/epochs/2/acknowledgements", json={"worker": "0/0"})
    visit.see("PLAN READY, taken so far: 1 of 11 workers", within=card)
    open_job(visit, "taken")
    visit.see("Wait 60 s", within=".verdict ol")
    visit.page.wait_for_function("start => document.title.startsWith(start)", arg="PLAN NOT TAKEN · ")
    visit.page.evaluate("window.replan.live.now = () => Date.now() + 61_000")
    visit.see("10 workers have not taken it in 60 s.", within=".verdict ol")
    visit.see("replan jobs show taken", within=".verdict code")
    visit.keep("not-taken")
    acknowledge(job)
    visit.see("REROUTED around what failed", within=".verdict")
    visit.see("29.6\u00a0% of the throughput: training keeps 70.4\u00a0%.", within=".verdict")
    visit.keep("taken")


def test_a_node_that_is_back_is_declared_from_the_top(visit: Visit, server: Server) -> None:
    """Its button asks whether that has happened; nothing changes before, and one step is over afterwards."""
    job = ServedJob(server.client, "button")
    job.register()
    job.report("node_failed", "n06")
    open_job(visit, "button")
    visit.page.get_by_role("button", name="n06 is back…").click()
    visit.see("n06: back, at full speed", within="dialog")
    assert job.current()["epoch"] == 2
    visit.page.get_by_role("checkbox", name="It has happened").check()
    visit.page.get_by_role("button", name="Declare now").click()
    visit.see("NOTHING DOWN", within=".verdict")
    assert job.current()["failures"]["nodes"] == ""


@pytest.mark.slow
def test_which_node_hurts_most(visit: Visit, server: Server) -> None:
    """With one worker of slot 2 down the next one there hurts most; with two down it stops training."""
    job = ServedJob(server.client, "heat")
    job.register()
    job.report("node_failed", "n[02,06]")
    open_job(visit, "heat", "?mode=heat")
    visit.see("⚠ ONE MORE FAILURE MAY STOP TRAINING", within=".verdict")
    visit.see("Training stops if it is n10: nobody else is left in slot 2.", within=".verdict")
    visit.see("n10, slot 2: stops training", within=".heat")
    heat = server.client.get(f"{job.path}/heat").json()
    assert heat["node_groups"][10] == 0
    assert heat["groups"][0]["outcome"] == "stage_lost"
    assert heat["node_groups"][2] is None
    visit.keep("heat")


@pytest.mark.slow
def test_a_job_deleted_while_it_is_shown(visit: Visit, server: Server) -> None:
    """The page says so and keeps what it had; a job that never was is told too."""
    visit.expected = ("404",)
    job = ServedJob(server.client, "gone")
    job.register()
    open_job(visit, "gone")
    server.client.delete(job.path)
    visit.see("This job was deleted.")
    visit.open("#/jobs/nobody")
    visit.see("There is no such job")


@pytest.mark.slow
def test_an_old_epoch_says_that_it_is_old(visit: Visit) -> None:
    """The link of an epoch shows that epoch, and the way back to the current one."""
    visit.open("#/jobs/hurt?epoch=1")
    visit.see("This is epoch 1, not what runs now: the job is at epoch 2.")
    visit.see("NOTHING DOWN")
    visit.page.get_by_role("link", name="Follow the current epoch").click()
    visit.see("PLAN READY")


@pytest.mark.slow
def test_downloads_are_what_the_service_has(visit: Visit, server: Server, tmp_path: Path) -> None:
    """Plan file, trace, program and SVG are saved under names that say what they are."""
    open_job(visit, "hurt")

    def saved(button: str) -> tuple[str, bytes]:
        with visit.page.expect_download() as info:
            visit.page.get_by_role("button", name=button, exact=True).click()
        path = tmp_path / "saved"
        info.value.save_as(path)
        return info.value.suggested_filename, path.read_bytes()

    name, plan = saved("Plan file")
    assert name == "hurt-epoch-2-plan.json"
    assert plan == server.client.get("/v1/jobs/hurt/epochs/2/plan").content
    trace = json.loads(saved("Chrome trace")[1])
    assert (
        sum(event["ph"] == "X" and event.get("cat") in "FIWB" for event in trace["traceEvents"] if "cat" in event)
        >= 216
    )
    assert json.loads(saved("Program of worker")[1])["worker"] == "0/0"
    svg = saved("SVG")[1].decode()
    assert svg.startswith("<svg xmlns")
    assert svg.count("<title>") == 2 * 216


def test_a_phone_shows_the_same(browser: Any, server: Server) -> None:
    """On 390 pixels nothing is wider than the screen, in every view."""
    with visiting(
        browser, str(server.client.base_url), viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True
    ) as phone:
        phone.open()
        phone.see("NO PLAN")
        phone.keep("phone-overview")
        open_job(phone, "hurt")
        assert phone.page.evaluate("document.documentElement.scrollWidth") == 390
        assert "Wheel with Ctrl" not in str(phone.page.locator("main").text_content())
        phone.keep("phone-job")
        charts = phone.page.locator("canvas.gantt")
        assert not charts.first.is_visible()
        phone.page.get_by_role("button", name="Show timeline").click()
        charts.first.wait_for()
        assert phone.page.evaluate("document.documentElement.scrollWidth") == 390
        phone.page.get_by_role("button", name="Hide timeline").click()
        assert not charts.first.is_visible()


@pytest.mark.slow
def test_a_page_of_another_version_says_so(browser: Any, server: Server) -> None:
    """Where the service was replaced while the page was open, it offers to load itself anew."""
    with visiting(browser, str(server.client.base_url)) as visit:

        def older(route: Any) -> None:
            answer = route.fetch()
            version = server.client.get("/healthz").json()["version"]
            route.fulfill(response=answer, body=answer.text().replace(f'content="{version}"', 'content="0.0.1"'))

        visit.page.route(f"{visit.base}/", older)
        visit.open()
        visit.see("this page of 0.0.1")


@pytest.mark.slow
def test_a_large_name_in_the_address_does_no_harm(visit: Visit) -> None:
    """A link with nonsense in it shows that there is no such job."""
    visit.expected = ("422", "404")
    visit.open("#/jobs/%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E?from=NaN&to=x&worker=9/9&try=%7C%7C&epoch=-1")
    visit.page.locator("main .banner.problem").wait_for()
    assert visit.page.locator("main img").count() == 0


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["magic", "version", "cut"])
def test_a_timeline_that_cannot_be_read_is_told(visit: Visit, server: Server, damage: str) -> None:
    """The rest of the job is shown all the same."""
    content = server.client.get("/v1/jobs/hurt/epochs/2/timeline").content
    broken = {
        "magic": b"x" + content[1:],
        "version": content.replace(b'"version":1', b'"version":9'),
        "cut": content[:-4000],
    }[damage]
    visit.page.route(
        "**/v1/**/timeline*",
        lambda route: route.fulfill(status=200, body=broken, content_type="application/octet-stream"),
    )
    visit.open("#/jobs/hurt")
    visit.see("History", within="main")
    visit.see({"magic": "Not a timeline", "version": "A timeline of version 9", "cut": "Invalid typed array"}[damage])


def test_what_one_more_failure_would_do_stands_at_the_top(visit: Visit, server: Server) -> None:
    """In the overview and in the job, beside what failed, whatever view of the map is chosen."""
    job = ServedJob(server.client, "edge")
    job.register()
    job.report("node_failed", "n[02,06]")
    visit.open()
    visit.see("that one more failure may stop", within=".summary")
    card = visit.page.locator(".card.job", has=visit.page.get_by_role("link", name="edge", exact=True))
    assert "ONE MORE FAILURE MAY STOP TRAINING" in card.inner_text()
    open_job(visit, "edge")
    visit.see("⚠ ONE MORE FAILURE MAY STOP TRAINING", within=".verdict")
    visit.see("Training stops if it is n10: nobody else is left in slot 2.", within=".verdict")
    red = visit.page.evaluate("getComputedStyle(document.querySelector('.edge-note')).color")
    assert red == "rgb(168, 16, 28)"
    visit.see("Bring back n02 or n06 first.", within=".verdict ol")
    visit.see("Do not touch n10 (the last of slot 2). Save a checkpoint now, if you can.", within=".verdict ol")
    visit.keep("edge")


@pytest.mark.slow
def test_costs_that_are_not_known_are_not_called_cheapest(visit: Visit, server: Server) -> None:
    """Without the job's figures the answer with the shortest iteration is marked; with them the one that costs least."""
    open_job(visit, "hurt")
    assert "shortest iteration" in visit.text("section[aria-label=answers] tr.shown")
    assert "cheapest" not in visit.text("main")
    answers = visit.text("section[aria-label=answers]")
    assert "Expected loss" not in answers
    assert "Not fully known: Stop and wait for the repair (repair_s is not known)" in answers
    assert "Not possible: Migrate workers, then reroute (" in answers
    recovery = {
        "repair_s": 3600,
        "restart_s": 300,
        "checkpoint_interval_s": 1800,
        "mean_time_between_failures_s": 36000,
    }
    ServedJob(server.client, "costed", DOCUMENT | {"recovery": recovery}).register()
    ServedJob(server.client, "costed").report("node_failed", "n06")
    open_job(visit, "costed")
    assert "costs least" in visit.text("section[aria-label=answers] tbody")
    assert "Expected loss" in visit.text("section[aria-label=answers] thead")


@pytest.mark.slow
def test_what_a_job_without_a_plan_comes_back_from(visit: Visit, server: Server) -> None:
    """Who follows the steps restores a worker, is told of the checkpoint before and after, and gets a plan."""
    job = ServedJob(server.client, "back")
    job.register()
    job.report("node_failed", "n[02,06,10]")
    open_job(visit, "back")
    visit.see("Bring back any one of n02, n06 or n10 (slot 2).", within=".verdict ol")
    visit.see("replan report back --recovered n02", within=".verdict ol")
    visit.page.get_by_role("button", name="✕ 0/2").click()
    try_out(visit, "Restore")
    visit.see("Training would have to start from its last checkpoint", within=".what-if")
    report(visit)
    visit.see("Start training from its last checkpoint", within=".verdict")
    assert job.current()["failures"]["nodes"] == "n[06,10]"
    visit.until("!document.querySelector('.choice').textContent.includes('DOWN')")
    visit.keep("back")
