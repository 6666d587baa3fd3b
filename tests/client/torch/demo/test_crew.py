"""Processes of the demonstration: what they say, how they fail, and that none is left."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from replan_client.torch.demo.child import Returned
from replan_client.torch.demo.crew import Crew, Gone
from replan_client.torch.demo.errors import DemoFailedError

_ACTS = "tests.client.torch.demo.acts"


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    """Processes for one test."""
    with Crew(limit_s=60, log=tmp_path / "log", scratch=tmp_path) as found:
        yield found


def test_they_say_hear_and_return(crew: Crew) -> None:
    """Each by its name, with what it was given."""
    members = [crew.start(name, f"{_ACTS}:answer", value) for name, value in (("a", 1), ("b", 2))]
    for member in members:
        assert crew.wait_for(member) == "begun"
        member.tell("go")
        assert crew.wait_for(member) == Returned(value=(member.name, {"a": 1, "b": 2}[member.name], "go"))
    assert crew.next(0.01) is None


def test_errors_are_told_with_what_to_do(crew: Crew) -> None:
    """The client's own by code and hint, others by their traceback."""
    crew.start("refuses", f"{_ACTS}:refuse")
    with pytest.raises(DemoFailedError, match=r"refuses: no such thing \(argument_invalid\)") as refused:
        crew.next(60)
    assert refused.value.hint == "ask for another"
    with pytest.raises(DemoFailedError, match=r"crashes crashed:[^$]*ZeroDivisionError: a bug"):
        crew.wait_for(crew.start("crashes", f"{_ACTS}:crash"))


def test_whoever_is_killed_is_gone(crew: Crew) -> None:
    """Told as such to whoever hears all, an error to whoever waits for it, with what was logged."""
    member = crew.start("dies", f"{_ACTS}:die")
    assert crew.next(60) == (member, Gone(exit_code=-9))
    with pytest.raises(DemoFailedError, match=r"dies-again ended with exit code -9[^$]*last words"):
        crew.wait_for(crew.start("dies-again", f"{_ACTS}:die"))
    # Nobody hears it any more, and that is no error.
    member.tell("go")


def test_what_they_print_goes_to_the_log(crew: Crew, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Not to the terminal."""
    member = crew.start("mutters", f"{_ACTS}:mutter")
    assert crew.wait_for(member) == Returned(value=0)
    member.process.join(30)
    assert {"printed", "echoed"} <= set((tmp_path / "log").read_text().split())
    assert capfd.readouterr() == ("", "")


def test_waits_end_and_nothing_is_left(tmp_path: Path) -> None:
    """A process that hangs: the limit is told, and the process is gone afterwards."""
    with Crew(limit_s=60, log=tmp_path / "log", scratch=tmp_path) as crew:
        member = crew.start("hangs", f"{_ACTS}:hang")
        assert crew.wait_for(member) == member.process.pid
        crew._ends_at = time.monotonic()
        for wait in (lambda: crew.next(1), lambda: crew.wait_for(member)):
            with pytest.raises(DemoFailedError, match="longer than 60 s"):
                wait()
        process = member.process
    assert process.exitcode == -9
