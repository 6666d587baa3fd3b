"""Checks API keys against the store, and remembers for a while those that it found good."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from api.recent import Recent
from api.security.keys import ApiKey, parse_key
from api.security.scopes import Scope
from api.single_flight import SingleFlight
from planner.errors import StoreError

FRESH_S = 10.0
"""Seconds for which a good key is not looked up again: how long a revoked key may still work."""
LOOK_UP_S = 2.5
"""Seconds that the store has for an answer."""
STALE_S = 600.0
"""Seconds for which a good key is taken at its last word while the store does not answer."""
_CAPACITY = 10_000
_LOG = logging.getLogger("replan.api.security")
_NO_DIGEST = "0" * 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Whose key a request carries.

    Parameters
    ----------
    key_id
        Id of the key; no secret.
    name
        What its maker called it.
    scope
        What it allows.
    """

    key_id: str
    name: str
    scope: Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredKey:
    """What the store tells of a key that is not revoked: whose it is, and the hash of its text."""

    principal: Principal
    digest: str


@dataclass(frozen=True, slots=True)
class _Known:
    principal: Principal
    checked_at: float


class Authenticator:
    """Who a key belongs to.

    A lookup is made once for all requests that need it at the same time, and not again for :data:`FRESH_S` seconds. While the
    store does not answer, keys that were good within :data:`STALE_S` seconds go on being good: workers must be able to
    fetch what is in memory when the database restarts.

    Parameters
    ----------
    look_up
        Gives the stored key of an id, ``None`` where there is none or it is revoked; raises ``StoreError``. It can be
        cancelled at once.
    on_stale
        Called whenever a key is taken at its last word.
    clock
        Seconds that never go back.
    timeout_s
        Seconds after which a store that does not answer is one that cannot.
    """

    def __init__(
        self,
        look_up: Callable[[str], Awaitable[StoredKey | None]],
        *,
        on_stale: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        timeout_s: float = LOOK_UP_S,
    ) -> None:
        self._timeout_s = timeout_s
        self._look_up = look_up
        self._on_stale = on_stale
        self._clock = clock
        # By digest, so that no secret stays in memory; two digests of different texts are never equal.
        self._known: Recent[str, _Known] = Recent(_CAPACITY)
        self._checking: SingleFlight[str, Principal | None] = SingleFlight()

    def remembered(self, text: str) -> bool:
        """Whether this very key was good not long ago: looking it up again is no guess of an attacker."""
        key = parse_key(text)
        return key is not None and key.digest in self._known

    async def authenticate(self, text: str) -> Principal | None:
        """Whose key this is; ``None`` where it is none, is unknown or is revoked.

        Raises
        ------
        StoreError
            If the store does not answer and the key was not good before.
        """
        key = parse_key(text)
        if key is None:
            return None
        digest = key.digest
        known = self._known.get(digest)
        if known is not None and self._clock() - known.checked_at < FRESH_S:
            return known.principal
        return await self._checking.join(digest, lambda: self._check(key, digest))

    async def _check(self, key: ApiKey, digest: str) -> Principal | None:
        try:
            stored = await self._asked(key.key_id)
        except StoreError as error:
            known = self._known.get(digest)
            if known is None or self._clock() - known.checked_at > STALE_S:
                raise
            _LOG.warning("the store does not answer (%s); key %s is taken at its last word", error.code, key.key_id)
            self._on_stale()
            return known.principal
        # An unknown id takes the same comparison as a known one.
        expected = _NO_DIGEST if stored is None else stored.digest
        is_good = hmac.compare_digest(digest.encode(), expected.encode("utf-8", "replace"))
        if stored is None or not is_good:
            self._known.drop(digest)
            return None
        self._known.put(digest, _Known(stored.principal, self._clock()))
        return stored.principal

    async def _asked(self, key_id: str) -> StoredKey | None:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._look_up(key_id)
        except TimeoutError as error:
            raise StoreError(f"the store does not tell within {self._timeout_s:g} s whether a key is good") from error
