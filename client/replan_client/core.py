"""What both clients do, without input and output: each method is a flow for :mod:`replan_client.retry`'s drivers."""

from __future__ import annotations

import math
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from replan_client import calls
from replan_client.answers import Answer
from replan_client.calls import Call
from replan_client.epoch_program import EpochProgram, verify_program
from replan_client.epochs import Epoch
from replan_client.errors import ArgumentError, OlderEpochError
from replan_client.jobs import Acknowledgements, Event, JobSummary, Mode
from replan_client.memory import AnswerCache, KnownEpochs
from replan_client.retry import Flow, Pause, RetryPolicy, exchange

T = TypeVar("T")
MAX_ANSWER_BYTES = 64 * 2**20
"""Longest answer read by default, 64 MiB."""

_SHORTEST_POLL_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """A service, how it is talked to, and what is remembered of it. May be used from several threads.

    Parameters
    ----------
    url
        The service's URL without a slash at its end.
    api_key
        API key; ``None`` for none.
    policy
        How long requests are tried.
    max_answer_bytes
        Most bytes of one answer.
    tls
        For https: what is trusted, and the client's own certificate; ``None`` for the system's certificates.
    """

    url: str
    api_key: str | None = field(default=None, repr=False)
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    max_answer_bytes: int = MAX_ANSWER_BYTES
    tls: ssl.SSLContext | None = None
    cache: AnswerCache = field(default_factory=AnswerCache, repr=False)
    known: KnownEpochs = field(default_factory=KnownEpochs, repr=False)

    def __post_init__(self) -> None:
        calls.check_url(self.url)
        if self.api_key is not None:
            calls.check_api_key(self.api_key)
        if self.max_answer_bytes < 1:
            raise ArgumentError(f"max_answer_bytes is {self.max_answer_bytes}; expected at least 1")

    def headers(self) -> dict[str, str]:
        """Headers of every request."""
        headers = {
            "Accept": "application/json, application/problem+json",
            "Accept-Encoding": "gzip",
            "User-Agent": "replan-client",
        }
        return headers if self.api_key is None else headers | {"Authorization": f"Bearer {self.api_key}"}

    def register_job(
        self, job_id: str, job: Mapping[str, Any], tolerance: int | None, mode: Mode | None
    ) -> Flow[JobSummary]:
        """See :meth:`replan_client.client.Client.register_job`; each method here has its namesake there."""
        return self._exchange(calls.register_job(job_id, job, tolerance, mode))

    def current_epoch(self, job_id: str, after: int | None, wait_s: float) -> Flow[Epoch | None]:
        """The current epoch, or the next one; a long wait is several requests."""
        if not 0 <= wait_s < math.inf:
            raise ArgumentError(f"wait_s is {wait_s}; expected a finite number from 0 on")
        clock = self.policy.clock
        until = clock() + wait_s
        while True:
            begin = clock()
            left_s = max(until - begin, 0.0)
            found = yield from self.poll(job_id, after, min(left_s, calls.MAX_WAIT_S), is_single=False)
            if found is not None or after is None or left_s <= calls.MAX_WAIT_S:
                return found
            if clock() - begin < _SHORTEST_POLL_S:
                # Whatever answers at once that there is nothing must not be asked without end.
                yield Pause(_SHORTEST_POLL_S)

    def poll(self, job_id: str, after: int | None, wait_s: float, *, is_single: bool) -> Flow[Epoch | None]:
        """One request for the current epoch, or the next one.

        Raises
        ------
        OlderEpochError
            If the service gives an epoch older than one that it gave before this request began.
        """
        newest = max(self.known.newest(job_id), after or 0)
        found = yield from self._exchange(calls.current_epoch(job_id, after, wait_s), is_single=is_single)
        if found is None:
            return None
        if found.epoch < newest:
            raise OlderEpochError(
                f"the service gave epoch {found.epoch} of job {job_id!r} as the current one; it gave {newest} before",
                hint="its store was set back, or something between answers from a cache: after a restored backup, start the "
                "client anew",
            )
        self.known.add(found)
        return None if found.epoch == after else found

    def epoch(self, job_id: str, number: int) -> Flow[Epoch]:
        """One epoch."""
        found = yield from self._exchange(calls.epoch(job_id, number))
        self.known.add(found)
        return found

    def report(self, job_id: str, event: Event, idempotency_key: str | None) -> Flow[Epoch]:
        """Report an event; the epoch that follows."""
        found = yield from self._exchange(calls.report(job_id, event, idempotency_key))
        self.known.add(found)
        return found

    def program(self, job_id: str, number: int, worker: str) -> Flow[EpochProgram]:
        """A verified program. The epoch is asked for first where it is not known."""
        calls.check_worker(worker)
        epoch = self.known.get(job_id, number) or (yield from self.epoch(job_id, number))

        def read(answer: Answer) -> EpochProgram:
            return verify_program(answer, epoch, worker, self.known)

        return (yield from self._exchange(calls.program(job_id, number, worker, read)))

    def acknowledge(self, job_id: str, number: int, worker: str, iteration: int | None) -> Flow[None]:
        """Say that a worker has an epoch."""
        return self._exchange(calls.acknowledge(job_id, number, worker, iteration))

    def acknowledgements(self, job_id: str, number: int) -> Flow[Acknowledgements]:
        """Who has an epoch."""
        return self._exchange(calls.acknowledgements(job_id, number))

    def _exchange(self, call: Call[T], *, is_single: bool = False) -> Flow[T]:
        return exchange(call, self.policy, self.cache, address=self.url, is_single=is_single)
