"""Choice by expected cost, against a Monte-Carlo simulation of the same answers."""

from __future__ import annotations

import math
import random
import statistics
from dataclasses import replace
from typing import ClassVar

import pytest

from planner.errors import OptionError
from planner.failures import FailureSet
from planner.job import Recovery
from planner.ladder import Rung, RungName, expected_costs
from planner.operation import Worker
from simulation.choice import event_horizon_s, expected_lost_s, weigh
from simulation.cluster import Change, Cluster
from simulation.engine import Scene, play
from simulation.outcome import Cause
from simulation.policies.policy import Answer, Mode
from tests.simulation.worlds import COSTS, job, trace

DRAWS = 300
BEST = 1.0
RECOVERY = Recovery(
    mean_time_between_failures_s=3600, repair_s=600, restart_s=100, checkpoint_interval_s=400, copy_bytes_per_s=100
)


class Rungs:
    """A policy that takes one rung at the first event: it stands still, then trains at the rung's rate."""

    name: ClassVar[str] = "rung"
    summary: ClassVar[str] = ""
    keeps_batch: ClassVar[bool] = True
    is_exact: ClassVar[bool] = True
    writes_checkpoints: ClassVar[bool] = False

    def __init__(self, one_time_s: float, share: float) -> None:
        self.answered = Answer(
            # Iterations too short for what is in flight at the end to matter.
            mode=Mode(samples_per_s=BEST * share, iteration_s=1e-6),
            stalls=((Cause.RESTART, one_time_s),),
        )

    def begin(self, cluster: Cluster) -> Mode:  # noqa: ARG002
        """The full rate."""
        return Mode(samples_per_s=BEST, iteration_s=1e-6)

    def answer(self, change: Change) -> Answer:  # noqa: ARG002
        """The rung."""
        return self.answered

    def gpus(self, cluster: Cluster) -> int:
        """Those that are up."""
        return cluster.gpus


def simulated_lost_s(one_time_s: float, share: float, horizons: list[float]) -> tuple[float, float]:
    """Mean of the seconds lost up to each of some next events, and four of its standard errors."""
    made = job()
    lost = []
    for seconds in horizons:
        scene = Scene(job=made, trace=trace(seconds, (0.0, "remove", "n0")), costs=COSTS, fault_free_samples_per_s=BEST)
        outcome = play(lambda: Rungs(one_time_s, share), scene)  # type: ignore[arg-type, return-value]
        lost.append(seconds - outcome.samples / BEST)
    return statistics.mean(lost), 4 * statistics.stdev(lost) / math.sqrt(len(lost))


def horizons(mean_s: float, seed: int) -> list[float]:
    """Exponential times of a mean."""
    rng = random.Random(seed)
    return [rng.expovariate(1 / mean_s) for _ in range(DRAWS)]


@pytest.mark.parametrize(("one_time_s", "share"), [(0.0, 0.75), (10.0, 1.0), (200.0, 0.9), (900.0, 1.0), (5000.0, 0.5)])
def test_the_formula_is_the_mean_of_simulations(one_time_s: float, share: float) -> None:
    """Standing still shorter than, about as long as, and longer than events are apart."""
    found, error = simulated_lost_s(one_time_s, share, horizons(600.0, seed=1))
    assert expected_lost_s(one_time_s, 1 - share, 600.0) == pytest.approx(found, abs=error + 1e-3)


def ladder(failed: tuple[Worker, ...], recovery: Recovery) -> tuple[tuple[Rung, ...], int]:
    """The planner's rungs for dead workers of the unit job, and its fault-free period."""
    made = replace(job(), recovery=recovery)
    failures = FailureSet(workers=failed, dead=frozenset(failed))
    return expected_costs(made, failures, fault_free_ns=18 * 10**9), 18 * 10**9


@pytest.mark.parametrize(
    ("failed", "recovery", "expected"),
    [
        # One dead worker: nothing beats rerouting in place.
        ((Worker(0, 0),), RECOVERY, RungName.REROUTE),
        # Two of a slot: 10 s of copying save a sixth of the rate for 10 minutes.
        ((Worker(0, 0), Worker(1, 0)), RECOVERY, RungName.REROUTE_AFTER_MIGRATION),
        # The same where copying takes 1,000 s, longer than the horizon.
        ((Worker(0, 0), Worker(1, 0)), replace(RECOVERY, copy_bytes_per_s=1), RungName.REROUTE),
        # A repair within a second is waited for, since all but one worker of each slot are down.
        (
            tuple(Worker(k, 0) for k in range(3)),
            replace(RECOVERY, repair_s=1.0, copy_bytes_per_s=1),
            RungName.WAIT_FOR_REPAIR,
        ),
    ],
)
def test_the_choice_is_that_of_simulations(failed: tuple[Worker, ...], recovery: Recovery, expected: RungName) -> None:
    """The rung that loses least by the formula loses least on average when all are played on the same draws."""
    rungs, fault_free_ns = ladder(failed, recovery)
    horizon_s = 600.0
    weighed = weigh(rungs, fault_free_ns, horizon_s)
    drawn = horizons(horizon_s, seed=2)
    simulated = {
        e.rung.name: simulated_lost_s(e.rung.one_time_s or 0.0, fault_free_ns / (e.rung.period_ns or 1), drawn)
        for e in weighed
    }
    for e in weighed:
        mean, error = simulated[e.rung.name]
        assert e.lost_s == pytest.approx(mean, abs=error + 1e-3), e.rung.name
    assert weighed[0].rung.name == expected
    assert min(simulated.values())[0] == pytest.approx(simulated[expected][0], abs=1e-6)


def test_against_the_ladders_own_cost() -> None:
    """For standing still far below the horizon both agree; near it an event may end it, so less is lost."""
    # (37): K + (H - K) (1 - T0/T) = 1 + 599 / 4.
    assert expected_lost_s(1, 0.25, 600) == pytest.approx(1 + 599 / 4, rel=1e-3)
    assert expected_lost_s(600, 0.0, 600) == pytest.approx(600 * (1 - math.exp(-1)))


def test_rungs_of_unknown_cost_are_left_out() -> None:
    """Without a repair time, waiting and restarting have no expected cost."""
    rungs, fault_free_ns = ladder((Worker(0, 0),), Recovery(mean_time_between_failures_s=3600))
    names = [e.rung.name for e in weigh(rungs, fault_free_ns, 600.0)]
    assert names == [RungName.REROUTE, RungName.DROP_PIPELINES]


def test_the_next_event_of_several() -> None:
    """Failures every 3,600 s and two repairs of 7,200 s each: 1,800 s, as the mean of the least of three draws."""
    assert event_horizon_s(3600, 7200, 2) == pytest.approx(1800)
    assert event_horizon_s(3600, None, 2) == event_horizon_s(3600, 7200, 0) == 3600
    rng = random.Random(0)
    draws = [
        min(rng.expovariate(1 / 3600), rng.expovariate(1 / 7200), rng.expovariate(1 / 7200)) for _ in range(20_000)
    ]
    assert statistics.mean(draws) == pytest.approx(1800, rel=0.03)


@pytest.mark.parametrize(
    ("k", "slowdown", "h"), [(-1.0, 0.0, 1.0), (0.0, 1.5, 1.0), (0.0, 0.0, 0.0), (0.0, 0.0, math.inf)]
)
def test_values_out_of_range(k: float, slowdown: float, h: float) -> None:
    """Refused with what was expected."""
    with pytest.raises(OptionError, match="expected at least 0, 0 to 1, above 0"):
        expected_lost_s(k, slowdown, h)
