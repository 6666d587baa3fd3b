"""Rates that several policies share: of the whole cluster, of part of it, of whole pipelines."""

from __future__ import annotations

from dataclasses import dataclass

from simulation.constants import TEMPLATE_LEAST_SHARE, TEMPLATE_SLOPE, Costs
from simulation.outcome import Cause
from simulation.periods import Periods
from simulation.policies.policy import WAIT, Mode

NS = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """How fast a job trains, and what is known of a trace ahead.

    Parameters
    ----------
    periods
        The job's planned periods.
    costs
        What answers cost.
    samples_per_microbatch
        Samples of one microbatch, above 0.
    between_changes_s
        Mean seconds between changes of the trace: what every policy is told ahead.
    """

    periods: Periods
    costs: Costs
    samples_per_microbatch: float
    between_changes_s: float

    @property
    def samples(self) -> float:
        """Samples of one iteration: the global batch."""
        return self.periods.samples * self.samples_per_microbatch

    @property
    def full(self) -> Mode:
        """The whole cluster, by our plan without failures."""
        return self.of_period(self.periods.fault_free_ns)

    @property
    def best(self) -> float:
        """Samples a second of the whole cluster without failures."""
        return self.full.samples_per_s

    @property
    def baseline(self) -> float:
        """Samples a second of fault-free 1F1B, for systems whose published figures are of it."""
        return self.samples / (self.periods.baseline_ns * NS)

    def of_period(self, period_ns: int) -> Mode:
        """A whole global batch each period; never more than without failures."""
        seconds = max(period_ns, self.periods.fault_free_ns) * NS
        return Mode(samples_per_s=self.samples / seconds, iteration_s=seconds)

    def scaled(self, share: float) -> Mode:
        """The same batch at a share of the full rate."""
        if share <= 0:
            return WAIT
        return Mode(samples_per_s=self.best * share, iteration_s=self.full.iteration_s / share)

    def of_whole_pipelines(self, number: int) -> Mode:
        """The whole batch on some whole pipelines, at most as many as the job has."""
        if number < 1:
            return WAIT
        if number >= self.periods.job.num_pipelines:
            return self.full
        return self.of_period(self.periods.of_whole_pipelines(number))

    def of_replicas(self, number: float) -> Mode:
        """A smaller batch: some of the job's pipelines, each with what is its own, in the fault-free period."""
        if number <= 0:
            return WAIT
        share = number / self.periods.job.num_pipelines
        return Mode(samples_per_s=self.best * share, iteration_s=self.full.iteration_s)

    def of_templates(self, share: float) -> Mode:
        """Oobleck's pipelines of uneven depth on a share of the workers: ``1F1B * (1 - slope * (1 - share))``.

        What 1F1B is slower than our fault-free plan counts as :attr:`~simulation.outcome.Cause.REDUNDANCY`, the rest as slower.
        """
        if share < TEMPLATE_LEAST_SHARE:
            return WAIT
        rate = self.baseline * (1 - TEMPLATE_SLOPE * (1 - share))
        return self.of_schedule(rate)

    def of_schedule(self, rate: float) -> Mode:
        """The whole batch at a rate of a system that runs 1F1B."""
        rate = min(rate, self.best)
        short = self.best - rate
        by_schedule = min(self.best - self.baseline, short) / short if short > 0 else 0.0
        return Mode(
            samples_per_s=rate,
            iteration_s=self.samples / rate,
            short_of=((Cause.REDUNDANCY, by_schedule), (Cause.SLOWER, 1 - by_schedule)),
        )

    def pays(self, before: Mode, after: Mode, cost_s: float) -> bool:
        """Whether standing still for some seconds now, to go on faster, pays before the next change is to be expected.

        Going on trains ``H r`` samples in the mean ``H`` seconds between changes, the other way ``(H - K) r'``.
        """
        horizon_s = self.between_changes_s
        return max(0.0, horizon_s - cost_s) * after.samples_per_s > horizon_s * before.samples_per_s
