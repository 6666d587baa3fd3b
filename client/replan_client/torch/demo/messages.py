"""What the demonstration's processes tell the one that started them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from replan_client.operation import Worker
from replan_client.torch.timeline import TimelineEvent

Parameters = Mapping[str, Any]
"""NumPy arrays by ``<stage>.<name>``."""
Losses = Mapping[tuple[int, int], float]
"""Loss of each microbatch ``(pipeline, microbatch)``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InForward:
    """A worker stands in the middle of the forward in which it is to die, and waits for it."""

    iteration: int
    forward: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """A worker has completed an iteration."""

    iteration: int
    epoch: int
    position: Worker
    losses: Losses
    events: tuple[TimelineEvent, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """How a worker's training, or the undisturbed run, ended; ``completed`` is ``None`` where it holds no state."""

    completed: int | None
    parameters: Parameters
    generations: tuple[Mapping[str, Any], ...] = ()
    losses: tuple[Losses, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """A worker that came back waits to be let in."""

    worker: str
