"""The client for asyncio: the same methods, awaited."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from types import TracebackType
from typing import Any, NoReturn, Self, TypeVar, cast

import httpx2

from replan_client.calls import check_url
from replan_client.core import MAX_ANSWER_BYTES, Core
from replan_client.epoch_program import EpochProgram
from replan_client.epochs import Epoch
from replan_client.errors import ClientError, ClosedError
from replan_client.following import Follower, OnEpoch, OnTrouble
from replan_client.jobs import Acknowledgements, Event, JobSummary, Mode
from replan_client.retry import Attempt, Flow, Lost, Outcome, RetryPolicy
from replan_client.transport import begin_body, options_of, reason_of, request_arguments

T = TypeVar("T")


def _ignore(_: ClientError | None) -> None:
    """What is told of trouble where nobody asked for it: following goes on in spite of it."""


class AsyncClient:
    """A client of one service for asyncio; it belongs to one event loop.

    All arguments, methods and errors are those of :class:`replan_client.client.Client`. A cancelled call ends at once.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        attempt_s: float = 10.0,
        total_s: float = 120.0,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        policy = RetryPolicy(attempt_s=attempt_s, total_s=total_s)
        core = Core(url=check_url(url), api_key=api_key, policy=policy, max_answer_bytes=max_answer_bytes, tls=tls)
        self._begin(core)

    @classmethod
    def sharing(cls, core: Core) -> Self:
        """A client of another one's service, which shares what that remembers."""
        client = cls.__new__(cls)
        client._begin(core)
        return client

    def _begin(self, core: Core) -> None:
        self.core = core
        self._http = httpx2.AsyncClient(**options_of(core))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"AsyncClient({self.core.url!r})"

    async def aclose(self) -> None:
        """Close its connections. A second time does nothing."""
        await self._http.aclose()

    async def register_job(
        self, job_id: str, job: Mapping[str, Any], *, tolerance: int | None = None, mode: Mode | None = None
    ) -> JobSummary:
        """Register a job, or replace it."""
        return await self._run(self.core.register_job(job_id, job, tolerance, mode))

    async def current_epoch(self, job_id: str, *, after: int | None = None, wait_s: float = 0.0) -> Epoch | None:
        """The current epoch of a job; ``None`` where nothing newer than ``after`` came in time."""
        return await self._run(self.core.current_epoch(job_id, after, wait_s))

    async def epoch(self, job_id: str, number: int) -> Epoch:
        """One epoch of a job."""
        return await self._run(self.core.epoch(job_id, number))

    async def report(self, job_id: str, event: Event, *, idempotency_key: str | None = None) -> Epoch:
        """Report what happened; the epoch that follows."""
        return await self._run(self.core.report(job_id, event, idempotency_key))

    async def program(self, job_id: str, epoch: int, worker: str) -> EpochProgram:
        """What a worker runs in an epoch, verified."""
        return await self._run(self.core.program(job_id, epoch, worker))

    async def acknowledge(self, job_id: str, epoch: int, worker: str, *, iteration: int | None = None) -> None:
        """Say that a worker has an epoch and its program."""
        await self._run(self.core.acknowledge(job_id, epoch, worker, iteration))

    async def acknowledgements(self, job_id: str, epoch: int) -> Acknowledgements:
        """Who has an epoch and who has not."""
        return await self._run(self.core.acknowledgements(job_id, epoch))

    async def follow(
        self, job_id: str, on_epoch: OnEpoch, *, after: int | None = None, on_trouble: OnTrouble = _ignore
    ) -> NoReturn:
        """Follow a job until it is deleted, or the task cancelled; see :class:`replan_client.following.Follower`.

        Parameters
        ----------
        job_id
            The job.
        on_epoch
            Given each epoch, every one newer than the one before.
        after
            Newest epoch that the caller has; ``None`` for none.
        on_trouble
            Told of each error that following goes on in spite of, and ``None`` when the service answers again.

        Raises
        ------
        JobDeletedError
            Once the job is deleted.
        """
        follower = Follower(
            self.core, self._http, self._run, job_id, after=after, on_epoch=on_epoch, on_trouble=on_trouble
        )
        await follower.run()

    async def _run(self, flow: Flow[T]) -> T:
        if self._http.is_closed:
            flow.close()
            raise ClosedError("the client is closed", hint="make another one")
        outcome: Outcome | None = None
        try:
            while True:
                step = flow.send(outcome)
                if isinstance(step, Attempt):
                    outcome = await self._attempt(step)
                else:
                    await asyncio.sleep(step.seconds)
        except StopIteration as done:
            return cast("T", done.value)

    async def _attempt(self, attempt: Attempt) -> Outcome:
        try:
            async with (
                asyncio.timeout(attempt.timeout_s),
                self._http.stream(**request_arguments(self.core.url, attempt)) as response,
            ):
                reader = begin_body(response, self.core.max_answer_bytes)
                async for piece in response.aiter_raw():
                    reader.feed(piece)
                return reader.finish()
        except TimeoutError:
            return Lost(f"the answer did not end within {attempt.timeout_s:.3g} s")
        except httpx2.TransportError as error:
            return Lost(reason_of(error, attempt.timeout_s))
