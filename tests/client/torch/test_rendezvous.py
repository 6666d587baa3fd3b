"""What processes tell each other through real stores, all at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

torch = pytest.importorskip("torch", reason="torch, the extra of replan-client, is not installed")

from replan_client.torch.failure import WorkerFailure  # noqa: E402
from replan_client.torch.rendezvous import Generation, Rendezvous, Switch  # noqa: E402
from replan_client.torch.training_errors import MemberRecordError  # noqa: E402
from torch.distributed import Store  # noqa: E402

from tests.client.torch.test_heartbeat import store  # noqa: E402, F401

NUM = 6


def all_at_once(store: Store, action: object) -> list[object]:  # noqa: F811
    """Run an action on the rendezvous of each of some workers, at the same moment."""
    barrier = Barrier(NUM)

    def one(index: int) -> object:
        rendezvous = Rendezvous(store.clone(), f"{index}/0")
        barrier.wait()
        return action(rendezvous, index)  # type: ignore[operator]

    with ThreadPoolExecutor(NUM) as pool:
        return list(pool.map(one, range(NUM)))


def test_all_form_the_same_attempt_and_break_it_once(store: Store) -> None:  # noqa: F811
    """However many leave an attempt, the next one is one higher."""
    first = Generation(epoch=3, attempt=0)
    assert all_at_once(store, lambda r, _: r.present(3)) == [first] * NUM
    all_at_once(store, lambda r, _: r.break_up(first))
    rendezvous = Rendezvous(store, "9/0")
    assert rendezvous.is_over(first)
    assert rendezvous.present(3) == Generation(epoch=3, attempt=1)
    assert not rendezvous.is_over(Generation(epoch=3, attempt=1))
    rendezvous.break_up(first)
    assert rendezvous.present(3) == Generation(epoch=3, attempt=1)
    assert rendezvous.present(4) == Generation(epoch=4, attempt=0)


def test_what_is_published_first_stands(store: Store) -> None:  # noqa: F811
    """Each worker's key of a phase is written once, and read by all."""
    generation = Generation(epoch=1, attempt=0)
    names = [f"{index}/0" for index in range(NUM)]
    rendezvous = Rendezvous(store, "9/0")
    assert rendezvous.missing(generation, "member", names) == tuple(names)
    assert not rendezvous.has_all(generation, "member", names)
    found = all_at_once(store, lambda r, index: r.publish(generation, "member", f"record {index}".encode()))
    assert found == [f"record {index}".encode() for index in range(NUM)]
    assert all_at_once(store, lambda r, _: r.publish(generation, "member", b"other")) == found
    assert rendezvous.missing(generation, "member", [*names, "7/0"]) == ("7/0",)
    assert rendezvous.missing(generation, "ready", names[:1]) == ("0/0",)
    assert [rendezvous.has_all(generation, "member", part) for part in (names, [*names, "7/0"], [])] == [
        True,
        False,
        True,
    ]
    assert rendezvous.read(generation, "member", names) == found


def test_one_proposal_stands(store: Store) -> None:  # noqa: F811
    """Of boundaries proposed at the same moment one is everybody's."""
    generation = Generation(epoch=1, attempt=0)
    assert Rendezvous(store, "9/0").switch(generation) is None

    def propose(rendezvous: Rendezvous, index: int) -> Switch | None:
        rendezvous.propose(generation, Switch(iteration=index, epoch=index + 10))
        return rendezvous.switch(generation)

    found = all_at_once(store, propose)
    assert len(set(found)) == 1
    assert isinstance(found[0], Switch)
    assert found[0].epoch == found[0].iteration + 10


def test_processes_of_one_name_are_told_apart(store: Store) -> None:  # noqa: F811
    """A younger process has the higher number, and the older one can see it."""
    old = Rendezvous(store, "0/0")
    young = Rendezvous(store, "0/0")
    assert (old.incarnation, young.incarnation, old.newest_incarnation()) == (1, 2, 2)


def test_marks_stay(store: Store) -> None:  # noqa: F811
    """Begun and finished are said once and for all."""
    rendezvous = Rendezvous(store, "0/0")
    assert (rendezvous.has_begun(), rendezvous.is_finished()) == (False, False)
    rendezvous.mark_begun()
    assert (rendezvous.has_begun(), rendezvous.is_finished()) == (True, False)
    rendezvous.mark_finished(30)
    assert (rendezvous.is_finished(), rendezvous.ending()) == (True, 30)


def test_one_ending_stands(store: Store) -> None:  # noqa: F811
    """Of endings told at the same moment one is everybody's, be it a failure or the number of iterations."""
    failures = [
        WorkerFailure(worker=f"{i}/0", iteration=i or None, error="ValueError: no", place=None) for i in range(NUM - 1)
    ]
    endings = [*failures, 30]

    def end(rendezvous: Rendezvous, index: int) -> int | WorkerFailure:
        rendezvous.mark_finished(endings[index])
        return rendezvous.ending()

    found = all_at_once(store, end)
    assert len(set(found)) == 1
    assert found[0] in endings
    for ending in endings:
        Rendezvous(store, "9/0").mark_finished(ending)
    assert Rendezvous(store, "9/0").ending() == found[0]


def test_a_store_with_something_else_in_it_is_an_error(store: Store) -> None:  # noqa: F811
    """A key of somebody else's is named."""
    store.set("attempt/1", "many")
    with pytest.raises(MemberRecordError, match="attempt holds b'many'"):
        Rendezvous(store, "0/0").present(1)
