"""What one worker's training came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn
from torch.optim import Optimizer

from replan_client.operation import Worker
from replan_client.torch.timeline import TimelineEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRecord:
    """One generation that a worker was part of.

    Parameters
    ----------
    epoch, attempt
        Which one.
    position
        Where the worker stood.
    first_iteration
        The iteration that it began with.
    num_workers
        Workers in it.
    rolled_back
        Whether this worker gave an iteration up that it had completed.
    received_from
        Position that it copied its state from; ``None`` for nobody.
    received_bytes
        Bytes of that.
    forming_s
        Seconds from the end of what was before to its beginning, for this worker.
    """

    epoch: int
    attempt: int
    position: Worker
    first_iteration: int
    num_workers: int
    rolled_back: bool
    received_from: Worker | None
    received_bytes: int
    forming_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationReport:
    """One iteration that a worker completed. A broken one is run again, and so reported again, with the same losses.

    Parameters
    ----------
    iteration
        Its number, from 0 on.
    epoch
        The epoch that it ran in.
    position
        Where the worker stood.
    losses
        Loss of each microbatch ``(pipeline, microbatch)`` whose last stage ran here.
    seconds
        Time that it took here.
    peak_in_flight
        Most microbatches that were held here at a time.
    events
        What ran when, for a :class:`~replan_client.torch.timeline.Timeline` of this position.
    modules, optimizers
        By stage, in the state after the iteration: what a checkpoint holds. They go on being trained.
    """

    iteration: int
    epoch: int
    position: Worker
    losses: Mapping[tuple[int, int], float]
    seconds: float
    peak_in_flight: int
    events: tuple[TimelineEvent, ...]
    modules: Mapping[int, nn.Module]
    optimizers: Mapping[int, Optimizer]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingResult:
    """What one worker's training came to.

    Parameters
    ----------
    worker
        The worker by its home.
    completed
        Iterations completed in the state that it holds; ``None`` where it holds none, since training ended before it joined.
    modules, optimizers
        By stage, in that state.
    losses
        By iteration, as of :class:`IterationReport`: those of iterations that this worker completed and that counted.
    generations
        The generations that it was part of, in order.
    """

    worker: str
    completed: int | None
    modules: Mapping[int, nn.Module]
    optimizers: Mapping[int, Optimizer]
    losses: Mapping[int, Mapping[tuple[int, int], float]]
    generations: tuple[GenerationRecord, ...]
