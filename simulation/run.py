"""From a job and a trace to what every policy makes of it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from planner.job import Job
from simulation.constants import SPARE_NODES_PER_NODE, Costs
from simulation.engine import Scene, play
from simulation.outcome import Outcome
from simulation.periods import Periods, without_split, without_staggering
from simulation.policies.ours import WithoutSplit, WithoutStaggering
from simulation.policies.rates import Rates
from simulation.policies.registry import POLICIES
from simulation.trace import Trace
from solver_models.result import SolveOptions


@dataclass(slots=True)
class Simulation:
    """A job on which traces are played; planned periods are kept from trace to trace.

    Parameters
    ----------
    job
        The job; what its ``recovery`` gives takes the place of constants.
    options
        Limits of the search for each failure key.
    samples_per_microbatch
        Samples of one microbatch, above 0.
    costs
        What answers cost; ``None``: :func:`costs_of` the job.
    """

    job: Job
    options: SolveOptions
    samples_per_microbatch: float = 1.0
    costs: Costs | None = None
    _periods: dict[str, Periods] = field(default_factory=dict)

    @property
    def periods(self) -> Periods:
        """Periods of the job with all of our techniques."""
        return self._of("", self.job)

    @property
    def num_keys(self) -> int:
        """How many periods have been planned."""
        return sum(periods.num_keys for periods in self._periods.values())

    def play(self, trace: Trace, policies: Iterable[str] = tuple(POLICIES)) -> tuple[Outcome, ...]:
        """Play policies, by name, through a trace of the job's nodes.

        Raises
        ------
        NoPlanError
            If the job cannot run without failures.
        """
        costs = self.costs or costs_of(self.job)
        changes = sum(1 for _ in trace.moments())

        def rates(periods: Periods) -> Rates:
            return Rates(
                periods=periods,
                costs=costs,
                samples_per_microbatch=self.samples_per_microbatch,
                between_changes_s=trace.duration_s / max(1, changes),
            )

        scene = Scene(job=self.job, trace=trace, costs=costs, fault_free_samples_per_s=rates(self.periods).best)
        outcomes = []
        for name in policies:
            policy, own = POLICIES[name], rates(self._periods_for(name))
            outcomes.append(play(lambda policy=policy, own=own: policy(rates=own), scene))  # type: ignore[misc]
        return tuple(outcomes)

    def _periods_for(self, name: str) -> Periods:
        if name == WithoutStaggering.name:
            return self._of(name, without_staggering(self.job))
        if name == WithoutSplit.name:
            return self._of(name, without_split(self.job))
        return self.periods

    def _of(self, name: str, job: Job) -> Periods:
        if name not in self._periods:
            self._periods[name] = Periods(job=job, options=self.options)
        return self._periods[name]


def costs_of(job: Job) -> Costs:
    """The constants, with what the job's file says in their place."""
    costs = Costs(spare_nodes=math.ceil(SPARE_NODES_PER_NODE * job.topology.num_nodes))
    recovery = job.recovery
    if recovery.restart_s is not None:
        costs = replace(costs, restart_s=recovery.restart_s)
    if recovery.copy_bytes_per_s is not None:
        costs = replace(costs, copy_bytes_per_s=float(recovery.copy_bytes_per_s))
    return costs
