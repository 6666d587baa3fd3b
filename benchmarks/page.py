"""The page's drawing: ``python -m benchmarks.page [--steps 40] [--json FILE]``.

Loads the page's own modules from a real server into a real Chromium and measures, on a screen of 1400 x 1000:

- *first*: the first drawing of a timeline, from its bytes to its pixels, with 20,000 bars on the screen and with a million;
- *zoom*: a step of the zoom, the median of many;
- *map*: the first drawing of 1,024 pipelines x 16 slots, and of 128 x 16;
- *event*: from a report's answer to the open overview that shows it;
- what all of the page's files weigh, packed.

Pixels are read back at the end of each drawing, so that nothing of it is put off.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from planner.formats.documents import parse_document

EXAMPLE = Path(__file__).parent.parent / "examples" / "recycle-worked-example.yaml"
EVENTS = 12
_SHAPES = {
    "20k_bars": (8, 8, 320, 9.5),
    "1m_operations": (8, 8, 15_625, 9.5),
    "1m_on_16384": (1024, 16, 61, 2),
}
"""Pipelines, slots, operations of each worker, and the height of a row in pixels."""

_SETUP = Path(__file__).with_suffix(".js")
"""A function that is run in the page and leaves `bench` there."""


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """Address of a server that has just started."""
    replan = str(Path(sys.executable).with_name("replan"))
    command = [replan, "serve", "--port", "0", "--store", str(folder / "page.db"), "--json", "--log-level", "error"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield next(match[1] for line in process.stdout if (match := re.search(r'"url": "([^"]+)"', line)))
        finally:
            process.kill()


def measure(page: Any, base: str, *, steps: int) -> dict[str, float]:
    """All figures, milliseconds and bytes."""
    page.goto(f"{base}/")
    page.get_by_text("No job is registered").wait_for()
    while page.evaluate("fetch('readyz').then((answer) => answer.status)") != 200:
        time.sleep(0.2)
    found: dict[str, float] = {"page_bytes": _weight(page, base)}
    found |= _events(page, base)
    page.goto(f"{base}/#/nothing")
    page.evaluate(_SETUP.read_text(encoding="utf-8"))
    for name, shape in _SHAPES.items():
        result = page.evaluate("(shape) => bench.timeline(...shape)", [*shape, steps])
        found[f"{name}_shown"] = result["bars"]
        found[f"{name}_first_ms"] = result["first"]
        found[f"{name}_zoom_median_ms"] = statistics.median(result["zooms"])
        found[f"{name}_zoom_worst_ms"] = max(result["zooms"])
    for pipelines in (128, 1024):
        times = [page.evaluate("(p) => bench.map(p, 16)", pipelines) for _ in range(5)]
        found[f"map_{pipelines}x16_first_ms"] = times[0]
        found[f"map_{pipelines}x16_median_ms"] = statistics.median(times)
    return found


def _weight(page: Any, base: str) -> int:
    names = page.evaluate(
        "performance.getEntriesByType('resource').map((e) => e.name).filter((n) => n.includes('/page/'))"
    )
    total = 0
    for url in {f"{base}/", *names}:
        request = urllib.request.Request(url, headers={"Accept-Encoding": "gzip"})
        with urllib.request.urlopen(request) as answer:
            total += len(answer.read())
    return total


def _events(page: Any, base: str) -> dict[str, float]:
    """Times from reports' answers to their being seen."""

    def send(method: str, path: str, body: dict[str, Any]) -> Any:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(base + path, json.dumps(body).encode(), headers, method=method)
        with urllib.request.urlopen(request) as answer:
            return json.loads(answer.read())

    send("PUT", "/v1/jobs/job", {"job": parse_document(EXAMPLE.read_text(), format="yaml")})
    times = []
    for n in range(EVENTS):
        kind = "node_recovered" if n % 2 else "node_failed"
        epoch = send("POST", "/v1/jobs/job/events", {"kind": kind, "nodes": "n06"})["epoch"]
        began = time.perf_counter()
        # By the page's own figures: what is found is what is drawn.
        while not page.locator(".card.job .figure dd").first.inner_text().startswith(str(epoch)):
            time.sleep(0.005)
        times.append(1000 * (time.perf_counter() - began))
    return {"event_median_ms": statistics.median(times), "event_worst_ms": max(times)}


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    parser = argparse.ArgumentParser(prog="benchmarks.page")
    parser.add_argument("--steps", type=int, default=40, help="steps of the zoom")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, server(Path(folder)) as base, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        found = measure(page, base, steps=options.steps)
        browser.close()
    for name, value in found.items():
        print(f"{name:28} {value:12,.1f}")
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
