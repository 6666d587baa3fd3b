"""Links made in a thread, so that whoever waits for them can do something else, and give them up."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import torch
from torch.distributed import Store

from replan_client.operation import Worker
from replan_client.torch.abandonable import AbandonableStore
from replan_client.torch.links import Links


class Linking:
    """Links under way.

    The process does not end before the thread has: torch would end it with an abort where the thread comes back from a wait
    meanwhile. That is soon after :meth:`abandon`, where gloo makes connections by the time-out at the latest.

    Parameters
    ----------
    store
        For the thread alone.
    pause_s
        Seconds between two looks into the store for those who have not come, above 0.
    positions, me, backend, device, timeout_s
        As for :class:`replan_client.torch.links.Links`.
    """

    def __init__(
        self,
        store: Store,
        positions: Sequence[Worker],
        me: Worker,
        *,
        backend: str,
        device: torch.device,
        timeout_s: float,
        pause_s: float,
    ) -> None:
        # nccl connects later, when the links are first used.
        self._waiting = AbandonableStore(store, pause_s=pause_s) if backend == "gloo" else None
        within = store if self._waiting is None else self._waiting
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._is_abandoned = False
        self._links: Links | None = None
        self._error: BaseException | None = None

        def make() -> None:
            try:
                links = Links(within, positions, me, backend=backend, device=device, timeout_s=timeout_s)
            # Raised where the links are asked for.
            except BaseException as error:
                self._error = error
            else:
                with self._lock:
                    if self._is_abandoned:
                        links.close()
                    else:
                        self._links = links
            self._done.set()

        threading.Thread(target=make, name=f"linking {me}").start()

    def is_done(self, timeout_s: float) -> bool:
        """Whether they are made, or cannot be, after waiting for at most so long."""
        return self._done.wait(timeout_s)

    def links(self) -> Links:
        """The links.

        Raises
        ------
        LinkBrokenError
            If the others did not come.
        """
        if self._error is not None:
            raise self._error
        assert self._links is not None, "asked for when done"
        return self._links

    def abandon(self) -> None:
        """Give them up; those that are made all the same are closed, at once or when they are made."""
        if self._waiting is not None:
            self._waiting.abandon()
        with self._lock:
            self._is_abandoned = True
            links, self._links = self._links, None
        if links is not None:
            links.close()
