"""What the client's README shows is what happens."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest
from replan_client import errors

from tests.serving import Server

ROOT = Path(__file__).parents[2]
README = ROOT / "client" / "README.md"
DOCUMENTED_URL = "http://127.0.0.1:8080"
_BLOCK = re.compile(r"^```pycon\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)")


def test_the_tutorial_is_what_happens(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """All blocks are run in order, in one session; three dots stand for any text."""
    text = README.read_text(encoding="utf-8")
    session = "\n\n".join(_BLOCK.findall(text)).replace(DOCUMENTED_URL, str(server.client.base_url).rstrip("/"))
    examples = doctest.DocTestParser().get_examples(session)
    assert len(examples) > 15
    monkeypatch.chdir(ROOT)
    output: list[str] = []
    test = doctest.DocTest(examples, {}, "README", str(README), 0, session)
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=output.append)
    assert result.failed == 0, "".join(output)
    server.client.delete("/v1/jobs/training-7")


def test_links_and_errors_are_there() -> None:
    """Every link to a file names one that is there, every error named is one."""
    text = README.read_text(encoding="utf-8")
    links = [link for link in _LINK.findall(text) if "://" not in link]
    assert links
    assert [link for link in links if not (README.parent / link).exists()] == []
    names = re.findall(r"`([A-Z][A-Za-z]+Error)`", text)
    assert len(names) > 10
    assert [name for name in names if not hasattr(errors, name)] == []
