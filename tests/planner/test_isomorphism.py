"""Isomorphisms: what the check lets through makes valid plans, and nothing else passes."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InvalidScheduleError, ScheduleError
from planner.isomorphism import check_isomorphism
from planner.normalization import Relabelling, relabel
from planner.operation import Worker
from planner.plan_check import check_schedule
from planner.problem import Optimizer, Problem, Slot, Stage
from planner.replay import Replay
from planner.schedule import Schedule
from planner.timing import time_schedule
from tests.problems import tiny_problem
from tests.random_orders import random_order


def image(canonical: Problem, rng: random.Random) -> tuple[Problem, Relabelling]:
    """A random problem that the canonical one is mapped onto, and the map."""
    pipelines = range(canonical.num_pipelines)
    home = rng.sample(pipelines, len(pipelines))
    played_by = [rng.sample(pipelines, len(pipelines)) for _ in canonical.slots]
    microbatches = [0] * len(pipelines)
    for part, pipeline in enumerate(home):
        microbatches[pipeline] = canonical.microbatches[part]
    real = replace(
        canonical,
        microbatches=tuple(microbatches),
        dead=frozenset(Worker(played_by[w.slot][w.pipeline], w.slot) for w in canonical.dead),
        speeds_ppm={Worker(played_by[w.slot][w.pipeline], w.slot): ppm for w, ppm in canonical.speeds_ppm.items()},
    )
    return real, Relabelling(home=np.array(home), played_by=np.array(played_by), dead=real.dead)


def outcome(problem: Problem, schedule: Schedule, period_ns: int) -> tuple[int, tuple[int, ...]] | None:
    """Period and memory peaks if the schedule passes every check a plan has to pass; ``None`` if it does not."""
    try:
        replayed: Replay = check_schedule(problem, schedule, period_ns)
    except ScheduleError:
        return None
    return replayed.period_ns, tuple(replayed.peak_bytes)


@given(st.randoms(use_true_random=False), st.integers(-1, 1))
@settings(max_examples=150, deadline=None)
def test_a_plan_is_valid_exactly_where_its_image_is(rng: random.Random, error: int) -> None:
    """Any order of any problem, any map, with the right period and a wrong one: the full check says the same of both."""
    canonical = tiny_problem(rng)
    schedule, period_ns = time_schedule(canonical, random_order(canonical, rng))
    real, relabelling = image(canonical, rng)
    check_isomorphism(canonical, real, relabelling)
    expected = outcome(canonical, schedule, period_ns + error)
    assert outcome(real, relabel(schedule, relabelling), period_ns + error) == expected


@given(st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_exactly_the_maps_of_like_onto_like_pass(rng: random.Random) -> None:
    """Two random problems under a random map: the check passes where every worker and home has its like, and only there."""
    canonical = tiny_problem(rng)
    real, relabelling = image(canonical, rng)
    pipelines, slots = canonical.num_pipelines, canonical.num_slots
    if rng.random() < 0.7:
        order = rng.sample(range(pipelines), pipelines)
        slot = rng.randrange(slots)
        real = replace(
            real,
            dead=frozenset(Worker(order[w.pipeline], w.slot) if w.slot == slot else w for w in real.dead),
            speeds_ppm={
                Worker(order[w.pipeline], w.slot) if w.slot == slot else w: p for w, p in real.speeds_ppm.items()
            },
        )
        relabelling = Relabelling(home=relabelling.home, played_by=relabelling.played_by, dead=real.dead)
    if rng.random() < 0.3:
        real = replace(real, microbatches=tuple(rng.sample(real.microbatches, pipelines)))

    def kind(problem: Problem, worker: Worker) -> int:
        return problem.speed_ppm(worker) if problem.is_live(worker) else 0

    alike = all(
        kind(canonical, Worker(c, s)) == kind(real, relabelling.worker(Worker(c, s)))
        for c in range(pipelines)
        for s in range(slots)
    ) and all(canonical.microbatches[c] == real.microbatches[relabelling.home[c]] for c in range(pipelines))
    try:
        check_isomorphism(canonical, real, relabelling)
    except InvalidScheduleError:
        assert not alike
    else:
        assert alike


PROBLEM = Problem(
    stages=(Stage(forward_ns=1, input_grad_ns=1, weight_grad_ns=1),) * 2,
    slots=(Slot(stages=(0,)), Slot(stages=(1,))),
    microbatches=(2, 2, 3),
    dead=frozenset({Worker(1, 1)}),
    speeds_ppm={Worker(0, 0): 500_000},
)


def mapped(home: list[int], played_by: list[list[int]], *, honest: bool = True) -> Relabelling:
    """A relabelling; a dishonest one holds what its constructor would refuse."""
    found = Relabelling(home=np.arange(3), played_by=np.tile(np.arange(3), (2, 1)), dead=PROBLEM.dead)
    if honest:
        return Relabelling(home=np.array(home), played_by=np.array(played_by), dead=PROBLEM.dead)
    object.__setattr__(found, "home", np.array(home))
    object.__setattr__(found, "played_by", np.array(played_by))
    return found


STAY = [0, 1, 2]


@pytest.mark.parametrize(
    ("real", "relabelling", "match"),
    [
        (PROBLEM, mapped(STAY, [STAY, [0, 2, 1]]), "worker 2/1 plays 1/1: it runs at 1000000 ppm, its part at 0"),
        (PROBLEM, mapped(STAY, [[1, 0, 2], STAY]), "worker 1/0 plays 0/0: it runs at 1000000 ppm, its part at 500000"),
        (
            PROBLEM,
            mapped([0, 2, 1], [STAY, STAY]),
            "pipeline 2 is home to 3 microbatches, the part of pipeline 1 has 2",
        ),
        (PROBLEM, mapped(STAY, [STAY, [0, 1, 1]], honest=False), "slot 1 is not one to one"),
        (PROBLEM, mapped(STAY, [STAY, [0, 1, 3]], honest=False), "slot 1 is not one to one"),
        (PROBLEM, mapped([0, 0, 2], [STAY, STAY], honest=False), "home is not one to one"),
        (PROBLEM, mapped(STAY, [STAY], honest=False), "shapes"),
        (replace(PROBLEM, optimizer=Optimizer.GLOBAL), mapped(STAY, [STAY, STAY]), "optimizer"),
        (replace(PROBLEM, slots=(Slot(stages=(0,), sync_ns=1), PROBLEM.slots[1])), mapped(STAY, [STAY, STAY]), "slots"),
        (replace(PROBLEM, dead=frozenset()), mapped(STAY, [STAY, STAY]), "worker 1/1 plays 1/1"),
        (replace(PROBLEM, speeds_ppm={Worker(0, 0): 500_001}), mapped(STAY, [STAY, STAY]), "500001 ppm"),
        (replace(PROBLEM, microbatches=(2, 2, 3, 3)), mapped(STAY, [STAY, STAY]), "pipelines"),
    ],
)
def test_what_does_not_fit_is_named(real: Problem, relabelling: Relabelling, match: str) -> None:
    """Maps of unlike onto unlike, maps that are not one to one, and problems of another job are refused."""
    with pytest.raises(InvalidScheduleError, match=match):
        check_isomorphism(PROBLEM, real, relabelling)


def test_the_dead_must_be_the_same() -> None:
    """A relabelling made for other dead workers is refused even where its maps fit."""
    other = Relabelling(home=np.arange(3), played_by=np.tile(np.arange(3), (2, 1)), dead=frozenset())
    with pytest.raises(InvalidScheduleError, match="other dead"):
        check_isomorphism(PROBLEM, PROBLEM, other)
