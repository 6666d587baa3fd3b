"""The adapters by name, with what may be chosen for each."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from api.adapters import kubernetes, nvrx, slurm, torchft
from api.adapters.verdicts import Verdict
from planner.errors import OptionError
from planner.failure_state import EventKind, FailureEvent, FailureState
from planner.job import Job


class Source(StrEnum):
    """Systems whose reports are read."""

    SLURM = "slurm"
    """``sinfo``'s output."""
    KUBERNETES = "kubernetes"
    """``kubectl get nodes -o json``."""
    TORCHFT = "torchft"
    """The lighthouse's status page."""
    NVRX = "nvrx"
    """nvidia-resiliency-ext's cycle info file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What is made of what a report leaves open; ``None`` is the source's own default.

    Parameters
    ----------
    silent
        What a node is that does not answer its controller; Slurm: as it was, Kubernetes: failed.
    missing
        What a node of the job is that is not in the report; Slurm: as it was, Kubernetes: failed.
    settle_s
        Seconds that a node has to be ready before it is back, at least 0; Kubernetes only.
    failing_conditions
        Further conditions that make a node failed; Kubernetes only.
    recoveries
        Whether recoveries are reported too; without them somebody else says what is back.

    Raises
    ------
    OptionError
        If a value is out of its range.
    """

    silent: Verdict | None = None
    missing: Verdict | None = None
    settle_s: float | None = None
    failing_conditions: tuple[str, ...] = ()
    recoveries: bool = True

    def __post_init__(self) -> None:
        if Verdict.IN_SERVICE in (self.silent, self.missing):
            raise OptionError("silent and missing nodes cannot count as in service; expected keep or failed")
        if self.settle_s is not None and not 0 <= self.settle_s <= 86_400:
            raise OptionError(f"a node settles for {self.settle_s} s; expected 0 to 86400")


def max_bytes(source: Source) -> int:
    """Longest report of a source that is read."""
    return {
        Source.SLURM: slurm.MAX_BYTES,
        Source.KUBERNETES: kubernetes.MAX_BYTES,
        Source.TORCHFT: torchft.MAX_BYTES,
        Source.NVRX: nvrx.MAX_BYTES,
    }[source]


def report_events(
    source: Source, text: str, job: Job, state: FailureState, *, now: datetime, rules: Rules | None = None
) -> tuple[FailureEvent, ...]:
    """Events that a report gives for a job.

    Parameters
    ----------
    source
        Who reports.
    text
        The report.
    job
        The job.
    state
        What is known to be down.
    now
        When the report was made, with a time zone.
    rules
        What is made of what it leaves open.

    Raises
    ------
    ReportError, DocumentLimitError
        As the source's adapter does.
    OptionError
        If the rules hold something that the source does not take.
    """
    rules = rules or Rules()
    _refuse_strange_rules(source, rules)
    chosen: dict[str, Any] = {
        name: value
        for name, value in (("silent", rules.silent), ("missing", rules.missing), ("settle_s", rules.settle_s))
        if value is not None
    }
    match source:
        case Source.SLURM:
            events = slurm.slurm_events(text, job, state, **chosen)
        case Source.KUBERNETES:
            failing = rules.failing_conditions
            events = kubernetes.kubernetes_events(text, job, state, now=now, failing_conditions=failing, **chosen)
        case Source.TORCHFT:
            events = torchft.torchft_events(text, job, state)
        case Source.NVRX:
            events = nvrx.nvrx_events(text, job, state)
    return tuple(event for event in events if rules.recoveries or event.kind is not EventKind.NODE_RECOVERED)


def _refuse_strange_rules(source: Source, rules: Rules) -> None:
    takes = {
        Source.SLURM: {"silent", "missing"},
        Source.KUBERNETES: {"silent", "missing", "settle_s", "failing_conditions"},
    }.get(source, set())
    given = {
        "silent": rules.silent is not None,
        "missing": rules.missing is not None,
        "settle_s": rules.settle_s is not None,
        "failing_conditions": bool(rules.failing_conditions),
    }
    strange = [name for name, is_given in given.items() if is_given and name not in takes]
    if strange:
        raise OptionError(f"{source} reports take no rule {' or '.join(strange)}")
