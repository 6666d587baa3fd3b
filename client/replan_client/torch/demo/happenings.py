"""What happens in the demonstration, as whoever watches is told, in the order in which it happens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from replan_client.epochs import Epoch
from replan_client.torch.demo.scenario import Kill, Return


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStarted:
    """The service listens."""

    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CostsMeasured:
    """The job is known: its document, with the measured costs of its stages."""

    document: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceTrained:
    """The undisturbed run is done: the mean loss of each of its iterations."""

    losses: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochBegun:
    """The job has come to an epoch."""

    job_id: str
    epoch: Epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationDone:
    """All microbatches of an iteration have a loss: their mean, beside that of the undisturbed run."""

    iteration: int
    epoch: int
    loss: float
    reference_loss: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed:
    """A worker was killed."""

    kill: Kill
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """After a kill the first worker has completed an iteration of a new epoch: so many seconds after the kill."""

    epoch: int
    iteration: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Returning:
    """A killed worker is started again, and training waits for it."""

    comes_back: Return


@dataclass(frozen=True, slots=True, kw_only=True)
class LetIn:
    """It is there, and training goes on."""

    worker: str
    seconds: float


Happening: TypeAlias = (
    ServiceStarted
    | CostsMeasured
    | ReferenceTrained
    | EpochBegun
    | IterationDone
    | Killed
    | Resumed
    | Returning
    | LetIn
)
Listener: TypeAlias = Callable[[Happening], None]
