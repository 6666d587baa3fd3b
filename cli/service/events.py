"""Events as a service takes them: from the command line, or from a report of another system."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from cli.errors import ServiceError
from planner.errors import InputError
from planner.operation import parse_worker

if TYPE_CHECKING:
    from cli.service.client import ServiceClient
    from planner.failure_state import FailureEvent, FailureState
    from planner.job import Job

_MOST_RACES = 5
_RANK = re.compile(r"0|[1-9][0-9]{0,8}")
_NAMELESS = re.compile(r"rank:.*|worker:.*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Reported:
    """An event that the service took, and the epoch that it made."""

    event: dict[str, Any]
    epoch: dict[str, Any]


def event_of(kind: str, targets: Sequence[str], speed: float | None) -> dict[str, Any]:
    """One event of what was named on the command line.

    Parameters
    ----------
    kind
        ``node_failed``, ``node_recovered`` or ``node_degraded``.
    targets
        Hostlists, ``rank:17`` and ``worker:1/2``.
    speed
        For degraded targets, above 0 and below 1.

    Raises
    ------
    click.BadParameter
        If a rank or a worker is malformed; nodes are for the service to judge.
    """
    event: dict[str, Any] = {"kind": kind, "nodes": [], "ranks": [], "workers": []}
    for target in targets:
        head, _, tail = target.partition(":")
        if _NAMELESS.fullmatch(target) is None:
            event["nodes"].append(target)
        elif head == "rank":
            if _RANK.fullmatch(tail) is None:
                raise click.BadParameter(f"{target!r} is no rank; expected one such as rank:17")
            event["ranks"].append(int(tail))
        else:
            try:
                event["workers"].append(str(parse_worker(tail)))
            except InputError as error:
                raise click.BadParameter(f"{target!r} is no worker; expected one such as worker:1/2") from error
    event["nodes"] = event["nodes"] or None
    return event if speed is None else event | {"speed": speed}


def post_event(
    client: ServiceClient,
    job_id: str,
    event: dict[str, Any],
    *,
    expected_epoch: int | None = None,
    idempotency_key: str | None = None,
) -> Reported:
    """Report one event.

    Parameters
    ----------
    client
        The service.
    job_id
        The job.
    event
        The event.
    expected_epoch
        Epoch that has to be current; ``None`` for any.
    idempotency_key
        What makes two requests the same report; ``None`` for one of its own.

    Raises
    ------
    ServiceError
        If the service does not take it.
    """
    key = idempotency_key or str(uuid.uuid4())
    body = event if expected_epoch is None else event | {"expected_epoch": expected_epoch}
    return Reported(event, client.send("POST", "jobs", job_id, "events", body=body, idempotency_key=key).document())


def post_report(
    client: ServiceClient,
    job_id: str,
    make_events: Callable[[Job, FailureState], tuple[FailureEvent, ...]],
    *,
    extra: dict[str, Any],
    expected_epoch: int | None = None,
    is_dry_run: bool = False,
) -> tuple[Reported, ...]:
    """Report the difference between what the service knows and what a report says.

    Each event is tied to the epoch that it was made for, and its idempotency key to both: of two watchers that report the same
    at once, one makes the epoch and the other gets it. Where a third was faster, the difference is made anew.

    Parameters
    ----------
    client
        The service.
    job_id
        The job.
    make_events
        Reads the report.
    extra
        Further fields of each event.
    expected_epoch
        Epoch that has to be current when the first event is taken; ``None`` for any.
    is_dry_run
        Whether to keep the events to oneself; their epochs are then the current one.

    Raises
    ------
    ServiceError
        If the service does not take an event, or the job moves on faster than it can be followed.
    InputError
        If the report or the job cannot be read.
    """
    from planner.formats.job_file import parse_job

    job = parse_job(json.dumps(client.get("jobs", job_id).document()["job"]), format="json")
    taken: list[Reported] = []
    for _ in range(_MOST_RACES):
        current = client.get("jobs", job_id, "epochs", "current").document()
        if expected_epoch is not None and not taken and current["epoch"] != expected_epoch:
            raise ServiceError(
                f"job {job_id} is at epoch {current['epoch']}; expected {expected_epoch}",
                code="epoch_conflict",
                status=409,
            )
        events = [_event_body(event) | extra for event in make_events(job, state_of(current))]
        if is_dry_run:
            return tuple(Reported(event, current) for event in events)
        try:
            for event in events:
                epoch = (
                    taken[-1].epoch["epoch"]
                    if taken and taken[-1].epoch["epoch"] >= current["epoch"]
                    else current["epoch"]
                )
                key = _report_key(job_id, epoch, event)
                taken.append(post_event(client, job_id, event, expected_epoch=epoch, idempotency_key=key))
        except ServiceError as error:
            if error.code != "epoch_conflict" or (expected_epoch is not None and not taken):
                raise
            continue
        return tuple(taken)
    raise ServiceError(
        f"job {job_id} got a new epoch each of {_MOST_RACES} times that a report was made for it; nothing more was reported",
        code="epoch_conflict",
        status=409,
    )


def state_of(epoch: dict[str, Any]) -> FailureState:
    """What an epoch says is down and slow."""
    from planner.failure_state import FailureState
    from planner.hostlist import expand_hostlist
    from planner.problem import FULL_SPEED_PPM

    failures = epoch["failures"]
    nodes = expand_hostlist(failures["nodes"]) if failures["nodes"] else ()
    degraded = {target: round(speed * FULL_SPEED_PPM) for target, speed in failures["degraded"].items()}
    return FailureState(
        nodes=tuple(sorted(nodes)),
        ranks=tuple(sorted(failures["ranks"])),
        workers=tuple(sorted(parse_worker(worker) for worker in failures["workers"])),
        degraded=tuple(sorted(degraded.items())),
    )


def _event_body(event: FailureEvent) -> dict[str, Any]:
    body: dict[str, Any] = {
        "kind": str(event.kind),
        "nodes": event.nodes,
        "ranks": list(event.ranks),
        "workers": [str(worker) for worker in event.workers],
    }
    return body if event.speed is None else body | {"speed": event.speed}


def _report_key(job_id: str, epoch: int, event: dict[str, Any]) -> str:
    content = json.dumps([job_id, epoch, event], sort_keys=True).encode()
    return f"report-{hashlib.sha256(content).hexdigest()}"
