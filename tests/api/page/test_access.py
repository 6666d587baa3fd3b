"""The page by keyboard, by ear, by touch, on a phone, and in other colours."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.page.conftest import HOSTILE
from tests.api.page.steps import choose, open_job
from tests.browser import Visit, visiting
from tests.jobs import DOCUMENT, ServedJob
from tests.serving import Server

TEXTS = """() => {
  window.texts = [];
  const draw = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
    window.texts.push(text);
    return draw.call(this, text, ...rest);
  };
}"""
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


def drawn_texts(visit: Visit, job: str, query: str = "") -> set[str]:
    """Texts that canvases draw, once a job is there."""
    visit.page.add_init_script(f"({TEXTS})()")
    open_job(visit, job, query)
    visit.until("window.replan.view.heat !== null && window.replan.view.plans.some(Boolean)")
    visit.page.evaluate("window.texts.length = 0; window.replan.view.map.draw(); window.replan.view.timeline.draw()")
    return set(visit.page.evaluate("window.texts"))


def test_names_of_machines_are_seen_and_not_hovered_for(visit: Visit) -> None:
    """Map and rows of the timeline name nodes; who is down is listed in text, with node and rack, to be chosen."""
    assert {"n06", "n10", "✕ 1/2", "0/2", "s2", "down"} <= drawn_texts(visit, "hurt")
    assert visit.page.locator(".hurt-list li").all_inner_texts() == ["✕ 1/2 n06, rack0"]
    visit.page.get_by_role("button", name="✕ 1/2").click()
    visit.see("Worker 1/2 · Node n06 · Rack rack0 · DOWN", within=".what-if")


@pytest.mark.slow
def test_colours_are_not_the_only_sign(visit: Visit, server: Server) -> None:
    """On the map of losses a word says the same as each colour, and so does a list."""
    job = ServedJob(server.client, "signs")
    job.register()
    job.report("node_failed", "n[02,06]")
    texts = drawn_texts(visit, "signs", "?mode=heat")
    assert {"STOPS", "?"} <= texts
    visit.see("n10, slot 2: stops training", within=".heat")
    visit.see("9 nodes: training goes on; how fast is not known", within=".heat")


@pytest.mark.slow
def test_long_names_keep_what_tells_them_apart(visit: Visit, server: Server) -> None:
    """Of machines that share a domain and much of their names, the ends are drawn, and the domain is left out."""
    name = "accelerated-computing-instance-row-seventeen-"
    topology = DOCUMENT["topology"] | {"nodes": f"{name}[00-11].cluster.example.internal"}
    ServedJob(server.client, "named", DOCUMENT | {"topology": topology}).register()
    texts = drawn_texts(visit, "named")
    assert any(text.endswith("-07") and text.startswith("…") for text in texts)
    assert not any("internal" in text for text in texts)


@pytest.mark.slow
def test_a_worker_is_found_by_name(visit: Visit) -> None:
    """By worker, node, part of a node, and not at all by what is not there."""
    open_job(visit, "hurt")
    find = visit.page.get_by_role("searchbox", name="Find")
    for text, chosen in (("1/2", 6), ("n10", 10), ("07", 7), ("rack0", 0)):
        find.fill(text)
        find.press("Enter")
        assert visit.page.evaluate("window.replan.view.map.chosen") == chosen
    for text in ("nobody", "9/9", ""):
        find.fill(text)
        find.press("Enter")
        visit.see("nobody of that name")
    assert visit.page.evaluate("window.replan.view.map.chosen") == 0


@pytest.mark.slow
def test_what_a_screen_reader_finds(visit: Visit) -> None:
    """Headings, figures, the map, charts and tables have names and roles, on a phone too."""
    open_job(visit, "hurt")
    snapshot = visit.page.locator("main").aria_snapshot()
    for line in (
        'heading "hurt" [level=1]',
        'heading "What failed" [level=2]',
        'heading "If one more fails" [level=2]',
        'application "cluster map',
        'application "This plan: bars by worker',
        'columnheader "Iteration time"',
        'rowheader "Reroute in place shortest iteration this plan"',
        'searchbox "Find"',
    ):
        assert line in snapshot, line
    visit.page.set_viewport_size({"width": 390, "height": 844})
    narrow = visit.page.locator("section[aria-label=answers]").aria_snapshot()
    assert 'row "Reroute in place' in narrow
    assert 'cell "Iteration time: 27 us"' in narrow


@pytest.mark.slow
def test_everything_is_reached_by_keyboard(visit: Visit) -> None:
    """Tab comes to every control once, and what has the focus is never under the header."""
    open_job(visit, "hurt")
    choose(visit, "r!")
    wanted = visit.page.evaluate(
        """() => [...document.querySelectorAll('a[href], button, input, select, canvas[tabindex]')]
          .filter((e) => e.checkVisibility() && !e.disabled && !(e.type === 'radio' && !e.checked)).length"""
    )
    visit.page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    reached: set[str] = set()
    hidden = []
    for _ in range(wanted):
        visit.page.keyboard.press("Tab")
        at = visit.page.evaluate(
            """() => {
              const e = document.activeElement, all = [...document.querySelectorAll('*')];
              const bottom = (element) => element.getBoundingClientRect().bottom;
              const under = !e.closest('header') && e.id !== 'skip' && bottom(e) <= bottom(document.querySelector('header'));
              return [String(all.indexOf(e)), under ? e.outerHTML.slice(0, 60) : null]; }"""
        )
        reached.add(at[0])
        hidden += [at[1]] if at[1] else []
    assert len(reached) == wanted
    assert hidden == []


def test_words_are_explained(visit: Visit) -> None:
    """A button tells what slot, period, gap and bubble mean, and gives the focus back."""
    visit.open()
    button = visit.page.get_by_role("button", name="What the words mean")
    button.click()
    words = visit.page.locator("dialog dt").all_inner_texts()
    assert {"slot", "iteration time (period)", "bound, gap", "bubble", "epoch", "checkpoint"} <= set(words)
    visit.page.keyboard.press("Escape")
    assert visit.page.evaluate("document.activeElement.id") == "words"


@pytest.mark.slow
@pytest.mark.parametrize("width", [320, 390])
def test_hostile_names_fit_a_phone(browser: Any, server: Server, width: int) -> None:
    """Names of jobs, machines and racks of any kind and length are text, and nothing is wider than the screen."""
    topology = {key: value for key, value in DOCUMENT["topology"].items() if key != "nodes"}
    nodes = "node-with-a-very-long-name-somewhere-{}.example.internal"
    racks = {HOSTILE.replace("\u202e", ""): nodes.format("[00-05]"), "r|&\"'": nodes.format("[06-11]")}
    job = ServedJob(
        server.client,
        "h" * 120,
        DOCUMENT
        | {
            "name": HOSTILE.replace("\u202e", ""),
            "topology": topology | {"nodes": nodes.format("[00-11]"), "racks": racks},
        },
    )
    job.register()
    if job.current()["epoch"] == 1:
        job.report("node_failed", nodes.format("06"))
    with visiting(
        browser, str(server.client.base_url), viewport={"width": width, "height": 800}, has_touch=True
    ) as visit:
        open_job(visit, job.id, "?worker=0/2")
        visit.page.get_by_label("Try with").select_option(index=1)
        visit.page.get_by_role("button", name="Fail", exact=True).click()
        visit.see("Training would go on")
        assert "<script>alert(1)</script>" in visit.text(".trial li")
        assert visit.page.evaluate("document.documentElement.scrollWidth") == width
        assert visit.page.locator("main script").count() == 0
        visit.keep(f"hostile-{width}")
        visit.open()
        visit.see("PLAN READY")
        assert visit.page.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.slow
def test_tables_are_whole_on_a_phone(browser: Any, server: Server) -> None:
    """No cell of the answers, the history or the what-if lies beyond the screen."""
    with visiting(browser, str(server.client.base_url), **PHONE) as visit:
        open_job(visit, "hurt", "?try=f||n|n02")
        visit.see("Training would go on")
        beyond = visit.page.evaluate(
            """() => [...document.querySelectorAll('td, tbody th')].filter((cell) => {
                 const box = cell.getBoundingClientRect();
                 return box.left < 0 || box.right > innerWidth || cell.scrollWidth > cell.clientWidth + 1;
               }).map((cell) => cell.textContent)"""
        )
        assert beyond == []
        assert visit.page.locator("section[aria-label=answers]").get_by_text("repair_s is not known").is_visible()


@pytest.mark.slow
def test_fingers_move_and_zoom_the_timeline(browser: Any, server: Server) -> None:
    """One finger drags the time, two zoom it, a tap chooses; up and down still scrolls the page."""
    with visiting(browser, str(server.client.base_url), **PHONE) as visit:
        open_job(visit, "hurt")
        visit.page.get_by_role("button", name="Show timeline").click()
        visit.page.locator("canvas.gantt").first.scroll_into_view_if_needed()
        box = visit.page.locator("canvas.gantt").first.bounding_box()
        tools = visit.page.context.new_cdp_session(visit.page)
        middle = box["y"] + min(box["height"], 200) / 2

        def touch(kind: str, *xs: float, y: float = middle) -> None:
            points = [{"x": box["x"] + x, "y": y, "id": n} for n, x in enumerate(xs)]
            tools.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

        def view() -> list[float]:
            found: list[float] = visit.page.evaluate("(({from, to}) => [from, to])(window.replan.view.timeline.view)")
            return found

        before = view()
        touch("touchStart", 180, 220)
        for spread in range(10, 100, 10):
            touch("touchMove", 180 - spread, 220 + spread)
        touch("touchEnd")
        zoomed = view()
        assert zoomed[1] - zoomed[0] < (before[1] - before[0]) * 0.6
        touch("touchStart", 250)
        for x in range(245, 180, -5):
            touch("touchMove", x)
        touch("touchEnd")
        dragged = view()
        assert dragged[0] > zoomed[0]
        assert dragged[1] - dragged[0] == pytest.approx(zoomed[1] - zoomed[0])
        touch("touchStart", 200)
        touch("touchEnd")
        visit.until("window.replan.view.timeline.view.worker !== null")
        at = visit.page.evaluate("scrollY")
        touch("touchStart", 200)
        for step in range(10, 150, 10):
            touch("touchMove", 200, y=middle - step)
        touch("touchEnd")
        visit.until(f"scrollY > {at}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("dark", {"color_scheme": "dark"}),
        ("forced-colours", {"forced_colors": "active"}),
        ("more-contrast", {"contrast": "more"}),
        ("still", {"reduced_motion": "reduce"}),
    ],
)
def test_other_colours_and_no_motion(browser: Any, server: Server, name: str, options: dict[str, str]) -> None:
    """Each is drawn without a complaint; swatches keep their colours; nothing moves by itself where that is not wanted."""
    with visiting(browser, str(server.client.base_url), **options) as visit:
        open_job(visit, "hurt", "?mode=heat")
        swatch = (
            "getComputedStyle(document.querySelector('.legend .swatch.low, .legend .swatch.heat-high')).backgroundColor"
        )
        assert visit.page.evaluate(swatch) not in ("rgb(255, 255, 255)", "rgba(0, 0, 0, 0)")
        visit.keep(name)
        if "reduced_motion" in options:
            assert visit.page.evaluate("document.getAnimations().length") == 0


@pytest.mark.slow
def test_the_window_may_take_any_size(visit: Visit) -> None:
    """From a watch to a wall everything is drawn again, and nothing is wider than the window."""
    open_job(visit, "hurt")
    for width, height in ((280, 400), (3000, 1600), (700, 300), (1400, 1000)):
        visit.page.set_viewport_size({"width": width, "height": height})
        visit.until(f"document.documentElement.scrollWidth <= {width}")
        visit.until(
            """[...document.querySelectorAll('canvas.gantt')].filter((canvas) => canvas.checkVisibility()).every(
                 (canvas) => Math.abs(canvas.width - canvas.clientWidth * Math.min(devicePixelRatio, 2)) < 2)"""
        )
