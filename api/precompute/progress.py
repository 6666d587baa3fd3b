"""How far a precompute run is, and how long the rest will take."""

from __future__ import annotations

from dataclasses import dataclass

from planner.errors import ReplanError


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFailure:
    """A failure key that has no template, and why."""

    failure_key: str
    code: str
    message: str

    @classmethod
    def of(cls, failure_key: str, error: ReplanError) -> KeyFailure:
        """The failure that an error stands for."""
        return cls(failure_key=failure_key, code=error.code, message=error.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run is.

    Parameters
    ----------
    total
        Failure keys to have a template for.
    done, failed, skipped
        Keys that this run made a template for, could not make one for, and found one for.
    remaining_s
        Estimated seconds to the end from the rate of this run so far; ``None`` where nothing is finished yet.
    """

    total: int
    done: int
    failed: int
    skipped: int
    remaining_s: float | None

    @property
    def num_left(self) -> int:
        """Keys that are still to be looked at."""
        return self.total - self.done - self.failed - self.skipped


def remaining_s(*, elapsed_s: float, num_finished: int, num_left: int) -> float | None:
    """Seconds that the rest takes at the rate so far; ``None`` where there is no rate yet.

    Examples
    --------
    >>> remaining_s(elapsed_s=10.0, num_finished=4, num_left=6)
    15.0
    """
    if num_left == 0:
        return 0.0
    return None if num_finished == 0 else elapsed_s / num_finished * num_left
