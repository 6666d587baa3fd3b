"""What README and docs show is what happens: their sessions are run, their links lead somewhere.

A fenced ``console`` block is run by bash in a copy of the examples, the blocks of one document in one folder and in order; a
line that ends in a backslash goes on in the next. Standard output and standard error must match the text below each command.
``...`` stands for any text within a line, and on a line of its own for any number of lines; a last line ``[exit status 4]`` says
that the command fails, all others must not. ``curl`` talks to ``http://127.0.0.1:8080``, for which a real server stands in; so do
commands that talk to a service. A block that holds nothing but ``$ replan serve ... &`` starts that server, with the options it
shows, in place of one with an empty store. A block whose fence names a file, ``yaml job.yaml``, is written to that file, in its
place among the blocks. Blocks that call PyTorch's part of the client take long: a slow test runs the documents that have them
from end to end, the quick one leaves those blocks out. ``docs/cli.md`` has a test of its own, ``tests/cli/test_manual.py``.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.postgres import PostgresServer
from tests.serving import serving

ROOT = Path(__file__).parents[1]
TESTED_ELSEWHERE = "docs/cli.md"
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
DOCUMENTED_URL = "http://127.0.0.1:8080"
DOCUMENTED_DATABASE = "postgresql://replan@db.example/replan"
STORE_PORT = "29400"
COLUMNS = "100"
LIMIT_S = 240
FOLLOWED = [ROOT / "docs" / "tutorial.md", *sorted((ROOT / "docs" / "howto").glob("*.md"))]
"""Documents for readers who do what they read: each of their blocks is run or written to a file."""

_BLOCK = re.compile(r"^```(\w+)(?: ([\w.-]+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"^```", re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)")
_ANCHOR = re.compile(r"\[[^\]]*\]\(([^)#\s]*)#([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_END = re.compile(r"^--- end of command, exit status (\d+) ---\n", re.MULTILINE)
_STATUS = re.compile(r"\n?\[exit status (\d+)\]$")


@dataclass(frozen=True)
class Step:
    """One command of a session and the output it shows."""

    command: str
    output: str
    status: int = 0


@dataclass(frozen=True)
class NamedFile:
    """A block that is the content of a file."""

    name: str
    text: str


def parts(document: Path) -> Iterator[list[Step] | NamedFile]:
    """The sessions of a document that are to be run, and the files that it shows, in order."""
    for language, name, block in _BLOCK.findall(document.read_text(encoding="utf-8")):
        if name:
            yield NamedFile(name, block)
        elif language == "console":
            yield list(steps(block))


def sessions(document: Path, *, with_torch: bool = True) -> list[list[Step]]:
    """The sessions of a document that are to be run; without those that need PyTorch unless it is asked for them."""
    found = [part for part in parts(document) if isinstance(part, list)]
    return [session for session in found if with_torch or not needs_torch(session)]


def needs_torch(session: list[Step]) -> bool:
    """Whether a session runs a part of the client that needs PyTorch."""
    return any("replan_client.torch" in step.command or "replan demo" in step.command for step in session)


def is_start(session: list[Step]) -> bool:
    """Whether a session starts the server and leaves it running."""
    return session[0].command.startswith("replan serve") and session[0].command.endswith("&")


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


def run(session: list[Step], folder: Path, url: str | None, stand_ins: dict[str, str]) -> list[Step]:
    """Run a session in one shell; returns the commands with the output and exit status they really had."""
    script = "".join(
        f'{{ {step.command}\n}} 2>&1; status=$?; echo; echo "--- end of command, exit status $status ---"; (exit $status)\n'
        for step in session
    )
    stand_ins = stand_ins if url is None else stand_ins | {DOCUMENTED_URL: url}
    for documented, real in stand_ins.items():
        script = script.replace(documented, real)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("REPLAN", "PYTEST"))}
    variables = {
        "PATH": path,
        "COLUMNS": COLUMNS,
        "LC_ALL": "C.UTF-8",
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
    }
    with subprocess.Popen(
        ["bash", "-c", script],
        cwd=folder,
        env=environment | variables | ({} if url is None else {"REPLAN_SERVER": url}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    ) as shell:
        try:
            text = shell.communicate(timeout=LIMIT_S)[0].decode()
        finally:
            # What a session left running in the background, or all of it where it came to no end.
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
    for documented, real in stand_ins.items():
        text = text.replace(real, documented)
    found = _END.split(text)
    assert len(found) == 2 * len(session) + 1, f"the shell stopped early:\n{text}"
    return [
        Step(step.command, tidy(output), int(status))
        for step, output, status in zip(session, found[:-1:2], found[1::2], strict=True)
    ]


def check(session: list[Step], found: list[Step]) -> None:
    """Compare what a session shows with what it gave."""
    for shown, step in zip(session, found, strict=True):
        difference = "\n".join(
            difflib.unified_diff(shown.output.splitlines(), step.output.splitlines(), "shown", "found", lineterm="")
        )
        if not matches(shown.output, step.output) or shown.status != step.status:
            pytest.fail(f"$ {shown.command}\n{difference}\nfound, with status {step.status}:\n{step.output}")


def serve_options(command: str, folder: Path, stand_ins: dict[str, str]) -> tuple[str, list[str]]:
    """Store and further options of a ``replan serve`` that a document shows; it listens where documents say it does."""
    words = shlex.split(command.removesuffix("&"))
    assert words[:4] == ["replan", "serve", "--port", "8080"], command
    options = dict(zip(words[4::2], words[5::2], strict=True))
    store = options.pop("--store")
    store = stand_ins.get(store, store if "://" in store else str(folder / store))
    return store, [word for option in options.items() for word in option]


def follow(document: Path, folder: Path, stand_ins: dict[str, str], *, with_torch: bool) -> None:
    """Do what a document shows, from its first block to its last."""
    shutil.copytree(ROOT / "examples", folder / "examples")
    with ExitStack() as stack:
        url: str | None = None
        for part in parts(document):
            if isinstance(part, NamedFile):
                (folder / part.name).write_text(part.text, encoding="utf-8")
                continue
            if needs_torch(part) and not with_torch:
                continue
            if any(step.command.startswith("curl") for step in part) and shutil.which("curl") is None:
                pytest.skip("curl is not installed")
            if is_start(part) or (url is None and part[0].command.startswith("curl")):
                store, options = (
                    serve_options(part[0].command, folder, stand_ins) if is_start(part) else (folder / "docs.db", [])
                )
                server = stack.enter_context(serving(store, *options))
                url = str(server.client.base_url).rstrip("/")
                if is_start(part):
                    assert len(part) == 1, part
                    continue
            check(part, run(part, folder, url, stand_ins))


def names(documents: list[Path]) -> dict[str, object]:
    """Documents as parameters of a test."""
    return {
        "argvalues": documents,
        "ids": [document.relative_to(ROOT).as_posix() for document in documents],
    }


@pytest.fixture
def stand_ins(request: pytest.FixtureRequest, document: Path) -> dict[str, str]:
    """What stands in the place of things that a document names: a free port, a database of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        found = {STORE_PORT: str(probe.getsockname()[1])}
    if DOCUMENTED_DATABASE in document.read_text(encoding="utf-8"):
        server: PostgresServer = request.getfixturevalue("postgres_server")
        found[DOCUMENTED_DATABASE] = server.make_database()
    return found


@pytest.mark.parametrize(
    "document",
    **names([d for d in DOCUMENTS if d != ROOT / TESTED_ELSEWHERE and sessions(d, with_torch=False)]),
)
def test_sessions_show_what_happens(document: Path, tmp_path: Path, stand_ins: dict[str, str]) -> None:
    """Every command of a document gives the output that stands below it."""
    follow(document, tmp_path, stand_ins, with_torch=False)


@pytest.mark.slow
@pytest.mark.parametrize("document", **names([d for d in FOLLOWED if any(map(needs_torch, sessions(d)))]))
def test_training_sessions_show_what_happens(document: Path, tmp_path: Path, stand_ins: dict[str, str]) -> None:
    """The same with the commands that train and measure."""
    pytest.importorskip("torch", reason="torch, the extra of replan-client, is not installed")
    follow(document, tmp_path, stand_ins, with_torch=True)


@pytest.mark.parametrize("document", **names(FOLLOWED))
def test_nothing_to_follow_is_left_out(document: Path) -> None:
    """In documents that are followed each block is a session that is run, or a file."""
    fences = _FENCE.findall(document.read_text(encoding="utf-8"))
    assert len(list(parts(document))) == len(fences) // 2


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(document: Path) -> None:
    """Every link to a file of the project names one that is there."""
    links = [link for link in _LINK.findall(document.read_text(encoding="utf-8")) if "://" not in link]
    assert [link for link in links if not (document.parent / link).exists()] == []


def anchors(document: Path) -> set[str]:
    """Anchors of a document's headings, as GitHub makes them."""
    text = _BLOCK.sub("", document.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in _HEADING.findall(text)}


@pytest.mark.parametrize("document", **names(DOCUMENTS))
def test_anchors_lead_somewhere(document: Path) -> None:
    """A link to a place within a page names a heading that is there."""
    links = [link for link in _ANCHOR.findall(document.read_text(encoding="utf-8")) if "://" not in link[0]]
    pages = [(document.parent / path if path else document, anchor) for path, anchor in links]
    assert [link for link in pages if link[0].suffix == ".md" and link[1] not in anchors(link[0])] == []


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
