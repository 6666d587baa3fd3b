"""What is told about jobs beside their epochs: registrations, reports and acknowledgements."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias, get_args

from replan_client.documents import Fields, parse_object
from replan_client.errors import AnswerError, ArgumentError

EventKind: TypeAlias = Literal["node_failed", "node_recovered", "node_degraded", "shards_restored"]
Mode: TypeAlias = Literal["normalized", "all"]
_MAX_ITERATION = 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to a job's nodes, ranks or workers.

    Parameters
    ----------
    kind
        ``node_failed``, ``node_recovered``, ``node_degraded`` or ``shards_restored``.
    nodes
        Nodes, as Slurm hostlists.
    ranks
        Single GPUs, by global rank.
    workers
        Workers by their homes, ``pipeline/slot``.
    speed
        For ``node_degraded``: the share of a healthy worker's speed that is left, above 0 and below 1.
    iteration
        Iteration during which it happened, from 0 on; ``None`` where not known. A failed one is run again.
    expected_epoch
        Only to be accepted while this is the job's current epoch; ``None``: whatever it is.

    Raises
    ------
    ArgumentError
        If a value cannot be sent.
    """

    kind: EventKind
    nodes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    workers: tuple[str, ...] = ()
    speed: float | None = None
    iteration: int | None = None
    expected_epoch: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(EventKind):
            raise ArgumentError(f"the kind of event is {self.kind!r}; expected one of {', '.join(get_args(EventKind))}")
        for name in ("nodes", "ranks", "workers"):
            if isinstance(getattr(self, name), str):
                raise ArgumentError(f"{name} of the event is a string; expected a tuple")
        if self.speed is not None and not 0 < self.speed < 1:
            raise ArgumentError(f"the speed of the event is {self.speed}; expected a share above 0 and below 1")
        check_iteration(self.iteration)

    def to_bytes(self) -> bytes:
        """The JSON that is sent; what is not known is left out."""
        lists = {"nodes": list(self.nodes), "ranks": list(self.ranks), "workers": list(self.workers)}
        single = {"speed": self.speed, "iteration": self.iteration, "expected_epoch": self.expected_epoch}
        given = {name: value for name, value in (lists | single).items() if value is not None and value != []}
        return to_json({"kind": self.kind, **given})


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSummary:
    """A registered job.

    Parameters
    ----------
    id
        The id that it is registered under.
    name
        Name in its document.
    revision
        1 for its first document, one more for each other one.
    job_sha256
        Hash of all that its plans depend on.
    tolerance
        Failed workers that plans are to be ready for.
    mode
        Plans that are made ready when it is registered; ``None`` for none.
    epoch
        Its current epoch.
    operation
        Operation that this registration began; ``None`` for none.
    """

    id: str
    name: str | None
    revision: int
    job_sha256: str
    tolerance: int
    mode: str | None
    epoch: int
    operation: str | None

    @classmethod
    def from_bytes(cls, content: bytes, *, job: str) -> Self:
        """Read the service's JSON; raises :class:`AnswerError` where it is none, or another job's."""
        fields = Fields(parse_object(content, "the job"), "the job")
        if fields.text("id") != job:
            raise AnswerError(f"the answer is about the job {fields.text('id')!r}; expected {job!r}")
        return cls(
            id=job,
            name=fields.text_or_none("name"),
            revision=fields.number("revision", least=1),
            job_sha256=fields.text("job_sha256"),
            tolerance=fields.number("tolerance"),
            mode=fields.text_or_none("mode"),
            epoch=fields.number("epoch", least=1),
            operation=fields.text_or_none("operation"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerAcknowledgement:
    """What one worker, named by its home, said of an epoch: the iteration from whose start it runs it, if it said so."""

    worker: str
    iteration: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgements:
    """Who has an epoch and who has not.

    Parameters
    ----------
    epoch
        The epoch.
    num_live
        Workers that have a program in it.
    acknowledged
        Those that have said so.
    missing
        Those that have not, by their homes.
    from_iteration
        First iteration that all run its programs in; ``None`` until all have named one.
    """

    epoch: int
    num_live: int
    acknowledged: tuple[WorkerAcknowledgement, ...]
    missing: tuple[str, ...]
    from_iteration: int | None

    @classmethod
    def from_bytes(cls, content: bytes, *, epoch: int) -> Self:
        """Read the service's JSON; raises :class:`AnswerError` where it is none, or another epoch's."""
        fields = Fields(parse_object(content, "the acknowledgements"), "the acknowledgements")
        if fields.number("epoch") != epoch:
            raise AnswerError(f"the answer is about epoch {fields.number('epoch')}; expected {epoch}")
        return cls(
            epoch=epoch,
            num_live=fields.number("num_live"),
            acknowledged=tuple(
                WorkerAcknowledgement(worker=one.text("worker"), iteration=one.number_or_none("iteration"))
                for one in fields.objects("acknowledged")
            ),
            missing=fields.texts("missing"),
            from_iteration=fields.number_or_none("from_iteration"),
        )


def check_iteration(iteration: int | None) -> None:
    """Raise :class:`ArgumentError` where an iteration is out of range."""
    if iteration is not None and not 0 <= iteration <= _MAX_ITERATION:
        raise ArgumentError(f"the iteration is {iteration}; expected 0 to {_MAX_ITERATION}")


def to_json(document: Any) -> bytes:
    """JSON of plain values.

    Raises
    ------
    ArgumentError
        If they hold anything else, infinite numbers among it.
    """
    try:
        return json.dumps(document, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentError(f"what is to be sent cannot be written as JSON: {error}") from error
