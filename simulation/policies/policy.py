"""What a policy says to the engine."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Protocol, TypeAlias

from simulation.cluster import Change, Cluster
from simulation.outcome import Cause


class Lost(StrEnum):
    """What of the work done a change takes."""

    NOTHING = "nothing"
    """The iteration in flight is finished."""
    ITERATION = "iteration"
    """The iteration in flight."""
    SINCE_CHECKPOINT = "since_checkpoint"
    """Everything since the last checkpoint."""


Shares: TypeAlias = tuple[tuple[Cause, float], ...]
"""Causes with shares of time."""
Stalls: TypeAlias = tuple[tuple[Cause, float], ...]
"""Causes with seconds of standing still, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """How training goes on until the next change.

    Parameters
    ----------
    samples_per_s
        Samples a second while it runs, overheads not taken off; 0 where it stands still.
    iteration_s
        Seconds of one iteration; not used where it stands still.
    overheads
        Shares of the time that training does not run, by cause; together below 1.
    short_of
        Why ``samples_per_s`` is below what the whole cluster does: causes and their shares of the difference, which add up to 1.
    """

    samples_per_s: float
    iteration_s: float
    overheads: Shares = ()
    short_of: Shares = ((Cause.SLOWER, 1.0),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a policy does about a change.

    Parameters
    ----------
    mode
        How training goes on.
    stalls
        Seconds of standing still first, by cause, in order; one for a checkpoint has it written at its end.
    lost
        What of the work done is lost.
    later
        Seconds after the stalls at which training goes over to another mode (``None``: when the answer before set it to), how
        long it stands still then (reconfiguration), and that mode; ``None`` where nothing more happens by itself.
    """

    mode: Mode
    stalls: Stalls = ()
    lost: Lost = Lost.NOTHING
    later: tuple[float | None, float, Mode] | None = None


class Policy(Protocol):
    """One way to survive failures; it holds what it has to remember of one trace, so each trace takes a new one."""

    name: ClassVar[str]
    """What tables and options call it."""
    summary: ClassVar[str]
    """One line: what it does."""
    keeps_batch: ClassVar[bool]
    """Whether every iteration trains the whole global batch."""
    is_exact: ClassVar[bool]
    """Whether training is mathematically the same as without failures, up to the size of the batch."""
    writes_checkpoints: ClassVar[bool]
    """Whether training stands still now and then to write a checkpoint to fall back to."""

    def begin(self, cluster: Cluster) -> Mode:
        """How training begins; what is up then is put in place before, at no cost."""

    def answer(self, change: Change) -> Answer:
        """What to do about a change."""

    def gpus(self, cluster: Cluster) -> int:
        """GPUs paid for while the cluster is so."""


class PaysForWhatIsUp:
    """A policy that needs no GPUs beside those that are up, and pays for all of these."""

    __slots__ = ()

    def gpus(self, cluster: Cluster) -> int:
        """See :meth:`Policy.gpus`."""
        return cluster.gpus


WAIT = Mode(samples_per_s=0.0, iteration_s=1.0, short_of=((Cause.WAITING, 1.0),))
"""Too few nodes to train at all."""
