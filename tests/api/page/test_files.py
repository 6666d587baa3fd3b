"""The page's files: what they may do, how they are sent, what they weigh."""

from __future__ import annotations

import asyncio
import gzip
import re
from pathlib import Path

import httpx2
import pytest

from api.app import create_app
from api.page.assets import INDEX, assets
from api.settings import Settings

STATIC = Path(__file__).parents[3] / "api" / "page" / "static"
MOST_BYTES = 300_000


def fetch(path: str, **headers: str) -> httpx2.Response:
    """Answer of an application that has opened no store: files need none."""

    async def ask() -> httpx2.Response:
        transport = httpx2.ASGITransport(app=create_app(Settings()))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.get(path, headers=headers)

    return asyncio.run(ask())


def test_the_page_lets_nothing_in() -> None:
    """Its policy names this server for everything, and no inline code, no frame, no text that becomes markup."""
    answer = fetch("/")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(part.strip().partition(" ")[::2] for part in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert {policy[name] for name in ("script-src", "style-src", "connect-src", "img-src")} == {"'self'"}
    assert {policy[name] for name in ("base-uri", "form-action", "frame-ancestors", "trusted-types")} == {"'none'"}
    assert policy["require-trusted-types-for"] == "'script'"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize("name", sorted(path.name for path in STATIC.iterdir()))
def test_each_file_is_sent_packed_and_only_once(name: str) -> None:
    """In gzip to who takes it, as it is to others, and not at all to who has it."""
    packed = fetch(f"/page/{name}", **{"Accept-Encoding": "gzip"})
    assert (packed.status_code, packed.headers["content-encoding"]) == (200, "gzip")
    plain = fetch(f"/page/{name}", **{"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert packed.content == plain.content == gzip.decompress(assets()[name].content)
    assert plain.headers["cache-control"] == "no-cache"
    assert fetch(f"/page/{name}", **{"If-None-Match": packed.headers["etag"]}).status_code == 304


def test_what_is_no_file_of_the_page_is_not_there() -> None:
    """Neither another name nor a way out of the folder leads anywhere."""
    for name in ("nothing.js", "..%2f..%2fapp.py", "__init__.py", "page.js%00"):
        answer = fetch(f"/page/{name}")
        assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json"), name


def test_the_page_is_light() -> None:
    """All of it, packed, weighs less than 300 KB."""
    assert sum(len(asset.content) for asset in assets().values()) < MOST_BYTES


def test_every_file_is_wanted_and_there() -> None:
    """What the page and its modules name is there, and nothing lies about that nobody names."""
    named = {INDEX}
    for path in STATIC.iterdir():
        text = path.read_text(encoding="utf-8")
        named |= set(re.findall(r'from "\./([\w.]+)"', text)) | set(re.findall(r'(?:href|src)="page/([\w.]+)"', text))
    assert named == {path.name for path in STATIC.iterdir()} == assets().keys()


@pytest.mark.parametrize(
    "pattern",
    [r"\binnerHTML\b", r"outerHTML", r"insertAdjacent", r"document\.write", r"\beval\b", r"new Function", r"localStorage",
     r"https?://(?!www\.w3\.org/2000/svg)"],
)  # fmt: skip
def test_modules_keep_away_from(pattern: str) -> None:
    """Markup made of text, code made of text, memory that outlives the tab, other servers."""
    found = [path.name for path in STATIC.iterdir() if re.search(pattern, path.read_text(encoding="utf-8"))]
    assert found == []
