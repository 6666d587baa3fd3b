"""Runs a worker's programs, iteration after iteration, over the links of one generation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from replan_client.program import Program
from replan_client.torch.compute import Compute
from replan_client.torch.links import Links
from replan_client.torch.timeline import TimelineEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationResult:
    """What one worker did in one iteration.

    Parameters
    ----------
    iteration
        Number of the iteration.
    losses
        Loss of each microbatch ``(pipeline, microbatch)`` whose last stage ran here.
    peak_in_flight
        Most microbatches at a time whose F had started here and whose W or B had not ended; over all stages held here, a
        microbatch counts once for each.
    peak_before_input_grad
        Most of them whose I or B had not ended.
    events
        What ran when, in the order of its end.
    """

    iteration: int
    losses: dict[tuple[int, int], float]
    peak_in_flight: int
    peak_before_input_grad: int
    events: tuple[TimelineEvent, ...]


class Runner:
    """Runs programs of one worker.

    Where :meth:`run_iteration` returns, every stage has been stepped; where it raises a
    :class:`~replan_client.torch.errors.LinkBrokenError`, none has: all that needs others is done before the first step.

    Parameters
    ----------
    links
        Links of the generation.
    compute
        The stages held here.
    before_step
        Called with the iteration and the stage before each stage's step, once all gradients are summed.
    """

    def __init__(
        self,
        links: Links,
        compute: Compute,
        *,
        before_step: Callable[[int, int], None] | None = None,
    ) -> None:
        self._links = links
        self._compute = compute
        self._before_step = before_step

    def check(self, program: Program) -> None:
        """Refuse a program that cannot be run here, before anything of it is run.

        Raises
        ------
        ProgramMismatchError
            If it is for another worker, for stages not held here or with workers that are not there, or if it uses what it
            has neither computed nor received.
        UnsplittableStageError
            If it has I and W for a stage that only runs B.
        """

    def run_iteration(self, iteration: int, program: Program) -> IterationResult:
        """Run a program once; it is checked first, the first time.

        Raises
        ------
        ProgramMismatchError, UnsplittableStageError
            As :meth:`check`.
        LinkBrokenError
            If somebody has died, left, or does not answer in time. The links are closed then.
        """
        raise NotImplementedError
