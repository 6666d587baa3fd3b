"""What is down and slow in a job right now, and how events change it.

State is kept by *target*, as it was reported: a node, a rank or a worker. Which workers that takes down is worked out
anew from the job each time, so that a node that comes back also brings back the workers it took down, and a new revision
of the job can keep what is still known to be broken.

Rules. A failed node includes its ranks: they are not listed beside it. A target that fails loses its degradation. A node
that recovers is whole again: its failure, its degradation and those of its ranks end. Events change a state only as a
whole: one target that does not fit and nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from planner.errors import AlreadyFailedError, FailureSetError, NotFailedError, UnknownNodeError
from planner.failures import MAX_TARGETS, FailureSet, parse_failures
from planner.hostlist import expand_hostlist
from planner.job import Job
from planner.operation import Worker
from planner.problem import FULL_SPEED_PPM

_SHOWN = 4


class EventKind(StrEnum):
    """What happened to the targets of an event."""

    NODE_FAILED = "node_failed"
    """They are down."""
    NODE_RECOVERED = "node_recovered"
    """They are back, at full speed."""
    NODE_DEGRADED = "node_degraded"
    """They run on, more slowly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureEvent:
    """One report about nodes, ranks or workers.

    Parameters
    ----------
    kind
        What happened; takes the text form too.
    nodes
        Hostlist of nodes; ``None`` for none.
    ranks
        Global ranks of single GPUs.
    workers
        Workers, where the reporter knows no better name.
    speed
        For degraded targets the speed that is left, above 0 and below 1 of a healthy one's; else ``None``.

    Raises
    ------
    FailureSetError
        If the event names nothing, names too much, or has a speed that its kind does not take.
    """

    kind: EventKind
    nodes: str | None = None
    ranks: tuple[int, ...] = ()
    workers: tuple[Worker, ...] = ()
    speed: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in tuple(EventKind):
            raise FailureSetError(f"an event has the kind {self.kind!r}; expected one of {', '.join(EventKind)}")
        object.__setattr__(self, "kind", EventKind(self.kind))
        if self.nodes is None and not self.ranks and not self.workers:
            raise FailureSetError("an event names no node, rank or worker; expected at least one")
        if len(self.ranks) + len(self.workers) > MAX_TARGETS:
            raise FailureSetError(f"an event names more than {MAX_TARGETS} ranks and workers")
        if (self.speed is not None) != (self.kind is EventKind.NODE_DEGRADED):
            raise FailureSetError(
                f"a {self.kind} event has speed {self.speed}; only node_degraded takes one, and needs it"
            )
        if self.speed is not None and not 1 <= self.speed_ppm < FULL_SPEED_PPM:
            raise FailureSetError(
                f"a degraded target has speed {self.speed}; expected a number above 0 and below 1",
                hint="report a target that is at full speed again as node_recovered",
            )

    @property
    def speed_ppm(self) -> int:
        """Speed in parts per million, rounded to the nearest; 0 where there is none."""
        return round(self.speed * FULL_SPEED_PPM) if self.speed is not None and 0 < self.speed < 1 else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureState:
    """What is down and slow, by target. Equal states are written the same way.

    Parameters
    ----------
    nodes
        Failed nodes, ascending by name, each once.
    ranks
        GPUs that failed by themselves, by global rank, ascending, each once.
    workers
        Workers that were named as failed, ascending, each once.
    degraded
        Slow targets with their speed, 1 to 999,999 parts per million; a target is a node's name, ``rank:17`` or
        ``worker:1/2``. Ascending by target, each once.

    Raises
    ------
    FailureSetError
        If something is out of order or range.
    """

    nodes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    workers: tuple[Worker, ...] = ()
    degraded: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        if len(self.nodes) + len(self.ranks) + len(self.workers) + len(self.degraded) > MAX_TARGETS:
            raise FailureSetError(f"more than {MAX_TARGETS} targets are down or slow")
        targets = tuple(target for target, _ in self.degraded)
        for name, values in (
            ("nodes", self.nodes),
            ("ranks", self.ranks),
            ("workers", self.workers),
            ("degraded", targets),
        ):
            if list(values) != sorted(set(values)):  # type: ignore[type-var]
                raise FailureSetError(f"{name} of a failure state are not ascending, or stand twice")
        for target, speed in self.degraded:
            if not 0 < speed < FULL_SPEED_PPM:
                raise FailureSetError(f"{target} is degraded to {speed} ppm; expected 1 to {FULL_SPEED_PPM - 1}")

    def __bool__(self) -> bool:
        return bool(self.nodes or self.ranks or self.workers or self.degraded)


@dataclass(slots=True)
class _Draft:
    """A state that is being changed."""

    nodes: set[str]
    ranks: set[int]
    workers: set[Worker]
    degraded: dict[str, int]

    @classmethod
    def of(cls, state: FailureState) -> _Draft:
        return cls(set(state.nodes), set(state.ranks), set(state.workers), dict(state.degraded))

    def freeze(self) -> FailureState:
        return FailureState(
            nodes=tuple(sorted(self.nodes)),
            ranks=tuple(sorted(self.ranks)),
            workers=tuple(sorted(self.workers)),
            degraded=tuple(sorted(self.degraded.items())),
        )

    def drop_node(self, job: Job, node: str) -> bool:
        """Forget all about a node and its ranks; whether there was anything."""
        ranks = job.topology.gpus_of_node(node)
        known = node in self.nodes or node in self.degraded or not self.ranks.isdisjoint(ranks)
        self.nodes.discard(node)
        self.ranks.difference_update(ranks)
        slow = [target for target in (node, *map(_rank, ranks)) if target in self.degraded]
        for target in slow:
            del self.degraded[target]
        return known or bool(slow)


def apply_event(job: Job, state: FailureState, event: FailureEvent) -> FailureState:
    """State after an event.

    Parameters
    ----------
    job
        The job whose nodes, ranks and workers are named.
    state
        State before it; everything it names belongs to the job, see :func:`carry_over`.
    event
        The report.

    Raises
    ------
    UnknownNodeError
        If the job has no such node.
    FailureSetError
        If a hostlist's size is past a limit, or the job has no such rank or worker.
    HostlistError
        If the hostlist is malformed.
    NotFailedError
        If something recovers that is neither down nor slow.
    AlreadyFailedError
        If nothing of a failure or a degradation is new, or something that is down is said to be slow.

    Examples
    --------
    ``apply_event(job, FailureState(), FailureEvent(kind="node_failed", nodes="gpu[0007,0100]"))``
    """
    nodes = _known_nodes(job, event)
    change = {
        EventKind.NODE_FAILED: _fail,
        EventKind.NODE_RECOVERED: _recover,
        EventKind.NODE_DEGRADED: _degrade,
    }[event.kind]
    return change(job, _Draft.of(state), nodes, event)


def to_failure_set(job: Job, state: FailureState) -> FailureSet:
    """Workers that a state takes down or slows.

    Raises
    ------
    FailureSetError
        If the state names what the job does not have.
    """
    return parse_failures(
        job,
        [*state.nodes, *map(_rank, state.ranks), *map(_worker, state.workers)],
        [f"{target}=0.{speed:06d}" for target, speed in state.degraded],
    )


def carry_over(job: Job, state: FailureState) -> tuple[FailureState, tuple[str, ...]]:
    """Keep of a state what another revision of its job still has.

    Returns
    -------
    state
        What is left.
    dropped
        Targets that the job does not have, ascending: nodes' names, ``rank:17``, ``worker:1/2``.
    """
    gpus_of_failed = {gpu for node in state.nodes if _has_node(job, node) for gpu in job.topology.gpus_of_node(node)}
    targets = [
        *state.nodes,
        *map(_rank, state.ranks),
        *map(_worker, state.workers),
        *(name for name, _ in state.degraded),
    ]
    kept = FailureState(
        nodes=tuple(node for node in state.nodes if _has_node(job, node)),
        ranks=tuple(rank for rank in state.ranks if rank < job.topology.num_gpus and rank not in gpus_of_failed),
        workers=tuple(worker for worker in state.workers if job.has_worker(worker)),
        degraded=tuple((name, speed) for name, speed in state.degraded if _has_target(job, name)),
    )
    return kept, tuple(sorted({target for target in targets if not _has_target(job, target)}))


def _fail(job: Job, draft: _Draft, nodes: tuple[str, ...], event: FailureEvent) -> FailureState:
    on_failed = _gpus_of(job, {*draft.nodes, *nodes})
    new = bool(set(nodes) - draft.nodes or set(event.workers) - draft.workers)
    new |= any(rank not in on_failed and rank not in draft.ranks for rank in event.ranks)
    if not new:
        raise AlreadyFailedError(f"all of {_names(event)} is down already; expected something new")
    for node in nodes:
        draft.drop_node(job, node)
    draft.nodes.update(nodes)
    draft.ranks.update(rank for rank in event.ranks if rank not in on_failed)
    draft.workers.update(event.workers)
    for target in (*map(_rank, event.ranks), *map(_worker, event.workers)):
        draft.degraded.pop(target, None)
    return draft.freeze()


def _recover(job: Job, draft: _Draft, nodes: tuple[str, ...], event: FailureEvent) -> FailureState:
    strangers: list[str] = []
    for rank in dict.fromkeys(event.ranks):
        known = _forget(draft.ranks, rank)
        known |= draft.degraded.pop(_rank(rank), None) is not None
        # A rank may be named beside its node: that it is back goes without saying.
        if not known and job.topology.node_of_gpu(rank) not in nodes:
            strangers.append(_rank(rank))
    for node in nodes:
        if not draft.drop_node(job, node):
            strangers.append(node)
    for worker in dict.fromkeys(event.workers):
        known = _forget(draft.workers, worker)
        known |= draft.degraded.pop(_worker(worker), None) is not None
        if not known:
            strangers.append(_worker(worker))
    if strangers:
        raise NotFailedError(
            f"{_some(strangers)} cannot recover: nobody reported it as failed or degraded",
            hint="name what was reported; a rank or worker that is down through its node comes back with the node",
        )
    return draft.freeze()


def _degrade(job: Job, draft: _Draft, nodes: tuple[str, ...], event: FailureEvent) -> FailureState:
    on_failed = _gpus_of(job, draft.nodes)
    down = [node for node in nodes if node in draft.nodes]
    down += [_rank(rank) for rank in event.ranks if rank in draft.ranks or rank in on_failed]
    down += [_worker(worker) for worker in event.workers if worker in draft.workers]
    if down:
        raise AlreadyFailedError(f"{_some(down)} is down; expected live targets", hint="report it as recovered first")
    before = dict(draft.degraded)
    for target in (*nodes, *map(_rank, event.ranks), *map(_worker, event.workers)):
        draft.degraded[target] = event.speed_ppm
    if draft.degraded == before:
        raise AlreadyFailedError(f"all of {_names(event)} has this speed already; expected something new")
    return draft.freeze()


def _known_nodes(job: Job, event: FailureEvent) -> tuple[str, ...]:
    """Nodes of an event, each once; everything it names is checked."""
    nodes = tuple(dict.fromkeys(expand_hostlist(event.nodes, max_hosts=MAX_TARGETS))) if event.nodes is not None else ()
    unknown = [node for node in nodes if not _has_node(job, node)]
    if unknown:
        every = job.topology.nodes
        raise UnknownNodeError(
            f"node {_some(unknown)} is no node of job {job.name!r}",
            hint=f"its {len(every)} nodes are {every[0]} to {every[-1]}",
        )
    for rank in event.ranks:
        if not 0 <= rank < job.topology.num_gpus:
            raise FailureSetError(f"rank {rank} does not exist; expected 0 to {job.topology.num_gpus - 1}")
    for worker in event.workers:
        if not job.has_worker(worker):
            raise FailureSetError(
                f"worker {worker} does not exist; expected pipelines 0 to {job.num_pipelines - 1}, "
                f"slots 0 to {job.num_slots - 1}"
            )
    return nodes


def _gpus_of(job: Job, nodes: Iterable[str]) -> set[int]:
    return {gpu for node in nodes for gpu in job.topology.gpus_of_node(node)}


def _has_node(job: Job, node: str) -> bool:
    return node in job.topology.index_of_node


def _has_target(job: Job, target: str) -> bool:
    try:
        parse_failures(job, [target])
    except FailureSetError:
        return False
    return True


def _forget(known: set[int] | set[Worker], value: int | Worker) -> bool:
    found = value in known
    known.discard(value)
    return found


def _rank(rank: int) -> str:
    return f"rank:{rank}"


def _worker(worker: Worker) -> str:
    return f"worker:{worker}"


def _names(event: FailureEvent) -> str:
    nodes = [event.nodes if len(event.nodes) <= 80 else f"{event.nodes[:77]}..."] if event.nodes else []
    return _some([*nodes, *map(_rank, event.ranks), *map(_worker, event.workers)])


def _some(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
