"""PostgreSQL restarted or cut off under the store: connections come back, and nothing happens twice."""

from __future__ import annotations

import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from api.errors import StaleBaseError
from api.store import Store
from planner.errors import StoreError
from tests.api.store.backends import Backend, PostgresBackend, append, put_template, register
from tests.api.store.proxy import LossyProxy
from tests.postgres import PostgresServer


@pytest.fixture
def backend(postgres_server: PostgresServer) -> Backend:
    """A PostgreSQL database of its own: these tests are about its server."""
    return PostgresBackend(postgres_server, postgres_server.make_database())


@pytest.fixture
def lossy(backend: PostgresBackend, store: Store) -> Iterator[tuple[Store, LossyProxy]]:
    """A store behind a proxy that loses answers."""
    with tempfile.TemporaryDirectory() as folder:
        proxy = LossyProxy(Path(folder), backend.server.folder)
        opened = Store(backend.url.replace(str(backend.server.folder), folder))
        yield opened, proxy
        opened.close()
        proxy.close()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT, signal.SIGKILL], ids=lambda how: how.name)
def test_connections_come_back(store: Store, postgres_server: PostgresServer, how: signal.Signals) -> None:
    """After the server was stopped in any way and started, the first read and the first write succeed."""
    register(store)
    postgres_server.stop(how)
    with pytest.raises(StoreError, match="cannot be read"):
        store.check()
    with pytest.raises(StoreError, match="cannot be written"):
        append(store, 0)
    postgres_server.start()
    assert store.job("job").current_epoch == 0
    assert append(store, 0).record.epoch == 1
    postgres_server.stop(how)
    postgres_server.start()
    assert append(store, 1).record.epoch == 2


def test_events_during_restarts(store: Store, backend: PostgresBackend, postgres_server: PostgresServer) -> None:
    """Four threads report events while the server is restarted thrice; with their keys, each is there exactly once."""
    register(store)
    stop = threading.Event()
    told: dict[str, int] = {}

    def report(number: int) -> None:
        i = 0
        while not stop.is_set():
            key = f"{number}-{i}"
            try:
                current = store.current_epoch("job")
                base = 0 if current is None else current.epoch
                told[key] = append(store, base, idempotency_key=key, request_sha256=key).record.epoch
                i += 1
            except (StaleBaseError, StoreError):
                continue

    threads = [threading.Thread(target=report, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    try:
        for how in (signal.SIGINT, signal.SIGQUIT, signal.SIGINT):
            before = len(told)
            while len(told) < before + 10:
                threading.Event().wait(0.01)
            postgres_server.stop(how)
            postgres_server.start()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    stored = dict(backend.query("SELECT idempotency_key, epoch FROM events"))
    assert told.items() <= stored.items()
    last = store.job("job").current_epoch
    assert sorted(stored.values()) == list(range(1, last + 1))


@pytest.mark.parametrize("key", [None, "k"])
def test_a_commit_whose_answer_is_lost_counts_once(lossy: tuple[Store, LossyProxy], key: str | None) -> None:
    """The append is stored and its answer lost: it is found again, as new, with and without an idempotency key."""
    store, proxy = lossy
    register(store)
    append(store, 0)
    proxy.arm()
    done = append(store, 1, idempotency_key=key, request_sha256=key)
    assert proxy.num_lost == 1
    assert (done.record.epoch, done.is_replay) == (2, False)
    assert store.job("job").current_epoch == 2


@pytest.mark.parametrize(
    "work",
    [
        lambda store: store.put_job("job", b"[]", "b" * 64, 2, "all")[0].revision == 2,
        lambda store: put_template(store)[0].content == b"packed plan",
        lambda store: store.add_plan("p", content=b"c", summary=b"s", requests=["r"]) in (True, False),
        lambda store: store.create_operation(
            job_id="job", job_sha256="a" * 64, mode="all", tolerance=1, options=b"{}"
        ) == store.list_operations("job")[0] and len(store.list_operations("job")) == 1,
        lambda store: store.add_key(key_id="k", name="n", scopes=("read",), digest="d") == store.api_key("k"),
    ],
)  # fmt: skip
def test_other_work_whose_answer_is_lost(lossy: tuple[Store, LossyProxy], work: Callable[[Store], bool]) -> None:
    """Everything else that is written may run twice and leaves what it leaves when it runs once."""
    store, proxy = lossy
    register(store)
    proxy.arm()
    assert work(store)
    assert proxy.num_lost == 1


@pytest.fixture
def frozen(postgres_server: PostgresServer) -> Iterator[PostgresServer]:
    """The server, to be frozen; it goes on afterwards."""
    yield postgres_server
    postgres_server.thaw()


def test_a_server_that_hangs_is_given_up(store: Store, frozen: PostgresServer) -> None:
    """Reads and writes of many threads are refused, though the connections stay open; afterwards all is as before."""
    register(store)
    append(store, 0)
    refused: list[StoreError] = []

    def ask(number: int) -> None:
        try:
            store.check() if number % 2 else append(store, 1)
        except StoreError as error:
            refused.append(error)

    frozen.freeze()
    for _ in range(2):
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(30)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(refused) == 60
    assert any("does not answer" in str(error) for error in refused)
    frozen.thaw()
    assert append(store, 1).record.epoch == 2
    assert [store.epoch("job", number).epoch for number in (1, 2)] == [1, 2]


def test_a_statement_is_given_up_once_others_get_no_answer(store: Store, frozen: PostgresServer) -> None:
    """What was sent before the server froze ends soon after another thread has found out that nothing answers."""
    began = threading.Event()
    errors: list[StoreError] = []

    def work(connection: sa.Connection) -> None:
        began.set()
        connection.execute(sa.text("SELECT pg_sleep(50)"))

    def ask() -> None:
        try:
            store._read(work)
        except StoreError as error:
            errors.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    began.wait()
    frozen.freeze()
    with pytest.raises(StoreError):
        store.check()
    thread.join()
    assert [str(error) for error in errors if "does not answer" in str(error)]
