"""The client for ordinary code: every call returns once it has its answer."""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self, TypeVar, cast

import httpx2

from replan_client.calls import check_url
from replan_client.core import MAX_ANSWER_BYTES, Core
from replan_client.epoch_program import EpochProgram
from replan_client.epochs import Epoch
from replan_client.errors import ClosedError
from replan_client.jobs import Acknowledgements, Event, JobSummary, Mode
from replan_client.retry import Attempt, Flow, Lost, Outcome, RetryPolicy
from replan_client.transport import begin_body, options_of, reason_of, request_arguments

T = TypeVar("T")


class Client:
    """A client of one service. It may be used from several threads, but only in the process that made it.

    A request is tried again, the same one, where its answer is lost or says to come again: a restart of the service delays
    it. Redirects are not followed and proxies of the environment not used, so that the key goes where the URL says.

    Parameters
    ----------
    url
        Where the service is: ``http://127.0.0.1:8080``; a path in it goes before ``/v1``.
    api_key
        API key, ``rpk_...``; ``None`` for none.
    attempt_s
        Seconds that one try may take, above 0; a request that the service may hold back gets that time on top.
    total_s
        Seconds that all tries of a request may take together, at least ``attempt_s``.
    max_answer_bytes
        Most bytes of one answer, as sent and unpacked.
    tls
        For https: what is trusted, and the client's own certificate; ``None`` for the system's certificates.

    Raises
    ------
    ArgumentError
        If the URL, the key or a number cannot be used.

    Notes
    -----
    Every method that asks the service raises :class:`ArgumentError` before anything is sent where an argument cannot be sent,
    :class:`ServiceUnreachableError` where no answer comes in time, a :class:`ProblemError` for what the service refuses or cannot
    do, and :class:`AnswerError` where what answers is not RePlan's service.
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
        self.core = Core(url=check_url(url), api_key=api_key, policy=policy, max_answer_bytes=max_answer_bytes, tls=tls)
        self._http = httpx2.Client(**options_of(self.core))
        self._process = os.getpid()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.core.url!r})"

    def close(self) -> None:
        """Close its connections. A second time does nothing."""
        self._http.close()

    def register_job(
        self, job_id: str, job: Mapping[str, Any], *, tolerance: int | None = None, mode: Mode | None = None
    ) -> JobSummary:
        """Register a job, or replace it. The same again changes nothing.

        Parameters
        ----------
        job_id
            The job's id: letters, digits, dots, dashes and underlines, 1 to 128.
        job
            The job document: what a job file holds.
        tolerance
            Failed workers that plans are to be ready for; ``None``: as before, 1 for a new job.
        mode
            Which plans are made ready: ``all`` or ``normalized``; ``None``: as before, none for a new job.
        """
        return self._run(self.core.register_job(job_id, job, tolerance, mode))

    def current_epoch(self, job_id: str, *, after: int | None = None, wait_s: float = 0.0) -> Epoch | None:
        """The current epoch of a job.

        Parameters
        ----------
        job_id
            The job.
        after
            Newest epoch that the caller has; ``None`` for none.
        wait_s
            Seconds to wait for one behind ``after``.

        Returns
        -------
        Epoch | None
            ``None`` where nothing newer than ``after`` came in time.

        Raises
        ------
        NotFoundError
            If there is no such job.
        EpochConflictError
            If ``after`` is ahead of the job: the service's store was set back.
        OlderEpochError
            If the epoch is older than one that the service gave before.
        """
        return self._run(self.core.current_epoch(job_id, after, wait_s))

    def epoch(self, job_id: str, number: int) -> Epoch:
        """One epoch of a job; it never changes."""
        return self._run(self.core.epoch(job_id, number))

    def report(self, job_id: str, event: Event, *, idempotency_key: str | None = None) -> Epoch:
        """Report what happened.

        Parameters
        ----------
        job_id
            The job.
        event
            What happened.
        idempotency_key
            The reporter's own name for this report, 1 to 256 visible ASCII letters: sent again, also by another process, it
            gives the same epoch. ``None``: a random one, which covers the tries of this call.

        Returns
        -------
        Epoch
            The epoch that follows; it is on the service's disk.

        Raises
        ------
        EpochConflictError, AlreadyFailedError, NotFailedError
            If somebody else was faster, or there is nothing new in it.
        """
        return self._run(self.core.report(job_id, event, idempotency_key))

    def program(self, job_id: str, epoch: int, worker: str) -> EpochProgram:
        """What a worker runs in an epoch, verified. It may take until all programs of the epoch are made.

        Parameters
        ----------
        job_id, epoch
            The epoch.
        worker
            The worker by its home, ``3/5``, wherever it stands; or one of its ranks, ``rank:17``.

        Raises
        ------
        NotFoundError
            If there is no such epoch, or the worker is down in it.
        NoPlanError
            If the epoch has no plan.
        ProgramFormatError, ProgramMismatchError, DigestMismatchError
            If what comes is not that program.
        """
        return self._run(self.core.program(job_id, epoch, worker))

    def acknowledge(self, job_id: str, epoch: int, worker: str, *, iteration: int | None = None) -> None:
        """Say that a worker has an epoch and its program, and from which iteration it runs it. The last word counts."""
        self._run(self.core.acknowledge(job_id, epoch, worker, iteration))

    def acknowledgements(self, job_id: str, epoch: int) -> Acknowledgements:
        """Who has an epoch and who has not."""
        return self._run(self.core.acknowledgements(job_id, epoch))

    def _run(self, flow: Flow[T]) -> T:
        if self._http.is_closed:
            flow.close()
            raise ClosedError("the client is closed", hint="make another one")
        if self._process != os.getpid():
            # Both processes would read from the same connections.
            flow.close()
            raise ClosedError("the client was made before this process was forked", hint="make another one")
        outcome: Outcome | None = None
        try:
            while True:
                step = flow.send(outcome)
                if isinstance(step, Attempt):
                    outcome = self._attempt(step)
                else:
                    time.sleep(step.seconds)
        except StopIteration as done:
            return cast("T", done.value)

    def _attempt(self, attempt: Attempt) -> Outcome:
        until = time.monotonic() + attempt.timeout_s
        try:
            with self._http.stream(**request_arguments(self.core.url, attempt)) as response:
                reader = begin_body(response, self.core.max_answer_bytes)
                for piece in response.iter_raw():
                    reader.feed(piece)
                    # Each piece may come in time, and the whole not.
                    if time.monotonic() > until:
                        return Lost(f"the answer did not end within {attempt.timeout_s:.3g} s")
                return reader.finish()
        except httpx2.TransportError as error:
            return Lost(reason_of(error, attempt.timeout_s))
