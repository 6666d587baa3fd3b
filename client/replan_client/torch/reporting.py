"""What a worker tells the service, from a thread of its own: training waits for no answer."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable

from replan_client.client import Client
from replan_client.errors import (
    AlreadyFailedError,
    AnswerError,
    ClientError,
    EpochConflictError,
    NotFailedError,
    NotFoundError,
)
from replan_client.jobs import Event
from replan_client.torch.assignments import PASSING_ERRORS

_LOG = logging.getLogger("replan_client")
_AGAIN_S = 0.5


class Reporter:
    """Reports and acknowledgements of one worker, sent one after the other and again until the service has them.

    A report that somebody else made first is no error: the epoch that followed it comes all the same.

    Parameters
    ----------
    client
        The service; owned by the caller.
    job_id
        The job.
    worker
        The worker by its home.
    """

    def __init__(self, client: Client, job_id: str, worker: str) -> None:
        self._client = client
        self._job_id = job_id
        self._worker = worker
        self._changed = threading.Condition()
        self._waiting: deque[Callable[[], None]] = deque()
        self._reported: set[tuple[int, str]] = set()
        self._error: ClientError | None = None
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name=f"reporter {worker}", daemon=True)
        self._thread.start()

    def report_failed(self, epoch: int, names: Iterable[str], iteration: int) -> None:
        """Report workers that do not live, unless that was done: valid only while the job is at this epoch.

        Raises
        ------
        ClientError
            If the service refused an earlier message for good.
        """
        if self._error is not None:
            raise self._error
        new = tuple(name for name in names if (epoch, name) not in self._reported)
        if not new:
            return
        self._reported |= {(epoch, name) for name in new}
        event = Event(kind="node_failed", workers=new, iteration=iteration, expected_epoch=epoch)
        _LOG.warning("job %s, epoch %d: %s does not live", self._job_id, epoch, ", ".join(new))
        # Whoever else finds the same says the same, and it counts once; whoever finds more is told to look at the new epoch.
        key = hashlib.sha256(f"{self._job_id} {event}".encode()).hexdigest()
        self._enqueue(lambda: self._report(event, key))

    def acknowledge(self, epoch: int, iteration: int) -> None:
        """Say that this worker runs an epoch from an iteration on."""
        self._enqueue(lambda: self._acknowledge(epoch, iteration))

    def close(self, *, patience_s: float) -> None:
        """Send what waits, for at most some seconds."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join(timeout=patience_s)

    def _enqueue(self, message: Callable[[], None]) -> None:
        with self._changed:
            self._waiting.append(message)
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_closed)
                if not self._waiting:
                    return
                message = self._waiting[0]
            try:
                message()
            # What is no answer of RePlan's comes from something before it, which may be gone soon.
            except (AnswerError, *PASSING_ERRORS) as error:
                _LOG.warning("job %s: the service cannot be told now: %s", self._job_id, error)
                with self._changed:
                    if self._changed.wait_for(lambda: self._is_closed, _AGAIN_S):
                        return
                continue
            except ClientError as error:
                self._error = error
            with self._changed:
                self._waiting.popleft()

    def _report(self, event: Event, key: str) -> None:
        try:
            self._client.report(self._job_id, event, idempotency_key=key)
        except (EpochConflictError, AlreadyFailedError) as error:
            _LOG.info("job %s: somebody else reported first: %s", self._job_id, error)

    def _acknowledge(self, epoch: int, iteration: int) -> None:
        try:
            self._client.acknowledge(self._job_id, epoch, self._worker, iteration=iteration)
        except (NotFoundError, NotFailedError, EpochConflictError) as error:
            # Declared dead, or the epoch is past: the next one says more.
            _LOG.info("job %s: epoch %d is not to be acknowledged any more: %s", self._job_id, epoch, error)
