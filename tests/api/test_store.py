"""The store: durable, append-only, checked on reading, and clear about what it cannot open."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from api.errors import CorruptStoreError
from api.store import PlanStore
from planner.errors import NotFoundError, StoreError

PLAN_ID = "a" * 64


@pytest.fixture
def store(tmp_path: Path) -> Iterator[PlanStore]:
    """An empty store."""
    opened = PlanStore(tmp_path / "plans.db")
    yield opened
    opened.close()


def add(store: PlanStore, plan_id: str = PLAN_ID, content: bytes = b"plan", request: str = "r") -> bool:
    """Store a plan with a summary of its own."""
    return store.add_plan(plan_id, content=content, summary=b"summary of " + content, request_sha256=request)


def edit(store: PlanStore, statement: str, *values: object) -> None:
    """Change the file behind the store's back."""
    with closing(sqlite3.connect(store.path)) as connection:
        connection.execute(statement, values)
        connection.commit()


def test_gives_back_what_was_stored_after_opening_again(store: PlanStore) -> None:
    """Plan, summary, request and programs are there for the next process that opens the file."""
    assert add(store)
    store.add_programs(PLAN_ID, {"0/0": b"p0", "0/1": b"p1"}, {"17": "0/1"})
    store.close()
    with closing(PlanStore(store.path)) as again:
        assert again.plan(PLAN_ID).content == b"plan"
        assert again.summary(PLAN_ID).content == b"summary of plan"
        assert again.plan_id_of_request("r") == PLAN_ID
        assert again.program(PLAN_ID, "0/1").content == b"p1"
        assert again.worker_of_rank(PLAN_ID, "17") == "0/1"
        assert again.has_programs(PLAN_ID)


def test_never_changes_a_stored_plan(store: PlanStore) -> None:
    """Adding other bytes under the same id says that it is not new and keeps the first; the new request is remembered."""
    assert add(store)
    assert not add(store, content=b"other", request="r2")
    assert store.plan(PLAN_ID).content == b"plan"
    assert store.plan_id_of_request("r2") == PLAN_ID
    store.add_programs(PLAN_ID, {"0/0": b"first"}, {})
    store.add_programs(PLAN_ID, {"0/0": b"second"}, {})
    assert store.program(PLAN_ID, "0/0").content == b"first"


def test_says_what_is_not_there(store: PlanStore) -> None:
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


def test_programs_need_their_plan(store: PlanStore) -> None:
    """Programs of a plan that is not stored are refused, and none of them stays."""
    with pytest.raises(StoreError):
        store.add_programs("b" * 64, {"0/0": b"p"}, {})
    assert not store.has_programs("b" * 64)


@pytest.mark.parametrize("content", [b"plam", "plan", None, 7])
def test_finds_damage(store: PlanStore, content: object) -> None:
    """A changed byte, and a value of another type, are told apart from a plan."""
    add(store)
    if content is None:
        edit(store, "UPDATE plans SET content = zeroblob(0)")
    else:
        edit(store, "UPDATE plans SET content = ?", content)
    with pytest.raises(CorruptStoreError, match="checksum"):
        store.plan(PLAN_ID)


def test_finds_swapped_rows(store: PlanStore) -> None:
    """A document with its own checksum does not pass under another plan's id."""
    add(store)
    edit(store, "UPDATE plans SET plan_id = ?", "b" * 64)
    with pytest.raises(CorruptStoreError):
        store.plan("b" * 64)


def test_refuses_a_newer_schema(store: PlanStore) -> None:
    """A file that a newer version wrote is not touched."""
    store.close()
    edit(store, "UPDATE replan_schema SET version = 2")
    with pytest.raises(StoreError, match="schema version 2; this RePlan reads 1"):
        PlanStore(store.path)


def test_refuses_other_databases_and_other_files(tmp_path: Path) -> None:
    """Another program's database, and what is no database, stay as they are."""
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE songs (title TEXT)")
    with pytest.raises(StoreError, match="no RePlan store"):
        PlanStore(other)
    text = tmp_path / "notes.txt"
    text.write_text("not a database " * 100)
    with pytest.raises(StoreError, match=r"notes\.txt"):
        PlanStore(text)
    assert text.read_text().startswith("not a database")


def test_names_the_path_it_cannot_write(tmp_path: Path) -> None:
    """A folder that is not there, and one in the file's place, are told with the path and what to do."""
    for path in (tmp_path / "missing" / "plans.db", tmp_path):
        with pytest.raises(StoreError) as refusal:
            PlanStore(path)
        assert str(path) in refusal.value.message
        assert refusal.value.hint is not None


def test_refuses_a_store_that_can_only_be_read(store: PlanStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that does not take writes is found out when it is opened."""
    store.close()
    real_connect = sqlite3.dbapi2.connect

    def read_only(database: str, **options: object) -> sqlite3.Connection:
        connection = real_connect(database, **options)
        connection.execute("PRAGMA query_only = ON")
        return connection

    monkeypatch.setattr(sqlite3.dbapi2, "connect", read_only)
    with pytest.raises(StoreError, match="readonly"):
        PlanStore(store.path)


def test_takes_plans_from_many_threads_and_two_stores_at_once(store: PlanStore) -> None:
    """Eight threads over two open stores on one file add 160 plans, none lost, none refused."""
    other = PlanStore(store.path)

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


def test_a_plan_is_on_the_disk_before_it_is_acknowledged(store: PlanStore) -> None:
    """Every connection runs with a write-ahead log that is synchronised at each commit (2 = FULL) and foreign keys."""
    with store._engine.connect() as connection:
        values = [
            connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys")
        ]
    assert values == ["wal", 2, 1]
