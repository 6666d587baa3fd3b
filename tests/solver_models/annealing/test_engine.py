"""The compiled annealing loop against times worked out anew."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from planner.operation import Worker
from planner.problem import Optimizer, Problem, Slot, Stage
from planner.replay import replay
from planner.schedule import IntColumn, Schedule
from planner.validation import require_valid
from solver_models.annealing.engine import anneal
from solver_models.annealing.search import timed_order
from solver_models.annealing.state import END, fixed_rows, kin_of, start_state
from solver_models.list_scheduling.network import Network, nodes_of, schedule_in_order
from solver_models.list_scheduling.routing import balanced_routing
from solver_models.list_scheduling.search import ListSearch


def _problem(seed: int) -> Problem:
    """A failure or two, uneven and sometimes free operations, transfers, tight memory, either optimizer."""
    rng = random.Random(seed)
    slots = rng.randint(2, 4)
    stages = tuple(
        Stage(
            forward_ns=rng.choice([0, 7, 10]),
            input_grad_ns=rng.choice([8, 11]),
            weight_grad_ns=rng.choice([0, 5, 9]),
            transfer_ns=rng.choice([0, 1]),
            activation_bytes=10,
            weight_grad_bytes=4,
            splittable=rng.random() < 0.8,
        )
        for _ in range(slots)
    )
    everyone = [Worker(k, s) for k in (1, 2) for s in range(slots)]
    return Problem(
        stages=stages,
        slots=tuple(Slot(stages=(s,), sync_ns=3, capacity_bytes=10 * slots) for s in range(slots)),
        microbatches=(6, 6, 6),
        dead=frozenset(rng.sample(everyone, 1)),
        speeds_ppm={Worker(0, 0): 800_000},
        optimizer=rng.choice(list(Optimizer)),
    )


def _start(problem: Problem) -> tuple[Network, Schedule]:
    search = ListSearch(problem, balanced_routing(problem), 0)
    order = search.by_rounds(0.0, None, 0.0).order(problem)
    return search.network, timed_order(problem, search.network, order, "").schedule


def _windows(problem: Problem, network: Network, places: IntColumn, release: IntColumn) -> int:
    """Largest window of an order run as early as possible from given releases, by repeated relaxation."""
    end = {int(node): 0 for node in places}
    previous = {int(b): int(a) for a, b in pairwise(places) if network.worker[a] == network.worker[b]}
    data = {int(y): (x, int(lag)) for x in end for y, lag in zip(network.successor[x], network.lag[x], strict=True)}
    moved = True
    while moved:
        moved = False
        for node, known in list(end.items()):
            slot = int(network.worker[node]) % problem.num_slots
            ready = end[previous[node]] if node in previous else int(release[slot])
            if node in data:
                source, lag = data[node]
                ready = max(ready, end[source] + lag)
            if known != (new := ready + int(network.duration[node])):
                end[node], moved = new, True
    slots: dict[int, list[int]] = {}
    for node in end:
        slots.setdefault(int(network.worker[node]) % problem.num_slots, []).append(node)
    begins = {s: min(end[x] - int(network.duration[x]) for x in nodes) for s, nodes in slots.items()}
    ends = {s: max(end[x] for x in nodes) for s, nodes in slots.items()}
    sync = max(slot.sync_ns for slot in problem.slots)
    if problem.optimizer is Optimizer.GLOBAL:
        return max(ends.values()) + sync - min(begins.values())
    return max(ends[s] + problem.slots[s].sync_ns - begins[s] for s in slots)


@pytest.mark.parametrize("seed", range(12))
def test_the_window_told_is_that_of_the_order_given_back(seed: int) -> None:
    """Thousands of repaired times end where timing the order from nothing does, and the order is a valid one."""
    problem = _problem(seed)
    network, schedule = _start(problem)
    places, first = nodes_of(problem, schedule), schedule.offsets
    release = np.zeros(problem.num_slots, dtype=np.int64)
    sync = np.array([slot.sync_ns for slot in problem.slots], dtype=np.int64)
    _, _, best, window, counts = anneal(
        places,
        first,
        fixed_rows(network),
        kin_of(problem),
        network.acquire,
        network.release,
        network.capacity,
        sync,
        release,
        0,
        problem.optimizer is Optimizer.GLOBAL,
        3_000,
        5.0,
        0.1,
        seed,
    )
    assert min(counts) > 0
    assert window == _windows(problem, network, best, release)
    assert window <= _windows(problem, network, places, release)
    order = timed_order(problem, network, schedule_in_order(problem, network, best), "")
    require_valid(problem, order.schedule, order.period_ns)
    assert replay(problem, order.schedule).period_ns == order.period_ns


def test_an_order_that_waits_for_itself_has_a_shorter_sequence() -> None:
    """With the last stage's I before its F, as the first of both workers' turns, only the first stage's F can run."""
    stage = Stage(forward_ns=1, input_grad_ns=1, weight_grad_ns=1)
    problem = Problem(stages=(stage,) * 2, slots=(Slot(stages=(0,)), Slot(stages=(1,))), microbatches=(1,))
    network = ListSearch(problem, balanced_routing(problem), 0).network
    # Nodes 0, 1, 2 are F, I, W of stage 0; 3, 4, 5 those of stage 1.
    state, sequence = start_state(
        np.array([0, 1, 2, 4, 3, 5]),
        np.array([0, 3, 6]),
        fixed_rows(network),
        kin_of(problem),
        np.zeros(2, dtype=np.int64),
    )
    assert sequence.tolist() == [0]
    assert state[0, END] == 1


def test_kin_are_nodes_of_one_kind_stage_and_home() -> None:
    """Two pipelines of two microbatches, one stage: F, I and W of each pipeline are kin in pairs."""
    stage = Stage(forward_ns=1, input_grad_ns=1, weight_grad_ns=1)
    problem = Problem(stages=(stage,), slots=(Slot(stages=(0,)),), microbatches=(2, 2))
    assert kin_of(problem).tolist() == [0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5]
    assert kin_of(replace(problem, microbatches=(1,))).tolist() == [0, 1, 2]
