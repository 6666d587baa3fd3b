"""Where templates are made: in the solver processes of this machine, or on a Ray cluster (:mod:`api.precompute.ray_executor`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from api.pool import Priority, SolvePool


class Executor(Protocol):
    """Answers requests to the handlers of :mod:`api.planning`, several at once."""

    @property
    def capacity(self) -> int:
        """How many requests it works on at once, at least 1; further ones wait in it."""

    async def run(self, request: Sequence[bytes], *, timeout_s: float) -> list[bytes]:
        """Have a request answered.

        Parameters
        ----------
        request
            Name of a handler, then its arguments.
        timeout_s
            Seconds after which the process that works on it is killed.

        Raises
        ------
        SolveTimeoutError
            If it was killed.
        SolverCrashedError
            If processes died over this request, or hit a bug.
        OverloadedError, ClusterError
            If there is nothing left to work on requests: the next one would fare no better.
        ReplanError
            What the handler raised.
        """


class PoolExecutor:
    """The solver processes that the service has anyway; whoever waits for an answer goes first.

    Parameters
    ----------
    pool
        The started pool, owned by the caller.
    """

    def __init__(self, pool: SolvePool) -> None:
        self._pool = pool

    @property
    def capacity(self) -> int:
        """As many as the pool lets work in the background."""
        return self._pool.most_background

    async def run(self, request: Sequence[bytes], *, timeout_s: float) -> list[bytes]:
        """Have a request answered; see :class:`Executor`."""
        return await self._pool.run(request, timeout_s=timeout_s, priority=Priority.PRECOMPUTE)
