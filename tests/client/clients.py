"""Both clients behind one face, so that each test runs on both."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from replan_client.async_client import AsyncClient
from replan_client.client import Client

KINDS = ("sync", "async")


class Awaited:
    """An :class:`AsyncClient` whose methods are waited for."""

    def __init__(self, runner: asyncio.Runner, client: AsyncClient) -> None:
        self._runner = runner
        self._client = client
        self.core = client.core

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        return lambda *arguments, **options: self._runner.run(method(*arguments, **options))

    def __repr__(self) -> str:
        return repr(self._client)

    def close(self) -> None:
        """Close the client."""
        self._runner.run(self._client.aclose())


@contextmanager
def connected(kind: str, url: str, **options: Any) -> Iterator[Any]:
    """A client of a kind, typed as anything since both are tested through one."""
    if kind == "sync":
        with Client(url, **options) as client:
            yield client
        return
    with asyncio.Runner() as runner:

        async def begin() -> AsyncClient:
            return await AsyncClient(url, **options).__aenter__()

        client = Awaited(runner, runner.run(begin()))
        try:
            yield client
        finally:
            client.close()
