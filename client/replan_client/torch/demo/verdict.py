"""Whether training through failures gave what the undisturbed run gave."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from replan_client.torch.demo.errors import DemoFailedError, TrainingDiffersError
from replan_client.torch.demo.messages import Completed, Parameters, Trained


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How far both are apart.

    Parameters
    ----------
    parameters
        Largest difference of an element of any worker's final parameters, relative to the largest element of its parameter.
    losses
        Largest relative difference of the loss of any microbatch, also in iterations that were given up.
    tolerance
        What counts as equal.
    num_workers
        Workers whose parameters were compared.
    """

    parameters: float
    losses: float
    tolerance: float
    num_workers: int

    @property
    def is_equal(self) -> bool:
        """Whether they are equal but for the order of sums."""
        return self.parameters <= self.tolerance and self.losses <= self.tolerance

    def require_equal(self) -> None:
        """Raise :class:`TrainingDiffersError` where they are not."""
        if not self.is_equal:
            raise TrainingDiffersError(
                f"parameters differ by {self.parameters:.1e} and losses by {self.losses:.1e} from those of undisturbed training; "
                f"expected at most {self.tolerance:g}"
            )


def judge(
    reference: Trained, trained: Sequence[Trained], completed: Iterable[Completed], *, tolerance: float
) -> Verdict:
    """Compare all that workers ended with, and every loss, with the undisturbed run.

    Raises
    ------
    DemoFailedError
        If a parameter of the model is held by nobody.
    """
    held = [one.parameters for one in trained if one.completed is not None]
    missing = set(reference.parameters) - {name for parameters in held for name in parameters}
    if missing:
        raise DemoFailedError(f"nobody holds {', '.join(sorted(missing)[:3])} at the end")
    return Verdict(
        parameters=_largest(_difference(parameters, reference.parameters) for parameters in held),
        losses=_largest(
            abs(loss / reference.losses[report.iteration][microbatch] - 1)
            for report in completed
            for microbatch, loss in report.losses.items()
        ),
        tolerance=tolerance,
        num_workers=len(held),
    )


def _difference(found: Parameters, expected: Parameters) -> float:
    return _largest(
        float(abs(value - expected[name]).max() / abs(expected[name]).max()) for name, value in found.items()
    )


def _largest(differences: Iterable[float]) -> float:
    """The largest; what is no number is larger than all."""
    return max(math.inf if math.isnan(value) else value for value in differences)
