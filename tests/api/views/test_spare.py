"""How many more failures a job can take, against trying all of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest

from api.views.spare import spare_workers
from planner.formats.job_file import job_from_document
from planner.job import OptimizerState
from planner.operation import Worker
from tests.jobs import DOCUMENT

JOB = job_from_document(DOCUMENT)
EVERYBODY = [Worker(pipeline, slot) for pipeline in range(3) for slot in range(4)]


def most_without_loss(dead: frozenset[Worker], moved: dict[Worker, Worker]) -> int:
    """Largest number of live workers of which any may fail, and somebody still stands in every slot."""
    live = [worker for worker in EVERYBODY if worker not in dead]

    def holds(lost: tuple[Worker, ...]) -> bool:
        left = [moved.get(worker, worker).slot for worker in live if worker not in lost]
        return set(left) == {0, 1, 2, 3}

    number = 0
    while all(holds(lost) for lost in combinations(live, number + 1)):
        number += 1
    return number


@pytest.mark.parametrize(
    ("dead", "moved"),
    [
        ([], {}),
        (["1/2"], {}),
        (["1/2", "0/2"], {}),
        (["1/2", "0/1"], {}),
        (["1/2"], {"1/0": "1/2"}),
        (["1/2", "0/2"], {"1/0": "1/2"}),
        (["1/2", "0/2"], {"1/0": "1/2", "2/0": "0/2"}),
    ],
)
def test_it_is_what_trying_all_of_them_finds(dead: list[str], moved: dict[str, str]) -> None:
    """Who moved counts where it stands, not where it is at home."""
    down = frozenset(Worker(*map(int, text.split("/"))) for text in dead)
    places = {
        Worker(*map(int, worker.split("/"))): Worker(*map(int, place.split("/"))) for worker, place in moved.items()
    }
    assert spare_workers(JOB, down, places) == most_without_loss(down, places)


def test_nobody_can_be_spared_where_each_holds_the_only_copy_of_a_shard() -> None:
    """With a sharded optimizer the next failure takes a shard, wherever it is; a replica changes that."""
    sharded = replace(JOB, optimizer_state=OptimizerState.SHARDED)
    replica = replace(JOB, optimizer_state=OptimizerState.SHARDED_WITH_REPLICA)
    assert (spare_workers(sharded, frozenset(), {}), spare_workers(replica, frozenset(), {})) == (0, 2)
