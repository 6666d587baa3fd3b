"""What is down and what is slow, as people say it, resolved to workers of a job.

A target is a hostlist of nodes (``gpu[0007,0100-0103]``), ``rank:17`` (the GPU of that global rank) or ``worker:1/2``
(pipeline/slot). A failed target takes down every worker that has a GPU on it; a degraded one (``target=0.7``) slows every
worker that has a GPU on it, since the GPUs of a worker wait for each other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from planner.errors import FailureSetError, HostlistError, ScheduleFormatError
from planner.hostlist import expand_hostlist
from planner.job import Job
from planner.layout import workers_on
from planner.operation import Worker, parse_worker
from planner.problem import FULL_SPEED_PPM

MAX_TARGETS = 100_000
"""Most values that one failure set may be given."""

MAX_NAMED_NODES = 2**20
"""Most nodes that all targets of a failure set may name together, repetitions counted."""

_RANK = re.compile(r"0|[1-9][0-9]{0,8}")
_FACTOR = re.compile(r"(?:0|1)?\.[0-9]{1,18}|0|1|1\.")


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureSet:
    """Failed and degraded targets, and the workers they take down or slow.

    Parameters
    ----------
    nodes
        Failed nodes, in rank order, each once.
    ranks
        GPUs that failed by themselves (not through their node), by global rank, ascending.
    workers
        Workers named as failed, ascending.
    dead
        Every worker that is down.
    speeds_ppm
        Speed of each live degraded worker, 1 to 999,999 parts per million; the slowest of all that was said of it.
    """

    nodes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    workers: tuple[Worker, ...] = ()
    dead: frozenset[Worker] = frozenset()
    speeds_ppm: dict[Worker, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.nodes or self.ranks or self.workers or self.speeds_ppm)


@dataclass(slots=True)
class _Targets:
    """What a list of targets names in a job."""

    nodes: set[str] = field(default_factory=set)
    ranks: set[int] = field(default_factory=set)
    workers: set[Worker] = field(default_factory=set)
    num_named: int = 0

    def read(self, job: Job, text: str) -> None:
        """Add what one target names."""
        head, colon, tail = text.partition(":")
        if not colon:
            names = _read_nodes(job, text)
            # Short hostlists stand for many nodes, so what they name is counted over all targets.
            self.num_named += len(names)
            if self.num_named > MAX_NAMED_NODES:
                raise FailureSetError(f"the targets name more than {MAX_NAMED_NODES} nodes; name each node once")
            self.nodes.update(names)
        elif head == "rank":
            self.ranks.add(_read_rank(job, tail))
        elif head == "worker":
            self.workers.add(_read_worker(job, tail))
        else:
            raise FailureSetError(
                f"target {_short(text)} cannot be read", hint="expected a hostlist of nodes, rank:17 or worker:1/2"
            )

    def resolve(self, job: Job) -> frozenset[Worker]:
        """Every worker with a GPU on a target."""
        gpus = [gpu for node in self.nodes for gpu in job.topology.gpus_of_node(node)]
        return workers_on(job.layout, [*gpus, *self.ranks], job.topology.num_gpus) | self.workers


def parse_failures(job: Job, fail: Sequence[str] = (), degrade: Sequence[str] = ()) -> FailureSet:
    """Read what failed and what is slow.

    Parameters
    ----------
    job
        The job whose nodes, ranks and workers are named.
    fail
        Targets that are down.
    degrade
        ``target=factor``, factor above 0 and at most 1 of a healthy worker's speed. A worker that is both dead and degraded
        is dead; one that is degraded twice has the smaller factor.

    Raises
    ------
    HostlistError
        If a hostlist is malformed.
    FailureSetError
        If a target cannot be read or names what the job does not have, or a factor is outside its range.

    Examples
    --------
    ``parse_failures(job, ["gpu[0007,0100-0103]", "worker:1/2"], ["rank:17=0.7"])``
    """
    if len(fail) + len(degrade) > MAX_TARGETS:
        raise FailureSetError(f"{len(fail) + len(degrade)} failed and degraded targets; expected at most {MAX_TARGETS}")
    failed = _Targets()
    for text in fail:
        failed.read(job, text)
    dead = failed.resolve(job)
    speeds: dict[Worker, int] = {}
    num_named = failed.num_named
    for text in degrade:
        target, equals, factor = text.rpartition("=")
        if not equals:
            raise FailureSetError(
                f"degraded target {_short(text)} has no speed", hint="expected target=factor such as worker:1/2=0.7"
            )
        slowed = _Targets(num_named=num_named)
        slowed.read(job, target)
        num_named = slowed.num_named
        speed = _read_factor(factor, text)
        for worker in slowed.resolve(job) - dead:
            speeds[worker] = min(speed, speeds.get(worker, FULL_SPEED_PPM))
    on_failed_nodes = {gpu for node in failed.nodes for gpu in job.topology.gpus_of_node(node)}
    return FailureSet(
        nodes=tuple(sorted(failed.nodes, key=job.topology.index_of_node.__getitem__)),
        ranks=tuple(sorted(failed.ranks - on_failed_nodes)),
        workers=tuple(sorted(failed.workers)),
        dead=dead,
        speeds_ppm={worker: speeds[worker] for worker in sorted(speeds) if speeds[worker] < FULL_SPEED_PPM},
    )


def _read_nodes(job: Job, text: str) -> tuple[str, ...]:
    if not text:
        raise HostlistError("an empty hostlist names no node", hint="expected names such as gpu[0007,0100-0103]")
    names = expand_hostlist(text)
    unknown = [name for name in names if name not in job.topology.index_of_node]
    if unknown:
        nodes = job.topology.nodes
        raise FailureSetError(
            f"node {', '.join(unknown[:4])}{' and others' if len(unknown) > 4 else ''} in {_short(text)} is no node of job "
            f"{job.name!r}",
            hint=f"its {len(nodes)} nodes are {nodes[0]} to {nodes[-1]}; a rank is written rank:17, a worker worker:1/2",
        )
    return names


def _read_rank(job: Job, text: str) -> int:
    if _RANK.fullmatch(text) is None or int(text) >= job.topology.num_gpus:
        raise FailureSetError(f"rank {_short(text)} does not exist; expected 0 to {job.topology.num_gpus - 1}")
    return int(text)


def _read_worker(job: Job, text: str) -> Worker:
    try:
        worker = parse_worker(text)
    except ScheduleFormatError as error:
        raise FailureSetError(error.message, hint=error.hint) from error
    if not job.has_worker(worker):
        raise FailureSetError(
            f"worker {worker} does not exist; expected pipelines 0 to {job.num_pipelines - 1}, slots 0 to {job.num_slots - 1}"
        )
    return worker


def _read_factor(text: str, whole: str) -> int:
    """Speed in parts per million; rounded to the nearest, which is at least 1."""
    value = float(text) if _FACTOR.fullmatch(text) is not None else 0.0
    speed = round(value * FULL_SPEED_PPM)
    if not 1 <= speed <= FULL_SPEED_PPM:
        raise FailureSetError(
            f"speed factor {_short(text)} of {_short(whole)} is out of range; expected a number above 0 and at most 1 such as 0.7"
        )
    return speed


def _short(text: str) -> str:
    return repr(text) if len(text) <= 80 else f"{text[:77]!r}..."
