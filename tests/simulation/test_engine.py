"""The engine's books: stalls, losses, checkpoints and causes, by a policy that does as it is told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulation.cluster import Change, Cluster
from simulation.engine import Scene, play
from simulation.outcome import Cause, Outcome
from simulation.policies.policy import Answer, Lost, Mode
from simulation.policies.registry import POLICIES
from tests.simulation.worlds import COSTS, UNIT, job, trace

FULL = Mode(samples_per_s=2.0, iteration_s=10.0)
HALF = Mode(samples_per_s=1.0, iteration_s=20.0)


class Told:
    """A policy that begins at the full rate and gives the answers it was told, one after another."""

    name: ClassVar[str] = "told"
    summary: ClassVar[str] = ""
    keeps_batch: ClassVar[bool] = True
    is_exact: ClassVar[bool] = True
    writes_checkpoints: bool = False

    def __init__(self, answers: Sequence[Answer], *, writes_checkpoints: bool = False) -> None:
        self.answers, self.changes = list(answers), []  # type: ignore[var-annotated]
        self.writes_checkpoints = writes_checkpoints

    def begin(self, cluster: Cluster) -> Mode:  # noqa: ARG002
        """The full rate."""
        return FULL

    def answer(self, change: Change) -> Answer:
        """What it was told."""
        self.changes.append(change)
        return self.answers.pop(0)

    def gpus(self, cluster: Cluster) -> int:
        """Those that are up and two more."""
        return cluster.gpus + 2


def told(
    answers: Sequence[Answer], end_s: float, *rows: tuple[float, str, str], writes_checkpoints: bool = False
) -> Outcome:
    """Play answers through a trace; 2 samples a second without failures."""
    scene = Scene(job=job(), trace=trace(end_s, *rows), costs=COSTS, fault_free_samples_per_s=2.0)
    return play(lambda: Told(answers, writes_checkpoints=writes_checkpoints), scene)  # type: ignore[arg-type, return-value]


def lost(outcome: Outcome) -> dict[Cause, float]:
    """Causes that took time."""
    return {cause: round(seconds, 6) for cause, seconds in outcome.lost_s.items() if seconds > 1e-9}


def test_a_stall_and_a_slower_mode() -> None:
    """50 s at 2, 10 s of standing still, 40 s at 1: 100 + 40 samples, of 200; 40 s at half speed lose 20 s."""
    answer = Answer(mode=HALF, stalls=((Cause.DETECTION, 4), (Cause.RESTART, 6)))
    outcome = told([answer], 100, (50, "remove", "n0"))
    assert outcome.samples == pytest.approx(140)
    assert lost(outcome) == {Cause.SLOWER: 20, Cause.DETECTION: 4, Cause.RESTART: 6}
    assert (outcome.losses, outcome.rollbacks) == (1, 0)
    assert [(i.start_s, i.end_s, i.samples_per_s) for i in outcome.timeline] == [
        (0, 50, 2.0),
        (50, 54, 0.0),
        (54, 60, 0.0),
        (60, 100, 1.0),
    ]


def test_gpu_hours_count_what_is_up_and_what_is_extra() -> None:
    """8 GPUs and 2 extra ones for half of two hours, then one less."""
    outcome = told([Answer(mode=FULL)], 7200, (3600, "remove", "n3"))
    assert outcome.gpu_hours == pytest.approx(10 + 9)


def test_the_iteration_in_flight_is_lost() -> None:
    """At 57 s an iteration of 10 s has run for 7: 14 samples, 7 s. At the end, 63 + 30 s later, 3 more iterations are done."""
    outcome = told([Answer(mode=FULL, lost=Lost.ITERATION)], 87, (57, "remove", "n0"))
    assert outcome.samples == pytest.approx(2 * (50 + 30))
    assert lost(outcome) == {Cause.REDONE: 7}


def test_what_is_in_flight_at_the_end_does_not_count() -> None:
    """Of 25 s two iterations of 10 s are finished."""
    outcome = told([], 25)
    assert outcome.samples == pytest.approx(40)
    assert lost(outcome) == {Cause.REDONE: 5}


def test_returns_let_the_iteration_finish() -> None:
    """What ran for 7 s at 57 s counts, and the next iteration begins there: of 30 s at half the rate one of 20 s is finished."""
    outcome = told([Answer(mode=FULL), Answer(mode=HALF)], 87, (17, "remove", "n0"), (57, "add", "n0"))
    assert outcome.samples == pytest.approx(2 * 57 + 20)


def test_a_change_during_a_stall() -> None:
    """The second answer's stall begins at once; what is left of the first beyond it is stood still too."""
    answers = [Answer(mode=FULL, stalls=((Cause.RESTART, 30),)), Answer(mode=FULL, stalls=((Cause.DETECTION, 5),))]
    outcome = told(answers, 100, (10, "remove", "n0"), (20, "remove", "n1"))
    # 10 s of restart, 5 s of detection, then the restart's last 15 s.
    assert lost(outcome) == {Cause.RESTART: 25, Cause.DETECTION: 5}
    answers = [Answer(mode=FULL, stalls=((Cause.RESTART, 30),)), Answer(mode=FULL, stalls=((Cause.DETECTION, 25),))]
    outcome = told(answers, 105, (10, "remove", "n0"), (20, "remove", "n1"))
    assert lost(outcome) == {Cause.RESTART: 10, Cause.DETECTION: 25}


def test_what_comes_later() -> None:
    """After a stall of 5 s and 20 s more the mode changes, for 10 s of standing still."""
    answer = Answer(mode=HALF, stalls=((Cause.DETECTION, 5),), later=(20, 10, FULL))
    outcome = told([answer], 100, (10, "remove", "n0"))
    # 10 s at 2; 5 s still; 20 s at 1, of 20 s iterations: one; 10 s still; 55 s at 2, the last 5 s in flight.
    assert outcome.samples == pytest.approx(20 + 20 + 100)
    assert lost(outcome) == {Cause.DETECTION: 5, Cause.SLOWER: 10, Cause.RECONFIGURATION: 10, Cause.REDONE: 5}


def test_a_change_cancels_what_would_come_later() -> None:
    """The mode that was to come is not gone over to."""
    answers = [Answer(mode=HALF, later=(20, 0, FULL)), Answer(mode=HALF)]
    outcome = told(answers, 100, (0, "remove", "n0"), (10, "remove", "n1"))
    # The second answer changes nothing else, so that iterations of 20 s go on: five in 100 s.
    assert outcome.samples == pytest.approx(100)


def test_checkpoints_cost_and_save() -> None:
    """One rollback in 1,000 s: an interval of sqrt(2 * 50 * 1000 / 2) s, about 223.6, and 50 s for each."""
    answer = Answer(mode=FULL, lost=Lost.SINCE_CHECKPOINT)
    outcome = told([answer] * 2, 1000, (500, "remove", "n0"), writes_checkpoints=True)
    interval = 50_000**0.5
    assert outcome.checkpoint_interval_s == pytest.approx(interval)
    share = 50 / (interval + 50)
    # 500 s hold 408.6 s of training, of which one interval is saved.
    trained = 500 * (1 - share)
    redone = trained - interval
    in_flight = (500 * (1 - share)) % 10
    assert lost(outcome) == pytest.approx({Cause.CHECKPOINT: 1000 * share, Cause.REDONE: redone + in_flight}, abs=1e-5)
    assert outcome.rollbacks == 1


def test_a_checkpoint_that_was_stood_still_for_saves() -> None:
    """Nothing that was trained before it is lost at 100 s, only the 30 s since it ended; cut short by a loss it saves nothing."""
    saving = Answer(mode=FULL, stalls=((Cause.CHECKPOINT, 20),))
    rollback = Answer(mode=FULL, lost=Lost.SINCE_CHECKPOINT, stalls=((Cause.RESTART, 20),))
    outcome = told([saving, rollback], 120, (50, "add", "n0"), (50, "remove", "n0"), (100, "remove", "n1"))
    assert lost(outcome) == {Cause.CHECKPOINT: 20, Cause.REDONE: 30, Cause.RESTART: 20}
    outcome = told([saving, rollback], 80, (50, "add", "n0"), (50, "remove", "n0"), (60, "remove", "n1"))
    assert lost(outcome) == {Cause.CHECKPOINT: 10, Cause.REDONE: 50, Cause.RESTART: 20}


def test_what_comes_later_may_keep_its_time() -> None:
    """A second answer leaves the time at which the mode changes as it was, and is told that it is still to come."""
    answers = [Answer(mode=HALF, later=(60, 0, FULL)), Answer(mode=HALF, later=(None, 0, FULL)), Answer(mode=FULL)]
    policy = Told(answers)
    rows = [(0, "remove", "n0"), (40, "remove", "n1"), (80, "remove", "n2")]
    scene = Scene(job=job(), trace=trace(100, *rows), costs=COSTS, fault_free_samples_per_s=2.0)  # type: ignore[arg-type]
    outcome = play(lambda: policy, scene)  # type: ignore[arg-type, return-value]
    assert outcome.samples == pytest.approx(60 + 2 * 40)
    assert [change.is_waiting for change in policy.changes] == [False, True, False]


def test_overheads_and_reasons_for_being_slower() -> None:
    """A tenth of the time goes to redundancy, half of the rest's shortfall to checkpoints."""
    mode = Mode(
        samples_per_s=1.0,
        iteration_s=1e-6,
        overheads=((Cause.REDUNDANCY, 0.1),),
        short_of=((Cause.CHECKPOINT, 0.5), (Cause.SLOWER, 0.5)),
    )
    outcome = told([Answer(mode=mode)], 100, (0, "remove", "n0"))
    assert outcome.samples == pytest.approx(90, abs=1e-3)
    assert lost(outcome)[Cause.REDUNDANCY] == pytest.approx(5)
    assert lost(outcome)[Cause.CHECKPOINT] == pytest.approx(25)
    assert lost(outcome)[Cause.SLOWER] == pytest.approx(25)


def test_changes_say_what_was_struck() -> None:
    """A worker lost and back at the same moment stands in both lists; a GPU that is down already is not lost again."""
    policy = Told([Answer(mode=FULL)] * 3)
    rows = [(1, "remove", "n0"), (2, "remove", "rank:0"), (3, "remove", "n2"), (3, "add", "n2"), (4, "add", "n0")]
    scene = Scene(job=job(), trace=trace(10, *rows), costs=COSTS, fault_free_samples_per_s=2.0)  # type: ignore[arg-type]
    outcome = play(lambda: policy, scene)  # type: ignore[arg-type, return-value]
    first, second = policy.changes
    assert (str(first.lost), first.returned, first.gpus_lost) == ("(Worker(pipeline=0, slot=0),)", (), 1)
    assert second.lost == second.returned
    assert [str(worker) for worker in second.lost] == ["1/0"]
    # Its rank is still down when the node comes back, so that is no change.
    assert outcome.losses == 2


@given(
    st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 7)), max_size=12),
    st.sampled_from(sorted(POLICIES)),
)
@settings(max_examples=30, deadline=None)
def test_time_is_never_lost_twice(toggles: list[tuple[int, int]], policy: str) -> None:
    """Whatever happens, samples and lost time of every policy add up to the time that was watched, and none is negative."""
    up = set(range(8))
    rows = []
    for seconds, node in sorted(toggles):
        rows.append((float(seconds), "remove" if node in up else "add", f"n{node}"))
        up ^= {node}
    (outcome,) = UNIT.play(trace(6000, *rows), [policy])
    used = outcome.samples / outcome.fault_free_samples_per_s
    assert used + sum(outcome.lost_s.values()) == pytest.approx(6000, abs=1e-4)
    assert outcome.samples >= -1e-6
    assert min(outcome.lost_s.values()) >= -1e-6
    assert sum(i.end_s - i.start_s for i in outcome.timeline) == pytest.approx(6000)
