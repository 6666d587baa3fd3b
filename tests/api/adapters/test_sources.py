"""The adapters by name, and the rules that each takes."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from api.adapters.sources import Rules, Source, max_bytes, report_events
from api.adapters.verdicts import Verdict
from planner.errors import OptionError
from planner.failure_state import EventKind, FailureState
from planner.formats.job_file import load_job
from tests.api.adapters.jobs import GPUS, job_on
from tests.api.adapters.test_kubernetes import every, node
from tests.api.adapters.test_nvrx import cycle
from tests.api.adapters.test_torchft import page, replicas

EXAMPLES = Path(__file__).parents[3] / "examples"
JOB = job_on()
NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
STATE = FailureState(nodes=("gpu0002",))

# Each says that gpu0001 is down and that gpu0002 is back.
REPORTS = {
    Source.SLURM: "gpu0001 down\ngpu0002 idle\n",
    Source.KUBERNETES: every(node("gpu0001", "False")),
    Source.NVRX: cycle(active_nodes=",".join(GPUS[1:]), standby_nodes=""),
}


@pytest.mark.parametrize("source", REPORTS)
def test_each_source_has_its_adapter(source: Source) -> None:
    """One failure and one recovery; without recoveries only the failure."""
    events = report_events(source, REPORTS[source], JOB, STATE, now=NOW)
    assert [(event.kind, event.nodes) for event in events] == [
        (EventKind.NODE_FAILED, "gpu0001"),
        (EventKind.NODE_RECOVERED, "gpu0002"),
    ]
    rules = Rules(recoveries=False)
    assert report_events(source, REPORTS[source], JOB, STATE, now=NOW, rules=rules) == events[:1]


def test_torchft_speaks_of_workers() -> None:
    """Groups 1 to 3 live and group 0 does not."""
    live = dict.fromkeys(replicas(1, 2, 3), False)
    (event,) = report_events(Source.TORCHFT, page(live, live), JOB, STATE, now=NOW)
    assert [str(worker) for worker in event.workers] == ["0/0", "0/1"]


def test_rules_reach_the_adapters() -> None:
    """Silent, missing, settling and further conditions."""
    text = "gpu0001 idle*\ngpu0002 idle\n"
    rules = Rules(silent=Verdict.FAILED, missing=Verdict.FAILED)
    failed, _ = report_events(Source.SLURM, text, JOB, STATE, now=NOW, rules=rules)
    assert failed.nodes == "gpu[0001,0003-0008]"
    fresh = node("gpu0002", since="2026-11-30T11:59:50Z")
    sick = node("gpu0003")
    sick["status"]["conditions"].append({"type": "GpuXidError", "status": "True"})
    rules = Rules(silent=Verdict.KEEP, missing=Verdict.KEEP, settle_s=5, failing_conditions=("GpuXidError",))
    events = report_events(
        Source.KUBERNETES, every(fresh, sick, node("gpu0004", "Unknown")), JOB, STATE, now=NOW, rules=rules
    )
    assert [event.nodes for event in events] == ["gpu0003", "gpu0002"]


@pytest.mark.parametrize(
    ("source", "rules", "message"),
    [
        (Source.TORCHFT, Rules(silent=Verdict.KEEP), "torchft reports take no rule silent"),
        (Source.NVRX, Rules(missing=Verdict.KEEP, settle_s=1), "nvrx reports take no rule missing or settle_s"),
        (Source.SLURM, Rules(failing_conditions=("x",)), "slurm reports take no rule failing_conditions"),
    ],
)
def test_rules_that_a_source_does_not_take_are_refused(source: Source, rules: Rules, message: str) -> None:
    """They would be ignored silently otherwise."""
    with pytest.raises(OptionError, match=message):
        report_events(source, "", JOB, STATE, now=NOW, rules=rules)


@pytest.mark.parametrize("rules", [{"silent": Verdict.IN_SERVICE}, {"missing": Verdict.IN_SERVICE}, {"settle_s": -1.0}])
def test_rules_are_checked(rules: dict[str, object]) -> None:
    """What nobody has seen is not in service, and time does not run backwards."""
    with pytest.raises(OptionError):
        Rules(**rules)  # type: ignore[arg-type]


def test_limits_by_source() -> None:
    """A list of 2,048 nodes with fifty images each has 40 MB; a cycle info file is small."""
    assert max_bytes(Source.KUBERNETES) >= 128 * 2**20
    assert max_bytes(Source.NVRX) < max_bytes(Source.SLURM) == max_bytes(Source.TORCHFT)


@pytest.mark.parametrize(
    ("source", "name", "expected"),
    [
        (Source.SLURM, "sinfo.txt", ["n06"]),
        (Source.KUBERNETES, "nodes.json", ["n06"]),
        (Source.TORCHFT, "lighthouse.html", ["1/0", "1/1", "1/2", "1/3"]),
        (Source.NVRX, "cycle_info.4711.0.3", ["n06"]),
    ],
)
def test_examples(source: Source, name: str, expected: list[str]) -> None:
    """The reports that the manual shows say that n06, or its whole pipeline, is down."""
    job = load_job(EXAMPLES / "recycle-worked-example.yaml")
    text = (EXAMPLES / "reports" / name).read_text(encoding="utf-8")
    (event,) = report_events(source, text, job, FailureState(), now=NOW)
    assert (event.kind, [event.nodes] if event.nodes else [str(worker) for worker in event.workers]) == (
        EventKind.NODE_FAILED,
        expected,
    )
