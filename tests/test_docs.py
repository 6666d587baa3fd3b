"""What README and docs show is what happens: their sessions are run, their links lead somewhere.

A fenced ``console`` block that begins with ``$ replan`` or ``$ curl`` is run by bash in a copy of the examples, the blocks
of one document in one folder and in order; a line that ends in a backslash goes on in the next. Standard output and
standard error must match the text below each command. ``...`` stands for any text within a line, and on a line of its own
for any number of lines; a last line ``[exit status 4]`` says that the command fails, all others must not. ``curl`` talks to
``http://127.0.0.1:8080``, for which a real server stands in; so do commands that talk to a service. ``docs/cli.md`` has a test of
its own, ``tests/cli/test_manual.py``.
"""

from __future__ import annotations

import difflib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.serving import serving

ROOT = Path(__file__).parents[1]
TESTED_ELSEWHERE = "docs/cli.md"
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
DOCUMENTED_URL = "http://127.0.0.1:8080"
COLUMNS = "100"

_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)")
_END = re.compile(r"^--- end of command, exit status (\d+) ---\n", re.MULTILINE)
_STATUS = re.compile(r"\n?\[exit status (\d+)\]$")


@dataclass(frozen=True)
class Step:
    """One command of a session and the output it shows."""

    command: str
    output: str
    status: int = 0


def sessions(document: Path) -> list[list[Step]]:
    """The sessions of a document that are to be run."""
    blocks = (match[1] for match in _BLOCK.finditer(document.read_text(encoding="utf-8")))
    return [list(steps(block)) for block in blocks if block.startswith(("$ replan", "$ curl"))]


def steps(block: str) -> Iterator[Step]:
    """Commands of a block, each with what is shown up to the next."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        end = next(i for i, line in enumerate(lines) if not line.endswith("\\"))
        command = "\n".join([lines[0], *(line.removeprefix("> ") for line in lines[1 : end + 1])])
        shown = tidy("\n".join(lines[end + 1 :]))
        status = _STATUS.search(shown)
        yield Step(command, _STATUS.sub("", shown), int(status[1]) if status else 0)


def tidy(text: str) -> str:
    """Text without empty lines around it and spaces at the ends of lines."""
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")


def matches(shown: str, found: str) -> bool:
    """Whether an output is what a document shows, with ``...`` for any text."""
    pattern = ""
    for line in shown.splitlines():
        if line == "...":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += ".*".join(re.escape(piece) for piece in line.split("...")) + r"\n"
    return re.fullmatch(pattern, f"{found}\n" if found else "") is not None


def run(session: list[Step], folder: Path, url: str | None) -> list[Step]:
    """Run a session in one shell; returns the commands with the output and exit status they really had."""
    script = "".join(
        f'{{ {step.command}\n}} 2>&1; status=$?; echo; echo "--- end of command, exit status $status ---"; (exit $status)\n'
        for step in session
    )
    if url is not None:
        script = script.replace(DOCUMENTED_URL, url)
    stand_in = {} if url is None else {"REPLAN_SERVER": url}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("REPLAN", "PYTEST"))}
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=environment | stand_in | {"PATH": path, "COLUMNS": COLUMNS, "LC_ALL": "C.UTF-8"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    text = done.stdout.decode()
    if url is not None:
        text = text.replace(url, DOCUMENTED_URL)
    parts = _END.split(text)
    assert len(parts) == 2 * len(session) + 1, f"the shell stopped early:\n{text}"
    return [
        Step(step.command, tidy(output), int(status))
        for step, output, status in zip(session, parts[:-1:2], parts[1::2], strict=True)
    ]


@pytest.mark.parametrize(
    "document",
    [d for d in DOCUMENTS if d != ROOT / TESTED_ELSEWHERE and sessions(d)],
    ids=lambda d: d.relative_to(ROOT).as_posix(),
)
def test_sessions_show_what_happens(document: Path, tmp_path: Path) -> None:
    """Every command of a document gives the output that stands below it."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    with ExitStack() as stack:
        url: str | None = None
        for session in sessions(document):
            if session[0].command.startswith("curl") and url is None:
                if shutil.which("curl") is None:
                    pytest.skip("curl is not installed")
                server = stack.enter_context(serving(tmp_path / "docs.db"))
                url = str(server.client.base_url).rstrip("/")
            for shown, found in zip(session, run(session, tmp_path, url), strict=True):
                difference = "\n".join(
                    difflib.unified_diff(
                        shown.output.splitlines(), found.output.splitlines(), "shown", "found", lineterm=""
                    )
                )
                if not matches(shown.output, found.output) or shown.status != found.status:
                    pytest.fail(f"$ {shown.command}\n{difference}\nfound, with status {found.status}:\n{found.output}")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(document: Path) -> None:
    """Every link to a file of the project names one that is there."""
    links = [link for link in _LINK.findall(document.read_text(encoding="utf-8")) if "://" not in link]
    assert [link for link in links if not (document.parent / link).exists()] == []


@pytest.mark.parametrize(
    ("shown", "found", "expected"),
    [
        ("a ... c", "a b c", True),
        ("a ... c", "a b d", False),
        ("a\n...\nd", "a\nb\nc\nd", True),
        ("a\n...\nd", "a\nd", True),
        ("a", "a\nb", False),
        ("", "", True),
        ("", "noise", False),
        ("1.5 (x) [y]", "1.5 (x) [y]", True),
        ("1.5", "1x5", False),
    ],
)
def test_outputs_are_compared_strictly(shown: str, found: str, expected: bool) -> None:
    """Only three dots stand for other text; everything else is compared to the letter."""
    assert matches(shown, found) is expected


def test_commands_are_read_with_their_outputs() -> None:
    """A command may go on over lines that end in a backslash; its output ends where the next command begins."""
    block = "$ replan plan a \\\n>   --fail b\nfirst\n\nsecond\n[exit status 4]\n$ echo $?\n4\n"
    assert list(steps(block)) == [
        Step("replan plan a \\\n  --fail b", "first\n\nsecond", 4),
        Step("echo $?", "4"),
    ]
