"""The operations page names metrics, scopes and tests as they are."""

from __future__ import annotations

import re
from pathlib import Path

from api.observability.telemetry import Telemetry
from api.security.authenticator import FRESH_S, STALE_S
from api.security.scopes import Scope
from api.settings import Settings, variable_of

ROOT = Path(__file__).parents[1]
MANUAL = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


def test_every_metric_stands_with_its_labels() -> None:
    """The table is that of the registry, but for the metrics of the process itself."""
    shown: dict[str, list[str]] = {}
    for names, labels in re.findall(r"^\| ((?:`replan_\w+`(?:, )?)+) \| ([^|]*)\|", MANUAL, re.MULTILINE):
        shown |= {
            name: [label for label in labels.strip().split(", ") if label] for name in re.findall(r"`(\w+)`", names)
        }
    telemetry = Telemetry()
    telemetry.epoch_made(job_id="a", epoch=1, cause="event")
    metrics = {
        collector._name: list(collector._labelnames)
        for collector in telemetry.registry._collector_to_names
        if hasattr(collector, "_labelnames")
    }
    assert shown == metrics


def test_every_scope_stands_in_order() -> None:
    """The scopes are listed from the smallest to the largest."""
    table = MANUAL[MANUAL.index("| scope |") :].split("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == [scope.label for scope in Scope]
    assert f"{FRESH_S:g} s more at most" in MANUAL
    assert f"the last {STALE_S / 60:g} minutes" in MANUAL


def test_every_variable_is_one() -> None:
    """The variables the page names are settings."""
    known = {variable_of(name) for name in Settings.model_fields}
    assert set(re.findall(r"REPLAN_[A-Z_]+", MANUAL)) <= known


def test_every_test_it_names_is_there() -> None:
    """What a line of the table of failures says is shown by a test that exists."""
    rows = MANUAL[MANUAL.index("| failure |") :].split("\n\n")[0].splitlines()[2:]
    assert rows
    for row in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row)
        assert named or row.endswith("| no test |"), row
        for path, name in named:
            assert f"\ndef {name}(" in (ROOT / path).read_text(encoding="utf-8"), (path, name)
