"""The child process: answers, deadlines, crashes, memory, and that nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path

import pytest

from planner.problem import Problem
from solver_models.child import ChildOutcome, ChildSearch, Ending
from solver_models.result import SolveOptions, Status
from tests.problems import unit_problem

SEARCHES = """
import os, signal, subprocess, sys, time
from planner.errors import OptionError
from planner.schedule import parse_schedule
from solver_models.result import Status
from solver_models.search import Found

ORDER = "0/0: 0F0.0 0I0.0 0W0.0"

def search(given, report):
    how = {hows}[given.options.seed]
    schedule = parse_schedule(ORDER, 1, 1)
    note = open(os.environ["REPLAN_TEST_NOTE"], "w")
    print(os.getpid(), os.getcwd(), file=note, flush=True)
    if how == "answer":
        print("noise on standard output")
        return Found(status=Status.FEASIBLE, schedule=schedule, bound_ns=3, detail="done")
    if how == "refuse":
        raise OptionError("too large", hint="take less")
    if how == "raise":
        raise ValueError("broken inside")
    if how == "abort":
        report(schedule, 2)
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "memory":
        return bytearray(2**33)
    if how == "hang":
        report(schedule, 1)
        os.write(1, b"half a frame")
        grandchild = subprocess.Popen(["sleep", "600"])
        print(grandchild.pid, file=note, flush=True)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(10)
    if how == "wrong folder":
        sys.exit(3)
"""
PATIENCE_S = (2.0, 8.0, 32.0, 128.0)
"""Deadlines to try one after the other where a child has to be up before it is killed: a busy machine may be slow to start it."""
HOWS = ("answer", "refuse", "raise", "abort", "memory", "hang", "wrong folder")


@pytest.fixture
def note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Module of misbehaving searches on the children's path; returns where they note their process and folder."""
    (tmp_path / "misbehaving.py").write_text(SEARCHES.replace("{hows}", repr(HOWS)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("REPLAN_TEST_NOTE", str(tmp_path / "note"))
    return tmp_path / "note"


def tiny() -> Problem:
    """One worker, one microbatch."""
    return unit_problem(1, 1, 1)


def start(how: str, *, deadline_s: float = 240.0, memory: int | None = None) -> ChildSearch:
    """Start a child that ends the given way."""
    options = SolveOptions(deadline_s=deadline_s, seed=HOWS.index(how), memory_limit_bytes=memory)
    return ChildSearch("cp_sat", tiny(), options, module="misbehaving")


def run(how: str, *, deadline_s: float = 240.0, memory: int | None = None) -> ChildOutcome:
    """Run a child to its end."""
    return start(how, deadline_s=deadline_s, memory=memory).wait()


def is_running(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def runs(note: Path) -> bool:
    """Whether a search that hangs has come so far that it does: its process, its folder and its subprocess are noted."""
    return note.exists() and len(note.read_text().split()) == 3


def wait_for(condition: object, what: str) -> None:
    """Wait until ``condition()`` holds, failing after a long time."""
    for _ in range(2400):
        if condition():  # type: ignore[operator]
            return
        time.sleep(0.05)
    pytest.fail(f"never came true: {what}")


def test_an_answer_comes_back_whole(note: Path) -> None:
    """Status, schedule, bound and detail cross the pipe, whatever the search prints."""
    outcome = run("answer")
    assert outcome.ending is Ending.ANSWERED
    assert outcome.found.schedule is not None
    assert outcome.found.schedule.to_text() == "0/0: 0F0.0 0I0.0 0W0.0\n"
    assert (outcome.found.status, outcome.found.bound_ns, outcome.detail) == (Status.FEASIBLE, 3, "done")


def test_our_own_errors_are_told_with_their_code(note: Path) -> None:
    """A search that refuses an instance is not a crash."""
    outcome = run("refuse")
    assert outcome.ending is Ending.REFUSED
    assert (outcome.error_code, outcome.detail) == ("option_invalid", "too large (take less)")


def test_an_exception_is_a_crash_that_names_it(note: Path) -> None:
    """The last line of the traceback is in the detail."""
    outcome = run("raise")
    assert (outcome.ending, outcome.found.status) == (Ending.CRASHED, Status.CRASHED)
    assert outcome.detail == "ended with exit code 1: ValueError: broken inside"


def test_a_signal_leaves_the_last_incumbent(note: Path) -> None:
    """A search that dies of a signal has crashed, and its best schedule and bound are kept."""
    outcome = run("abort")
    assert (outcome.ending, outcome.found.status) == (Ending.CRASHED, Status.CRASHED)
    assert outcome.found.schedule is not None
    assert outcome.found.bound_ns == 2
    assert f"signal {int(signal.SIGSEGV)}" in outcome.detail


def test_the_memory_limit_is_told_apart_from_a_crash(note: Path) -> None:
    """8 GiB do not fit into 1 GiB of address space."""
    outcome = run("memory", memory=2**30)
    assert (outcome.ending, outcome.found.status) == (Ending.OUT_OF_MEMORY, Status.CRASHED)


def test_a_hanging_child_is_killed_with_all_it_started(note: Path) -> None:
    """At the deadline the search and its own subprocess are gone, and the incumbent is kept."""
    for deadline_s in PATIENCE_S:
        outcome = run("hang", deadline_s=deadline_s)
        if runs(note):
            break
    assert (outcome.ending, outcome.found.status) == (Ending.DEADLINE, Status.FEASIBLE)
    assert outcome.found.schedule is not None
    words = note.read_text().split()
    assert not is_running(int(words[0]))
    assert not is_running(int(words[2]))
    assert not Path(words[1]).exists()


def test_cancelling_ends_the_wait(note: Path) -> None:
    """A cancelled child is killed and leaves its incumbent."""
    child = start("hang", deadline_s=200.0)
    wait_for(lambda: runs(note), "the search runs")
    child.cancel()
    outcome = child.wait()
    assert (outcome.ending, outcome.found.status) == (Ending.CANCELLED, Status.FEASIBLE)
    assert not is_running(int(note.read_text().split()[2]))


def own_children() -> set[int]:
    """Children of this process, those that have ended and were not waited for among them."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # Behind the name in brackets: state and parent.
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended meanwhile
        if parent == os.getpid():
            found.add(int(stat.parent.name))
    return found


def test_nothing_is_left_of_any_ending(note: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No zombie, no folder and no open file, however the child ends, from several threads at once."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    before, children = {path.name for path in Path("/proc/self/fd").iterdir()}, own_children()
    threads = [threading.Thread(target=run, args=(how,), kwargs={"deadline_s": 3.0}) for how in HOWS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list((tmp_path / "temporary").iterdir()) == []
    assert {path.name for path in Path("/proc/self/fd").iterdir()} == before
    assert own_children() <= children


def test_the_parents_death_ends_the_child(note: Path, tmp_path: Path) -> None:
    """A parent killed without warning takes search, grandchild and folder with it; its ``__main__`` cannot be imported."""
    script = textwrap.dedent("""
        from tests.solver_models.test_child import start
        start("hang", deadline_s=600.0).wait()
    """)
    root = str(Path(__file__).parents[2])
    parent = subprocess.Popen(
        [sys.executable, "-"],
        stdin=subprocess.PIPE,
        cwd=root,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), root])},
    )
    assert parent.stdin is not None
    parent.stdin.write(script.encode())
    parent.stdin.close()
    wait_for(lambda: runs(note), "the search runs")
    parent.kill()
    parent.wait()
    pid, folder, grandchild = note.read_text().split()
    wait_for(lambda: not is_running(int(pid)), "the search ends")
    wait_for(lambda: not is_running(int(grandchild)), "its subprocess ends")
    wait_for(lambda: not Path(folder).exists(), "its folder is removed")
