"""A Ray cluster that a server connects to when there is something to do, and again after it was lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from api.errors import ClusterError
from api.precompute.ray_executor import RayExecutor


class RayOnDemand:
    """An executor on a cluster that need not be there when the server starts; see :class:`api.precompute.executors.Executor`.

    Once connected it keeps its solver processes until :meth:`close`, or until the cluster is lost: the request that finds
    out is refused with :class:`ClusterError`, and the next one connects anew.

    Parameters
    ----------
    address
        ``ray://host:port``.
    warm_up_timeout_s
        Seconds a solver process may take to get ready, above 0.
    """

    def __init__(self, address: str, *, warm_up_timeout_s: float) -> None:
        self._address = address
        self._warm_up_timeout_s = warm_up_timeout_s
        self._connecting = asyncio.Lock()
        self._executor: RayExecutor | None = None

    @property
    def capacity(self) -> int:
        """Solver processes of the cluster; 1 while there is no connection."""
        return 1 if self._executor is None else self._executor.capacity

    async def run(self, request: Sequence[bytes], *, timeout_s: float) -> list[bytes]:
        """Have a request answered, connecting first where that is needed."""
        async with self._connecting:
            if self._executor is None:
                self._executor = await RayExecutor.connect(self._address, warm_up_timeout_s=self._warm_up_timeout_s)
            executor = self._executor
        try:
            return await executor.run(request, timeout_s=timeout_s)
        except ClusterError:
            if self._executor is executor:
                self._executor = None
                await executor.close()
            raise

    async def close(self) -> None:
        """Leave the cluster."""
        if self._executor is not None:
            await self._executor.close()
            self._executor = None
