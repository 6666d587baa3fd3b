"""From what a report says about each node to the events that change what is known.

Sources name nodes in their own way and say more than up or down. An adapter gives each node of the job one of three
verdicts; only here are they compared with the job's state. Failures come before recoveries: every epoch on the way
then leaves out whatever is down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import TypeVar

from api.adapters.errors import ReportError
from planner.failure_state import EventKind, FailureEvent, FailureState
from planner.hostlist import compress_hostlist
from planner.job import Job
from planner.operation import Worker

_T = TypeVar("_T")


class Verdict(StrEnum):
    """What a report says about one node or worker."""

    IN_SERVICE = "in_service"
    """It can run its part of the job: recovered, where it was known as failed."""
    FAILED = "failed"
    """It cannot: failed, where it was not known as that."""
    KEEP = "keep"
    """The report does not tell: whatever is known stays."""


def record(verdicts: dict[str, Verdict], node: str, verdict: Verdict, where: str) -> None:
    """Note what a report says about a node of the job.

    Raises
    ------
    ReportError
        If the report said something else about it before.
    """
    if verdicts.setdefault(node, verdict) is not verdict:
        raise ReportError(
            f"{where}: node {node} is {verdict}, but {verdicts[node]} further up; expected one state a node",
            hint="give a report that was made at one moment; several names may also stand for one node of the job",
        )


def node_events(
    job: Job, state: FailureState, verdicts: Mapping[str, Verdict], *, missing: Verdict, source: str
) -> tuple[FailureEvent, ...]:
    """Events that bring a job's failed nodes up to date: at most one failure, then at most one recovery.

    Only failures of whole nodes are touched: ranks, workers and slow targets were reported by somebody who knew more.

    Parameters
    ----------
    job
        The job.
    state
        What is known to be down.
    verdicts
        What the report says, by node of the job.
    missing
        What it means for a node of the job that the report does not name it.
    source
        The reporting system, for messages.

    Raises
    ------
    ReportError
        If the report names no node of the job, or leaves none of them.
    """
    nodes = job.topology.nodes
    if not verdicts:
        raise ReportError(
            f"{source} names no node of job {job.name!r}, whose {len(nodes)} nodes are {nodes[0]} to {nodes[-1]}",
            hint="names must be equal but for case and domain; give the report of the job's own cluster",
        )
    every = {node: verdicts.get(node, missing) for node in nodes}
    _refuse_total_loss(every.values(), f"every node of job {job.name!r}", source)
    known = set(state.nodes)
    failed = [node for node, verdict in every.items() if verdict is Verdict.FAILED and node not in known]
    recovered = [node for node, verdict in every.items() if verdict is Verdict.IN_SERVICE and node in known]
    return _events(failed, recovered, lambda kind, found: FailureEvent(kind=kind, nodes=compress_hostlist(found)))


def worker_events(
    job: Job, state: FailureState, verdicts: Mapping[Worker, Verdict], *, source: str
) -> tuple[FailureEvent, ...]:
    """Events that bring a job's failed workers up to date; as :func:`node_events`, with a verdict for each worker.

    Raises
    ------
    ReportError
        If the report leaves no worker.
    """
    _refuse_total_loss(verdicts.values(), f"every worker of job {job.name!r}", source)
    known = set(state.workers)
    failed = [worker for worker, verdict in verdicts.items() if verdict is Verdict.FAILED and worker not in known]
    recovered = [worker for worker, verdict in verdicts.items() if verdict is Verdict.IN_SERVICE and worker in known]
    return _events(failed, recovered, lambda kind, found: FailureEvent(kind=kind, workers=tuple(found)))


def _events(
    failed: list[_T], recovered: list[_T], event: Callable[[EventKind, list[_T]], FailureEvent]
) -> tuple[FailureEvent, ...]:
    kinds = ((EventKind.NODE_FAILED, failed), (EventKind.NODE_RECOVERED, recovered))
    return tuple(event(kind, found) for kind, found in kinds if found)


def _refuse_total_loss(verdicts: Iterable[Verdict], what: str, source: str) -> None:
    """A report that leaves nothing says more about its source than about the job."""
    if all(verdict is Verdict.FAILED for verdict in verdicts):
        raise ReportError(
            f"{source} says that {what} is down; nothing is made of that",
            hint="the job has ended or the source is cut off; where it is true, name the nodes with --failed",
        )
