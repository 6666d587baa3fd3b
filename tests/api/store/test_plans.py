"""Plans in the store: durable, append-only, checked on reading."""

from __future__ import annotations

import threading

import pytest

from api.errors import CorruptStoreError, RequestError
from api.store import Store
from planner.errors import NotFoundError, StoreError
from tests.api.store.backends import Backend

PLAN_ID = "a" * 64


def add(store: Store, plan_id: str = PLAN_ID, content: bytes = b"plan", request: str = "r") -> bool:
    """Store a plan with a summary of its own."""
    return store.add_plan(plan_id, content=content, summary=b"summary of " + content, requests=[request])


def test_gives_back_what_was_stored_after_opening_again(store: Store, backend: Backend) -> None:
    """Plan, summary, request and programs are there for the next process that opens the store."""
    assert add(store)
    store.add_programs(PLAN_ID, {"0/0": b"p0", "0/1": b"p1"}, {"17": "0/1"})
    store.close()
    again = Store(backend.url)
    assert again.plan(PLAN_ID).content == b"plan"
    assert again.summary(PLAN_ID).content == b"summary of plan"
    assert again.plan_id_of_request("r") == PLAN_ID
    assert again.program(PLAN_ID, "0/1").content == b"p1"
    assert again.worker_of_rank(PLAN_ID, "17") == "0/1"
    assert again.has_programs(PLAN_ID)
    again.close()


def test_never_changes_a_stored_plan(store: Store) -> None:
    """Adding other bytes under the same id says that it is not new and keeps the first; the new request is remembered."""
    assert add(store)
    assert not add(store, content=b"other", request="r2")
    assert store.plan(PLAN_ID).content == b"plan"
    assert store.plan_id_of_request("r2") == PLAN_ID
    store.add_programs(PLAN_ID, {"0/0": b"first"}, {})
    store.add_programs(PLAN_ID, {"0/0": b"second"}, {})
    assert store.program(PLAN_ID, "0/0").content == b"first"


def test_says_what_is_not_there(store: Store) -> None:
    """Unknown plans, programs, ranks and requests are not found."""
    for read in (store.plan, store.summary):
        with pytest.raises(NotFoundError, match=PLAN_ID):
            read(PLAN_ID)
    add(store)
    with pytest.raises(NotFoundError):
        store.program(PLAN_ID, "0/0")
    with pytest.raises(NotFoundError):
        store.worker_of_rank(PLAN_ID, "17")
    assert store.plan_id_of_request("unknown") is None
    assert not store.has_programs(PLAN_ID)


@pytest.mark.parametrize("name", ["\0", "\ud800", "a\0b"])
def test_names_that_cannot_be_stored_are_not_there(store: Store, name: str) -> None:
    """A client that asks for what no database can hold is told so, or that there is nothing."""
    with pytest.raises((NotFoundError, RequestError)):
        store.plan(name)
    with pytest.raises((NotFoundError, RequestError)):
        store.job(name)


@pytest.mark.parametrize("number", [-1, 2**31, 2**63, 10**30])
def test_numbers_that_cannot_be_stored_are_not_there(store: Store, number: int) -> None:
    """Numbers beyond the column's range are no fault of the store."""
    with pytest.raises((NotFoundError, RequestError)):
        store.epoch("job", number)


def test_programs_need_their_plan(store: Store) -> None:
    """Programs of a plan that is not stored are refused, and none of them stays."""
    with pytest.raises(StoreError):
        store.add_programs("b" * 64, {"0/0": b"p"}, {})
    assert not store.has_programs("b" * 64)


@pytest.mark.parametrize("content", [b"plam", b""])
def test_finds_damage(store: Store, backend: Backend, content: bytes) -> None:
    """A changed byte and lost content are told apart from a plan."""
    add(store)
    backend.query("UPDATE plans SET content = ?", content)
    with pytest.raises(CorruptStoreError, match="checksum"):
        store.plan(PLAN_ID)


@pytest.mark.parametrize(
    "damage",
    ["worker = '0/2'", "checksum = NULL", "checksum = 'f' || substr(checksum, 2)", "plan_id = '" + "b" * 64 + "'"],
)
def test_finds_ranks_of_other_workers(store: Store, backend: Backend, damage: str) -> None:
    """A rank whose row was changed names no worker any more; the others still do."""
    add(store)
    add(store, plan_id="b" * 64, request="other")
    store.add_programs(PLAN_ID, {"0/0": b"p0", "0/1": b"p1"}, {"1": "0/1", "17": "0/1"})
    backend.query(f"UPDATE ranks SET {damage} WHERE rank = '17'")
    plan_id = "b" * 64 if "plan_id" in damage else PLAN_ID
    with pytest.raises(CorruptStoreError, match=rf"rank 17 of plan {plan_id} does not match its checksum"):
        store.worker_of_rank(plan_id, "17")
    assert store.worker_of_rank(PLAN_ID, "1") == "0/1"


def test_finds_swapped_rows(store: Store, backend: Backend) -> None:
    """A document with its own checksum does not pass under another plan's id."""
    add(store)
    backend.query("DELETE FROM requests")
    backend.query("UPDATE plans SET plan_id = ?", "b" * 64)
    with pytest.raises(CorruptStoreError):
        store.plan("b" * 64)


def test_takes_plans_from_many_threads_and_two_stores_at_once(store: Store, backend: Backend) -> None:
    """Eight threads over two open stores on one database add 160 plans, none lost, none refused."""
    other = Store(backend.url)

    def work(number: int) -> None:
        for i in range(20):
            add((store, other)[number % 2], plan_id=f"{number:032d}{i:032d}", request=f"{number}-{i}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    other.close()
    assert all(store.plan_id_of_request(f"{n}-{i}") == f"{n:032d}{i:032d}" for n in range(8) for i in range(20))
