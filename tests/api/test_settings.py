"""Settings: where values come from, what is refused, and that their manual is theirs."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from api.settings import Settings, default_solver_processes, settings_table, unknown_variables, variable_of
from planner.errors import OptionError

ROOT = Path(__file__).parents[2]
MANUAL = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(variable_of(name), raising=False)


def test_arguments_win_over_the_environment_and_that_over_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable takes the place of a default, an argument that of both; an empty variable counts as not set."""
    monkeypatch.setenv("REPLAN_PORT", "9000")
    monkeypatch.setenv("REPLAN_QUEUE_LIMIT", "7")
    monkeypatch.setenv("REPLAN_REQUIRE_KEYS", "true")
    monkeypatch.setenv("REPLAN_HEADER_TIMEOUT_S", "")
    settings = Settings(queue_limit=8)
    assert (settings.port, settings.queue_limit, settings.require_keys) == (9000, 8, True)
    assert settings.header_timeout_s == Settings.model_fields["header_timeout_s"].default


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("REPLAN_PORT", "tcp://10.0.0.1:8080"),
        ("REPLAN_PORT", "70000"),
        ("REPLAN_QUEUE_LIMIT", "-1"),
        ("REPLAN_MAX_BODY_BYTES", "1"),
        ("REPLAN_MAX_DEADLINE_S", "nan"),
        ("REPLAN_MAX_DEADLINE_S", "inf"),
        ("REPLAN_MAX_DEADLINE_S", "0"),
        ("REPLAN_WRITE_TIMEOUT_S", "soon"),
        ("REPLAN_REQUIRE_KEYS", "perhaps"),
        ("REPLAN_LOG_LEVEL", "loud"),
        ("REPLAN_SOLVER_PROCESSES", "257"),
        ("REPLAN_IMPROVEMENT_THRESHOLD", "1.5"),
        ("REPLAN_DRAIN_DELAY_S", "-0.1"),
    ],
)
def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    """The error says which variable holds what."""
    monkeypatch.setenv(variable, value)
    with pytest.raises(OptionError, match=re.escape(f"{variable} is {value!r}")):
        Settings()


@pytest.mark.parametrize(("name", "value"), [("port", -1), ("queue_limit", 2.5), ("colour", "red"), ("host", "")])
def test_a_wrong_argument_is_named(name: str, value: Any) -> None:
    """The error names an argument as such, unknown ones too."""
    with pytest.raises(OptionError, match=f"^{name} is "):
        Settings(**{name: value})


def test_a_password_in_the_store_is_not_repeated() -> None:
    """An error about the store does not say what it was."""
    with pytest.raises(OptionError, match=r"^store: ") as caught:
        Settings(store=["postgresql://replan:secret@db/replan"])
    assert "secret" not in str(caught.value)


def test_misspelt_variables_are_found() -> None:
    """A variable with our prefix that nothing reads is told; those of the command line and of others are not."""
    names = ["REPLAN_PORTS", "REPLAN_PORT", "REPLAN_TRACEBACK", "PATH", "REPLAN_SERVICE_HOST"]
    assert unknown_variables(dict.fromkeys(names, "1")) == ("REPLAN_PORTS", "REPLAN_SERVICE_HOST")


def test_a_container_has_as_many_solvers_as_it_may_use_cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On 64 CPUs a quota of half a one still gives one process, and none or an unreadable one leaves all CPUs."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    quota = tmp_path / "cpu.max"
    assert default_solver_processes(quota) == 63
    for text, expected in (
        ("50000 100000", 2),
        ("100000 100000", 2),
        ("200000 100000", 2),
        ("250000 100000", 2),
        ("9900000 100000", 63),
        ("max 100000", 63),
        ("", 63),
    ):
        quota.write_text(text)
        assert default_solver_processes(quota) == expected, text


def test_the_manual_lists_every_setting_as_it_is() -> None:
    """The table of docs/settings.md is the one the code gives."""
    rows = [f"| `{name}` | {default} | {span} | {text} |" for name, default, span, text in settings_table()]
    start = MANUAL.index("|---|")
    shown = MANUAL[start:].split("\n\n")[0].splitlines()[1:]
    assert shown == rows, "\n".join(rows)
