"""What a policy made of a trace."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Cause(StrEnum):
    """Why time was lost, measured against training without failures."""

    SLOWER = "slower"
    """Training ran with less than the whole cluster."""
    DETECTION = "detection"
    """Nobody knew yet."""
    RECONFIGURATION = "reconfiguration"
    """Communicators were made anew, or a plan was looked up or made."""
    MIGRATION = "migration"
    """State was copied to workers that moved."""
    RESTART = "restart"
    """Processes were started again and a checkpoint loaded."""
    REDONE = "redone"
    """What was trained after the last checkpoint, or in the iteration that broke off, had to be trained again."""
    CHECKPOINT = "checkpoint"
    """Checkpoints or snapshots were written."""
    REDUNDANCY = "redundancy"
    """The same was computed twice, in case one is lost; or a schedule without our techniques ran."""
    WAITING = "waiting"
    """There were too few nodes to train at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A stretch of time in which nothing changed.

    Parameters
    ----------
    start_s, end_s
        From when to when, in the trace's time.
    samples_per_s
        Useful samples a second; 0 where training stood still. What was lost later is not taken off here.
    """

    start_s: float
    end_s: float
    samples_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one policy did on one trace.

    Parameters
    ----------
    policy, trace
        Names.
    keeps_batch
        Whether every iteration trains the whole global batch.
    is_exact
        Whether training is mathematically what it would be without failures, up to the size of the batch.
    duration_s
        Seconds watched.
    samples
        Useful samples: those of finished iterations that were not lost later.
    fault_free_samples_per_s
        What the whole cluster trains a second without failures, by our plan.
    lost_s
        Seconds lost by cause: each is the time that the whole cluster would need for the samples not trained. With
        ``samples / fault_free_samples_per_s`` they add up to ``duration_s``.
    gpu_hours
        Hours of GPUs that were there, the policy's spares included, whether they worked or not.
    rollbacks, losses
        How often training fell back to a checkpoint; moments with a loss.
    checkpoint_interval_s
        Seconds of training between the checkpoints it falls back to; ``None`` where it keeps none.
    timeline
        What happened when.
    """

    policy: str
    trace: str
    keeps_batch: bool
    is_exact: bool
    duration_s: float
    samples: float
    fault_free_samples_per_s: float
    lost_s: dict[Cause, float]
    gpu_hours: float
    rollbacks: int
    losses: int
    checkpoint_interval_s: float | None
    timeline: tuple[Interval, ...]

    @property
    def goodput(self) -> float:
        """Useful samples a second."""
        return self.samples / self.duration_s

    @property
    def share(self) -> float:
        """Goodput as a share of what the whole cluster would train without failures."""
        return self.goodput / self.fault_free_samples_per_s

    @property
    def gpu_hours_per_million(self) -> float | None:
        """Hours of GPUs for a million useful samples; ``None`` without any."""
        return 1e6 * self.gpu_hours / self.samples if self.samples > 0 else None
