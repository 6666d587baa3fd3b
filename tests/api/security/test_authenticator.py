"""Keys: their form, and how they are checked against a real store."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from api.security.authenticator import FRESH_S, STALE_S, Authenticator, StoredKey
from api.security.keys import ApiKey, new_key, parse_key, read_key
from api.security.scopes import Scope
from api.security.stored_keys import create_key, look_up, prepare_keys
from api.settings import Settings
from api.store import Store
from planner.errors import OptionError, StoreError


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    opened = Store(str(tmp_path / "replan.db"))
    yield opened
    opened.close()


class Bench:
    """An authenticator on a store, with a clock, a counter of lookups, and a switch that takes the store away."""

    def __init__(self, store: Store) -> None:
        self.now = 0.0
        self.num_lookups = self.num_stale = 0
        self.is_down = False
        self.store = store
        self.authenticator = Authenticator(self.look_up, on_stale=self.count_stale, clock=lambda: self.now)

    async def look_up(self, key_id: str) -> StoredKey | None:
        """Stored key of an id."""
        self.num_lookups += 1
        await asyncio.sleep(0)
        if self.is_down:
            raise StoreError("down")
        return look_up(self.store, key_id)

    def count_stale(self) -> None:
        """Count a key taken at its last word."""
        self.num_stale += 1

    async def name(self, key: ApiKey) -> str | None:
        """Name of the key's principal."""
        principal = await self.authenticator.authenticate(key.text)
        return None if principal is None else principal.name


def test_keys_have_256_random_bits_and_are_stored_as_hashes(store: Store) -> None:
    """No two keys are alike, a key reads back from its text, and the store's file does not hold its secret."""
    key = create_key(store, name="worker", scope=Scope.READ)
    assert parse_key(key.text) == key
    assert len({new_key().text for _ in range(100)}) == 100
    secret = key.text.rpartition("_")[2]
    assert len(secret) == 64
    assert secret not in repr(key)
    assert secret not in repr(store.api_key(key.key_id))
    content = b"".join(path.read_bytes() for path in Path(store.name).parent.iterdir())
    assert key.key_id.encode() in content
    assert secret.encode() not in content


@pytest.mark.parametrize("text", ["", "rpk", "rpk__", "rpk_abc_00", "x" * 10_000, "rpk_abcdefghijkl_" + "G" * 64])
def test_what_is_no_key_is_not_looked_up(store: Store, text: str) -> None:
    """A text without a key's form costs no lookup, and a file that holds one is refused without repeating it."""
    bench = Bench(store)
    assert asyncio.run(bench.authenticator.authenticate(text)) is None
    assert bench.num_lookups == 0
    with pytest.raises(OptionError, match=r"^the file holds no API key; expected rpk_<12") as caught:
        read_key(text, "the file")
    assert len(str(caught.value)) < 200


def test_only_the_right_secret_under_its_id_is_good(store: Store) -> None:
    """A good key names its principal; another secret, another id and an unknown id name nobody."""
    key, other = (create_key(store, name=name, scope=Scope.REPORT) for name in "ab")
    swapped = ApiKey(key_id=key.key_id, text=other.text.replace(other.key_id, key.key_id))

    async def check() -> None:
        bench = Bench(store)
        principal = await bench.authenticator.authenticate(key.text)
        assert principal is not None
        assert (principal.key_id, principal.name, principal.scope) == (key.key_id, "a", Scope.REPORT)
        assert await bench.name(swapped) is None
        assert await bench.name(new_key()) is None

    asyncio.run(check())


def test_a_thousand_requests_at_once_cost_one_lookup(store: Store) -> None:
    """Requests share a lookup, and its answer holds for a while, not longer."""
    key = create_key(store, name="a", scope=Scope.READ)

    async def check() -> None:
        bench = Bench(store)
        assert set(await asyncio.gather(*(bench.name(key) for _ in range(1000)))) == {"a"}
        assert bench.num_lookups == 1
        bench.now = FRESH_S - 0.1
        await bench.name(key)
        assert bench.num_lookups == 1
        bench.now = FRESH_S
        await bench.name(key)
        assert bench.num_lookups == 2

    asyncio.run(check())


def test_a_revoked_key_ends_when_its_answer_is_old(store: Store) -> None:
    """Revoking takes effect within the time for which answers hold, also for an authenticator that knew the key."""
    key = create_key(store, name="a", scope=Scope.READ)

    async def check() -> None:
        bench = Bench(store)
        assert await bench.name(key) == "a"
        store.revoke_key(key.key_id)
        bench.now = FRESH_S
        assert await bench.name(key) is None
        assert not bench.authenticator.remembered(key.text)

    asyncio.run(check())


def test_known_keys_outlast_a_store_that_is_away(store: Store) -> None:
    """While the store is down a key that was good is good for some minutes more; an unknown one is an error of the store."""
    key = create_key(store, name="a", scope=Scope.READ)

    async def check() -> None:
        bench = Bench(store)
        await bench.name(key)
        bench.is_down = True
        bench.now = STALE_S
        assert await bench.name(key) == "a"
        assert bench.num_stale == 1
        with pytest.raises(StoreError):
            await bench.name(new_key())
        bench.now = STALE_S + 1
        with pytest.raises(StoreError):
            await bench.name(key)

    asyncio.run(check())


def test_a_client_that_leaves_does_not_take_the_answer_from_others(store: Store) -> None:
    """Cancelling one of two requests that share a lookup leaves the other its answer."""
    key = create_key(store, name="a", scope=Scope.READ)

    async def check() -> None:
        bench = Bench(store)
        first, second = (asyncio.create_task(bench.name(key)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        assert await second == "a"

    asyncio.run(check())


def test_beyond_loopback_a_server_needs_a_key(store: Store) -> None:
    """Without keys it refuses to start; making one, or having one, lets it start; on loopback none is needed."""
    far = Settings(host="0.0.0.0")
    with pytest.raises(OptionError, match=r"0\.0\.0\.0 need API keys"):
        prepare_keys(store, far, create=False)
    with pytest.raises(OptionError, match="need API keys"):
        prepare_keys(store, Settings(require_keys=True), create=False)
    assert prepare_keys(store, Settings(), create=False) is None
    key = prepare_keys(store, far, create=True)
    assert key is not None
    assert prepare_keys(store, far, create=True) is None
    store.revoke_key(key.key_id)
    with pytest.raises(OptionError, match="need API keys"):
        prepare_keys(store, far, create=False)


def test_the_admin_key_file_is_added_once(store: Store, tmp_path: Path) -> None:
    """Each server adds the file's key where it is missing; one that was revoked, changed or cannot be read is refused."""
    path = tmp_path / "key"
    settings = Settings(host="0.0.0.0", admin_key_file=path)
    with pytest.raises(OptionError, match="cannot be read"):
        prepare_keys(store, settings, create=False)
    key = new_key()
    path.write_text(key.text + "\n")
    for _ in range(2):
        assert prepare_keys(store, settings, create=False) is None
    stored = look_up(store, key.key_id)
    assert stored is not None
    assert (stored.digest, stored.principal.scope) == (key.digest, Scope.ADMIN)
    assert len(store.list_keys()) == 1
    path.write_text(f"rpk_{key.key_id}_{'0' * 64}")
    with pytest.raises(OptionError, match="another key"):
        prepare_keys(store, settings, create=False)
    path.write_text(key.text)
    store.revoke_key(key.key_id)
    with pytest.raises(OptionError, match="revoked"):
        prepare_keys(store, settings, create=False)


def test_a_store_that_hangs_is_as_one_that_fails(store: Store) -> None:
    """A key that was good stays good where no answer comes, and one that is not known is refused with a fault of the store."""
    key, unknown = create_key(store, name="a", scope=Scope.READ), new_key()
    hangs = False
    now = 0.0

    async def look_up_or_hang(key_id: str) -> StoredKey | None:
        if hangs:
            await asyncio.sleep(3600)
        return look_up(store, key_id)

    async def check() -> None:
        nonlocal hangs, now
        authenticator = Authenticator(look_up_or_hang, clock=lambda: now, timeout_s=0.05)
        assert await authenticator.authenticate(key.text) is not None
        hangs, now = True, FRESH_S
        assert await authenticator.authenticate(key.text) is not None
        with pytest.raises(StoreError):
            await authenticator.authenticate(unknown.text)

    asyncio.run(check())


@pytest.mark.parametrize("digest", ["CAST('x' AS BLOB)", "CAST(x'80ff' AS TEXT)"])
def test_a_damaged_key_is_none(tmp_path: Path, digest: str) -> None:
    """A hash whose row is damaged, its type or its letters, fits no key."""
    store = Store(str(tmp_path / "s.db"))
    key = create_key(store, name="worker", scope=Scope.READ)
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection, connection:
        connection.execute(f"UPDATE api_keys SET digest = {digest}")
    assert asyncio.run(Bench(store).name(key)) is None
    store.close()
