"""Following a job's epochs: by its stream, and by long polls where streams do not get through."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import NoReturn, TypeAlias

import httpx2

from replan_client.calls import MAX_WAIT_S, stream_target
from replan_client.core import Core
from replan_client.documents import Fields, parse_object
from replan_client.epochs import Epoch
from replan_client.errors import (
    AnswerError,
    AnswerTooLargeError,
    ClientError,
    JobDeletedError,
    NotFoundError,
    OlderEpochError,
    ServiceUnreachableError,
)
from replan_client.problems import read_problem
from replan_client.retry import Flow, backoff_s
from replan_client.transport import CONNECT_S, begin_body, reason_of

RunPoll: TypeAlias = Callable[[Flow[Epoch | None]], Awaitable[Epoch | None]]
OnEpoch: TypeAlias = Callable[[Epoch], None]
OnTrouble: TypeAlias = Callable[[ClientError | None], None]

_SILENCE_S = 45.0
"""Silence after which a stream is given up; the service breaks it every 15 s."""
_FIRST_SIGN_S = 10.0
_POLLING_S = 300.0
_LONGEST_PAUSE_S = 5.0
_SHORTEST_POLL_S = 1.0
_PROBLEM_BYTES = 2**20


class Follower:
    """Follows one job until that is deleted.

    A stream is tried first. Where it does not come alive, since the service is away or something between lets no streams
    through, one long poll is tried; if that is answered, long polls go on for five minutes before the next stream.

    Parameters
    ----------
    core, http, run_poll
        The service, and how it is talked to.
    job_id
        The job.
    after
        Newest epoch that the caller has; ``None`` for none.
    on_epoch
        Given each epoch, every one newer than the one before: the current one, or all behind ``after``, then each as it
        comes. Where streams do not get through, some may be left out, but never the newest.
    on_trouble
        Told of each error that following goes on in spite of, and ``None`` when the service answers again.

    Raises
    ------
    ArgumentError
        If the job id is none.
    """

    def __init__(
        self,
        core: Core,
        http: httpx2.AsyncClient,
        run_poll: RunPoll,
        job_id: str,
        *,
        after: int | None,
        on_epoch: OnEpoch,
        on_trouble: OnTrouble,
    ) -> None:
        stream_target(job_id, after)
        self._core = core
        self._http = http
        self._run_poll = run_poll
        self._job_id = job_id
        self._last = after
        self._on_epoch = on_epoch
        self._on_trouble = on_trouble
        self._is_known = after is not None
        self._num_failures = 0
        self._reconnect_s = 1.0

    async def run(self) -> NoReturn:
        """Follow until the job is deleted or the task cancelled.

        Raises
        ------
        JobDeletedError
            Once the job is deleted.
        """
        clock = asyncio.get_running_loop().time
        polling_until = clock()
        while True:
            is_polling = clock() < polling_until
            if not is_polling and await self._try_stream():
                await asyncio.sleep(self._reconnect_s * random.uniform(0.5, 1.0))
            elif await self._try_poll():
                polling_until = polling_until if is_polling else clock() + _POLLING_S
            else:
                polling_until = clock()
                await asyncio.sleep(min(backoff_s(self._num_failures), _LONGEST_PAUSE_S))

    async def _try_stream(self) -> bool:
        """Whether a stream came alive; returns once it has ended."""
        is_alive = False
        try:
            async with (
                asyncio.timeout(_FIRST_SIGN_S) as first_sign,
                self._http.stream(
                    "GET",
                    self._core.url + stream_target(self._job_id, self._last),
                    headers={"Accept": "text/event-stream, application/problem+json", "Accept-Encoding": "identity"},
                    timeout=httpx2.Timeout(_SILENCE_S, connect=CONNECT_S),
                ) as response,
            ):
                await _check_stream(response)
                async for event in httpx2.EventSource(response, max_event_size=self._core.max_answer_bytes):
                    first_sign.reschedule(None)
                    is_alive = True
                    self._take_event(event)
            self._fail(ServiceUnreachableError("the stream ended", hint="the service stops, or is restarted"))
        except TimeoutError:
            self._fail(ServiceUnreachableError(f"the stream gave no sign of life within {_FIRST_SIGN_S:g} s"))
        except httpx2.SSEError as error:
            self._fail(AnswerTooLargeError(f"the stream cannot be read: {error}"))
        except httpx2.TransportError as error:
            self._fail(ServiceUnreachableError(f"no stream from {self._core.url}: {reason_of(error, _SILENCE_S)}"))
        except JobDeletedError:
            raise
        except ClientError as error:
            self._fail(error)
        return is_alive

    async def _try_poll(self) -> bool:
        """Whether a long poll was answered."""
        clock = asyncio.get_running_loop().time
        begin = clock()
        try:
            found = await self._run_poll(self._core.poll(self._job_id, self._last, MAX_WAIT_S, is_single=True))
        except ClientError as error:
            self._fail(error)
            return False
        self._succeed()
        if found is not None:
            self._take(found)
        elif clock() - begin < _SHORTEST_POLL_S:
            # Whatever answers at once that there is nothing must not be asked without end.
            await asyncio.sleep(_SHORTEST_POLL_S)
        return True

    def _take_event(self, event: httpx2.ServerSentEvent) -> None:
        self._succeed()
        if event.retry is not None:
            self._reconnect_s = min(event.retry / 1000, _LONGEST_PAUSE_S)
        if event.event == "epoch":
            epoch = Epoch.from_bytes(event.data.encode(), job=self._job_id)
            self._core.known.add(epoch)
            self._take(epoch)
        elif event.event == "damaged":
            number = Fields(parse_object(event.data.encode(), "the marker"), "the marker").number("epoch", least=1)
            self._last = max(number, self._last or 0)
            self._on_trouble(AnswerError(f"epoch {number} of job {self._job_id!r} is damaged in the service's store"))
        elif event.event == "deleted":
            raise self._deleted()

    def _take(self, epoch: Epoch) -> None:
        if self._last is not None and epoch.epoch <= self._last:
            message = f"epoch {epoch.epoch} of job {self._job_id!r} came after {self._last}; it is left out"
            self._on_trouble(OlderEpochError(message, hint="something between client and service answers from a cache"))
            return
        self._last = epoch.epoch
        self._on_epoch(epoch)

    def _succeed(self) -> None:
        self._num_failures = 0
        self._is_known = True
        self._on_trouble(None)

    def _fail(self, error: ClientError) -> None:
        if isinstance(error, NotFoundError) and self._is_known:
            raise self._deleted() from error
        self._num_failures += 1
        self._on_trouble(error)

    def _deleted(self) -> JobDeletedError:
        return JobDeletedError(f"job {self._job_id!r} was deleted while it was followed", hint="register it to go on")


async def _check_stream(response: httpx2.Response) -> None:
    """Raise what an answer that is no stream says."""
    if response.status_code == 200:
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "text/event-stream":
            raise AnswerError(f"the stream comes as {kind[:40]!r}; expected text/event-stream")
        return
    reader = begin_body(response, _PROBLEM_BYTES)
    async for piece in response.aiter_raw():
        reader.feed(piece)
    raise read_problem(response.status_code, reader.finish().body)
