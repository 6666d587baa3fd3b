"""Who stands where after migrations, failures and recoveries."""

from __future__ import annotations

import numpy as np

from api.jobs.loaded import load_document
from api.jobs.pairs import groups_of_new_pairs, pairs_of_workers, ranges_text
from api.jobs.positions import empty_positions, kept_moves, loads, moved_by, occupant_of, problem_of
from planner.failures import parse_failures
from planner.migration import Migration
from planner.operation import Worker, parse_worker
from planner.plan_content import canonical_json
from tests.jobs import DOCUMENT

JOB = load_document(canonical_json(DOCUMENT))


def moves(text: str) -> dict[Worker, Worker]:
    """Moves written as ``1/3>1/2 0/3>1/3``."""
    pairs = (word.split(">") for word in text.split())
    return {parse_worker(worker): parse_worker(position) for worker, position in pairs}


def workers(text: str) -> frozenset[Worker]:
    """Workers written as ``1/2 0/1``."""
    return frozenset(map(parse_worker, text.split()))


def migration(text: str) -> Migration:
    """A migration written as ``source>target``."""
    ((source, target),) = moves(text).items()
    return Migration(source=source, target=target, copy_from=target, num_bytes=0)


def test_moves_are_kept_while_their_reason_lasts() -> None:
    """A move ends when the worker dies, when whose place it took recovers, and when one it was chained to ends."""
    chain = moves("1/3>1/2 0/3>1/3")
    assert kept_moves(chain, workers("1/2")) == chain
    assert kept_moves(chain, workers("1/2 1/3")) == moves("0/3>1/3")
    assert kept_moves(chain, workers("1/2 0/3")) == moves("1/3>1/2")
    assert kept_moves(chain, frozenset()) == {}, "1/3 goes home, so 0/3 must"


def test_further_migrations_move_whoever_stands_there() -> None:
    """Migrations name positions: the worker that stands at the source goes on, also back to its home."""
    assert moved_by({}, [migration("1/3>1/2")]) == moves("1/3>1/2")
    assert moved_by(moves("1/3>1/2"), [migration("1/2>0/1")]) == moves("1/3>0/1")
    assert moved_by(moves("1/3>1/2"), [migration("1/2>1/3")]) == {}


def test_positions_are_empty_where_nobody_stands() -> None:
    """A failed worker's place is taken by the moved one, whose own place is empty then."""
    dead, moved = workers("1/2"), moves("1/3>1/2")
    assert empty_positions(dead, moved) == workers("1/3")
    assert occupant_of(parse_worker("1/2"), dead, moved) == parse_worker("1/3")
    assert occupant_of(parse_worker("1/3"), dead, moved) is None
    assert occupant_of(parse_worker("0/0"), dead, moved) == parse_worker("0/0")


def test_a_slow_worker_is_slow_where_it_stands() -> None:
    """Degradation goes with the worker, not with the position."""
    failures = parse_failures(JOB.job, ["worker:1/2"], ["worker:1/3=0.5"])
    problem = problem_of(JOB.job, failures, moves("1/3>1/2"))
    assert (problem.dead, dict(problem.speeds_ppm)) == (workers("1/3"), {parse_worker("1/2"): 500_000})


def test_whoever_is_new_at_a_position_loads_its_state() -> None:
    """Moved, returned and recovered workers load, each from a peer that held the state before and still does."""
    nobody: dict[Worker, Worker] = {}
    gone = loads(JOB.job, (frozenset(), nobody), (workers("1/2"), moves("1/3>1/2")))
    assert [(str(load.worker), str(load.position), str(load.copy_from)) for load in gone] == [("1/3", "1/2", "0/2")]
    back = loads(JOB.job, (workers("1/2"), moves("1/3>1/2")), (frozenset(), nobody))
    assert [(str(load.worker), str(load.copy_from)) for load in back] == [("1/2", "0/2"), ("1/3", "0/3")]
    lost = loads(JOB.job, (workers("0/2 1/2 2/2"), nobody), (workers("1/2 2/2"), nobody))
    assert [load.copy_from for load in lost] == [None], "nobody held it: a checkpoint must"


def test_new_pairs_are_those_of_workers_by_position() -> None:
    """A moved worker has to be connected anew although the positions exchanged messages before."""
    pairs = np.array([[1, 2], [2, 1], [5, 6], [6, 5]])
    moved = moves("1/3>1/2")
    old, new = pairs_of_workers(pairs, JOB.job, {}), pairs_of_workers(pairs, JOB.job, moved)
    count, groups = groups_of_new_pairs(old, new, JOB.job, moved)
    # Position 1/1 (index 5) and 1/2 (index 6): only those two are new, since 1/3 stands at 1/2 now.
    assert count == 2
    assert [(g.from_slot, g.to_slot, g.shift, g.pipelines) for g in groups] == [(1, 2, 0, "1"), (2, 1, 0, "1")]
    assert groups_of_new_pairs(None, old, JOB.job, {})[0] == 4
    assert ranges_text([0, 1, 2, 4, 7, 8]) == "0-2,4,7-8"
