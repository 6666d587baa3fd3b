"""API keys in the store."""

from __future__ import annotations

import pytest

from api.store import Store
from planner.errors import NotFoundError


def test_keys_are_kept_and_revoked_once(store: Store) -> None:
    """A key is there with its scopes until long after it is revoked; the time of the first revocation holds."""
    added = store.add_key(key_id="k1", name="nodes of rack 3", scopes=("read", "report"), digest="d" * 64)
    other = store.add_key(key_id="k2", name="", scopes=("admin",), digest="e" * 64)
    assert (added.scopes, added.digest, added.revoked_at) == (("read", "report"), "d" * 64, None)
    assert store.api_key("k1") == added
    assert store.api_key("k3") is None
    revoked = store.revoke_key("k1")
    assert revoked.revoked_at is not None
    assert revoked.revoked_at >= revoked.created_at
    assert store.revoke_key("k1") == revoked
    assert store.list_keys() == (revoked, other)
    with pytest.raises(NotFoundError):
        store.revoke_key("k3")


def test_a_key_is_never_replaced(store: Store) -> None:
    """An id that is there keeps its digest and scopes."""
    added = store.add_key(key_id="k1", name="a", scopes=("read",), digest="d" * 64)
    assert store.add_key(key_id="k1", name="b", scopes=("admin",), digest="e" * 64) == added
