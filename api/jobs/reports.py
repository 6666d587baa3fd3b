"""What a report makes of what is known to be down and slow."""

from __future__ import annotations

from api.jobs.drafting import Change
from api.jobs.forms import JobEvent
from api.jobs.loaded import LoadedJob
from planner.errors import FailureSetError, ScheduleFormatError
from planner.failure_state import EventKind, FailureEvent, FailureState, apply_event, to_failure_set
from planner.operation import Worker, parse_worker


def change_of(
    loaded: LoadedJob, state: FailureState, event: JobEvent, *, dead: frozenset[Worker], shards_restored: bool
) -> Change:
    """What an event makes of a state.

    Parameters
    ----------
    loaded
        The job.
    state
        What is down and slow before it.
    event
        What was reported.
    dead
        Workers that are down before it.
    shards_restored
        Whether the optimizer shards that failures took are on live peers again.

    Raises
    ------
    FailureSetError, HostlistError
        If the event does not fit the job, or changes nothing.
    """
    later = None if event.iteration is None else event.iteration + 1
    if event.kind == "shards_restored":
        if event.nodes or event.ranks or event.workers or event.speed is not None:
            raise FailureSetError("a shards_restored event names nodes, ranks, workers or a speed; expected none")
        return Change(cause="event", state=state, shards_restored=True, from_iteration=later)
    nodes = event.nodes if event.nodes is None or isinstance(event.nodes, str) else ",".join(event.nodes)
    try:
        workers = tuple(parse_worker(text) for text in event.workers)
    except ScheduleFormatError as error:
        raise FailureSetError(error.message, hint=error.hint) from error
    reported = FailureEvent(
        kind=EventKind(event.kind), nodes=nodes or None, ranks=tuple(event.ranks), workers=workers, speed=event.speed
    )
    after = apply_event(loaded.job, state, reported)
    is_failure = reported.kind is EventKind.NODE_FAILED
    # Restored shards are lost again with the next worker that goes down.
    restored = shards_restored and to_failure_set(loaded.job, after).dead <= dead
    # A failed iteration is run again; otherwise the running one is finished first.
    return Change(
        cause="event", state=after, shards_restored=restored, from_iteration=event.iteration if is_failure else later
    )
