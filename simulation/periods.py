"""Periods of a job by failure counts, each planned once: a trace has many events, but few keys."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from planner.baseline import baseline_period_ns
from planner.failure_key import FailureKey, problem_for_key
from planner.job import Job
from planner.problem import Optimizer, Problem
from planner.slot_cost import SlotCost, bound_estimate
from solver_models import portfolio
from solver_models.result import SolveOptions

DEADLINE_S = 0.5
"""Search time for each failure key."""

TARGET_GAP = 0.01
"""Gap at which a search may stop."""


@dataclass(slots=True)
class Periods:
    """Planned periods of one job, kept.

    Parameters
    ----------
    job
        The job.
    options
        Limits of each search.
    """

    job: Job
    options: SolveOptions = field(default_factory=lambda: SolveOptions(deadline_s=DEADLINE_S, target_gap=TARGET_GAP))
    _by_counts: dict[tuple[int, ...], int] = field(default_factory=dict)
    _by_pipelines: dict[int, int] = field(default_factory=dict)
    _estimate: SlotCost | None = None
    _baseline_ns: int | None = None
    _forward_twice_ns: int | None = None

    @property
    def num_keys(self) -> int:
        """How many periods have been planned."""
        return len(self._by_counts) + len(self._by_pipelines)

    @property
    def samples(self) -> int:
        """Microbatches of one iteration."""
        return sum(self.job.microbatches)

    @property
    def fault_free_ns(self) -> int:
        """Period of our plan with every worker up."""
        return self.of_counts((0,) * self.job.num_slots)

    @property
    def baseline_ns(self) -> int:
        """Period of fault-free 1F1B, with fused backwards and without our techniques."""
        if self._baseline_ns is None:
            self._baseline_ns = baseline_period_ns(self.job.problem())
        return self._baseline_ns

    @property
    def estimate(self) -> SlotCost:
        """What a number of dead workers costs a slot, by its lower bounds."""
        if self._estimate is None:
            self._estimate = bound_estimate(self.job.problem())
        return self._estimate

    def of_counts(self, counts: tuple[int, ...]) -> int:
        """Period of our plan for dead workers by slot, every slot with one live worker at least.

        The better of rerouting and of leaving out as many pipelines as the worst slot has dead workers: by relabelling, all
        failures fit into those. Never below the fault-free period: what is found for more workers also holds for fewer.

        Raises
        ------
        NoPlanError
            If a slot has no live worker, or memory is too small.
        """
        if counts not in self._by_counts:
            problem = self.job.problem()
            key = FailureKey(dead=counts, degraded=((),) * len(counts))
            period_ns = self._solve(problem_for_key(problem, key))
            if any(counts):
                left = problem.num_pipelines - max(counts)
                period_ns = max(min(period_ns, self.of_whole_pipelines(left)), self.fault_free_ns)
            self._by_counts[counts] = period_ns
        return self._by_counts[counts]

    def of_whole_pipelines(self, number: int) -> int:
        """Period of ``number`` whole pipelines, at least 1, that share the global batch evenly."""
        if number not in self._by_pipelines:
            load = -(-self.samples // number)
            one = replace(self.job.problem(), microbatches=(load,))
            self._by_pipelines[number] = self._solve(one)
        return self._by_pipelines[number]

    def with_forward_twice(self) -> int:
        """Period, fault-free, where each worker also runs the next slot's forwards (redundant computation).

        An estimate from above of what Bamboo makes of it: here the second forward runs right behind the first, while Bamboo puts
        it into bubbles.
        """
        if self._forward_twice_ns is None:
            self._forward_twice_ns = self._with_forward_twice()
        return self._forward_twice_ns

    def _with_forward_twice(self) -> int:
        problem = self.job.problem()
        forwards = [sum(problem.stages[v].forward_ns for v in slot.stages) for slot in problem.slots]
        stages = list(problem.stages)
        for s, slot in enumerate(problem.slots):
            first = slot.stages[0]
            more_ns = forwards[(s + 1) % len(forwards)]
            stages[first] = replace(stages[first], forward_ns=stages[first].forward_ns + more_ns)
        return baseline_period_ns(replace(problem, stages=tuple(stages)))

    def _solve(self, problem: Problem) -> int:
        result = portfolio.solve(problem, self.options)
        assert result.period_ns is not None, "the portfolio never returns without a schedule"
        return result.period_ns


def without_staggering(job: Job) -> Job:
    """The job with a global optimizer step."""
    return replace(job, optimizer=Optimizer.GLOBAL)


def without_split(job: Job) -> Job:
    """The job with every backward fused."""
    stages = tuple(replace(stage, costs=replace(stage.costs, splittable=False)) for stage in job.stages)
    return replace(job, stages=stages)
