"""Who stands where, and who holds what, when a job's document changes."""

from __future__ import annotations

from typing import Any

import pytest

from api.jobs.loaded import load_document
from api.jobs.positions import loads
from api.jobs.revising import carry_places, is_same_layout
from planner.job import Job
from planner.operation import Worker, parse_worker
from planner.plan_content import canonical_json
from tests.jobs import DOCUMENT


def job(**changes: Any) -> Job:
    """The worked example, 3 pipelines x 4 slots on nodes n00 to n11, with changes."""
    return load_document(canonical_json(DOCUMENT | changes)).job


def nodes(text: str, data_parallel: int = 3) -> dict[str, Any]:
    """Other nodes."""
    return {
        "topology": DOCUMENT["topology"] | {"nodes": text},
        "layout": DOCUMENT["layout"] | {"data_parallel": data_parallel},
    }


def moves(text: str) -> dict[Worker, Worker]:
    """Moves written as ``1/3>1/2 0/3>1/3``."""
    pairs = (word.split(">") for word in text.split())
    return {parse_worker(worker): parse_worker(position) for worker, position in pairs}


def workers(text: str) -> frozenset[Worker]:
    """Workers written as ``1/2 0/1``."""
    return frozenset(map(parse_worker, text.split()))


OLD = job()
DEAD, MOVED = workers("1/2"), moves("1/3>1/2")


def test_other_costs_move_nobody() -> None:
    """Where the layout stays, so does everybody, and nothing is to be loaded."""
    new = job(microbatches=3)
    assert carry_places(OLD, new, DEAD, MOVED) == (DEAD, MOVED)
    assert is_same_layout(OLD, new)
    assert loads(new, (DEAD, MOVED), (DEAD, MOVED)) == ()


def test_a_worker_of_another_node_has_to_load() -> None:
    """A node that takes a failed one's place has nothing; its worker loads from a peer, and who stood there goes home."""
    new = job(**nodes("n[00-05],spare,n[07-11]"))
    assert not is_same_layout(OLD, new)
    before = carry_places(OLD, new, DEAD, MOVED)
    assert before == (DEAD, MOVED)
    found = loads(new, before, (frozenset(), {}))
    assert [(str(load.worker), str(load.position), load.copy_from is not None) for load in found] == [
        ("1/2", "1/2", True),
        ("1/3", "1/3", True),
    ]


def test_who_stood_at_a_place_that_is_gone_goes_home() -> None:
    """Without the last pipeline the worker that stood there loads what its own place needs; the others stay."""
    new = job(**nodes("n[00-07]", 2))
    before = carry_places(OLD, new, workers("2/2 1/1"), moves("1/3>2/2 0/1>1/1"))
    assert before == (workers("1/1 1/3"), moves("0/1>1/1"))
    found = loads(new, before, (workers("1/1"), moves("0/1>1/1")))
    assert [(str(load.worker), str(load.position)) for load in found] == [("1/3", "1/3")]


@pytest.mark.parametrize(
    "changes",
    [
        {"layout": {"pipeline_parallel": 2, "data_parallel": 6, "rank_order": "pp-dp"}},
        {"layout": {"pipeline_parallel": 2, "tensor_parallel": 2, "data_parallel": 3, "rank_order": "tp-pp-dp"}},
        {"placement": "loop", "num_stages": 8},
    ],
    ids=["pipelines", "split", "placement"],
)
def test_another_layout_leaves_nobody_what_it_had(changes: dict[str, Any]) -> None:
    """Other stages in the slots, or workers that are split otherwise: everybody loads, and no peer has it."""
    new = job(**changes)
    before = carry_places(OLD, new, DEAD, MOVED)
    assert before[1] == {}
    found = loads(new, before, (frozenset(), {}))
    assert len(found) == new.num_pipelines * new.num_slots == len(before[0])
    assert {load.copy_from for load in found} == {None}
