"""Deletes what nobody needs any more, while the server runs."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

from anyio import to_thread

from api.observability.telemetry import Telemetry
from api.settings import DAY_S, Settings
from api.store import Retention, Store
from planner.errors import StoreError

_FIRST_S, _EVERY_S = 60.0, 3600.0
"""Seconds from the start to the first round, and from round to round; both vary by half, so that servers take turns."""
_PAUSE_S = 0.1
"""Seconds between two transactions, in which others get to write."""
_MAX_NOTED = 10_000
_T = TypeVar("_T")
_LOG = logging.getLogger("replan.api")


def retention_of(settings: Settings) -> Retention | None:
    """What is kept; ``None`` where everything is, for ever."""
    if settings.retention_days == 0:
        return None
    return Retention(
        days=settings.retention_days,
        epochs=settings.retained_epochs,
        acknowledged_epochs=settings.retained_acknowledgements,
    )


class Pruner:
    """Deletes rows round by round.

    Parameters
    ----------
    store
        Owned by the caller.
    retention
        What is kept.
    telemetry
        Where rows are counted.
    first_s, every_s
        Seconds to the first round, and from one to the next.
    """

    def __init__(
        self,
        store: Store,
        retention: Retention,
        telemetry: Telemetry,
        *,
        first_s: float = _FIRST_S,
        every_s: float = _EVERY_S,
    ) -> None:
        self._store = store
        self._retention = retention
        self._telemetry = telemetry
        self._first_s = first_s
        self._every_s = every_s

    async def run(self) -> None:
        """Prune for as long as the server runs."""
        wait_s = self._first_s
        while True:
            await asyncio.sleep(wait_s * random.uniform(0.5, 1.5))
            wait_s = self._every_s
            try:
                await self.prune()
            except StoreError as error:
                _LOG.warning("what is too old is not deleted now: %s", error)

    async def prune(self) -> None:
        """One round."""
        rounds = self._store.prune(self._retention)
        total = 0
        while (done := await to_thread.run_sync(lambda: next(rounds, None))) is not None:
            table, count = done
            self._telemetry.pruned(table, count)
            total += count
            await asyncio.sleep(_PAUSE_S)
        if total:
            _LOG.info("%d rows that were too old are deleted", total)


class PlanUses:
    """Notes that plans are of use, each once a day at most; safe to use from several threads.

    Parameters
    ----------
    store
        Owned by the caller.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._noted: OrderedDict[str, float] = OrderedDict()

    def noted(self, read: Callable[[str], _T], plan_id: str) -> _T:
        """What ``read`` gives for a plan; where that is anything, the use is noted."""
        found = read(plan_id)
        if found:
            self._note(plan_id)
        return found

    def _note(self, plan_id: str) -> None:
        """Note a use; where the store cannot take it, another time will do."""
        now = time.monotonic()
        with self._lock:
            noted = self._noted.get(plan_id)
            if noted is not None and now - noted < DAY_S:
                return
            self._noted[plan_id] = now
            self._noted.move_to_end(plan_id)
            while len(self._noted) > _MAX_NOTED:
                self._noted.popitem(last=False)
        try:
            self._store.touch("plan", plan_id)
        except StoreError as error:
            _LOG.warning("the use of plan %s is not noted: %s", plan_id, error)
