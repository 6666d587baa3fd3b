"""A real Chromium for tests of the page, and what a page may not do whatever is tested: complain, or ask other servers."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).parents[1]
SCREENSHOTS = ROOT / "build" / "screenshots"
"""Where each run leaves pictures of what its tests saw."""
LIMIT_S = 120
"""Seconds that anything a test waits for may take, on a busy machine too."""
MISSING = "Chromium is not installed (apt-get install chromium)"


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser of one test module; skips where there is none."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright, of the extra dev, is not installed")
    path = shutil.which("chromium")
    if path is None:
        pytest.skip(MISSING)
    with sync_api.sync_playwright() as playwright:
        # Chromium's sandbox does not run as root, and containers keep little shared memory.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Visit:
    """A tab, and what it did that it should not."""

    page: Any
    base: str
    complaints: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)
    expected: tuple[str, ...] = ()
    """Parts of complaints that a test brings about on purpose."""

    def open(self, place: str = "") -> None:
        """Go to a place of the page, such as ``#/jobs/a``."""
        self.page.goto(f"{self.base}/{place}")
        self.page.evaluate("async () => { window.replan = (await import('/page/app.js')).page; }")

    def text(self, selector: str) -> str:
        """Text of the first element that is there by then."""
        return str(self.page.locator(selector).first.inner_text())

    def see(self, text: str, *, within: str = "body") -> None:
        """Wait until a text is to be seen."""
        self.page.locator(within).get_by_text(text).first.wait_for(timeout=1000 * LIMIT_S)

    def until(self, expression: str) -> None:
        """Wait until a JavaScript expression is true."""
        # Not by the browser's own waiting: it evaluates text as code, which the page's policy forbids.
        until = time.monotonic() + LIMIT_S
        while not self.page.evaluate(expression):
            assert time.monotonic() < until, f"never became true: {expression}"
            self.page.wait_for_timeout(25)

    def keep(self, name: str) -> None:
        """Keep a picture of the whole page."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        # From the top, where the header belongs.
        self.page.evaluate("scrollTo(0, 0)")
        self.page.screenshot(path=str(SCREENSHOTS / f"{name}.png"), full_page=True)

    def check(self) -> None:
        """Nothing was complained of, and nobody but the service was asked."""
        unexpected = [text for text in self.complaints if not any(part in text for part in self.expected)]
        assert (unexpected, self.strangers) == ([], [])


@contextmanager
def visiting(browser: Any, base: str, *, expected: tuple[str, ...] = (), **options: Any) -> Iterator[Visit]:
    """A new tab with a memory of its own; checked at the end."""
    context = browser.new_context(**{"viewport": {"width": 1400, "height": 1000}, **options})
    context.set_default_timeout(1000 * LIMIT_S)
    page = context.new_page()
    visit = Visit(page, base.rstrip("/"), expected=expected)
    origin = urlsplit(visit.base)

    def asked(request: Any) -> None:
        url = urlsplit(request.url)
        if url.scheme not in ("blob", "data") and (url.scheme, url.netloc) != (origin.scheme, origin.netloc):
            visit.strangers.append(request.url)

    page.on("console", lambda m: visit.complaints.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: visit.complaints.append(str(error)))
    page.on("request", asked)
    try:
        yield visit
        visit.check()
    finally:
        context.close()
