"""What a worker has to run, as epochs come: each with its program and the roster, fetched while training goes on."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass

from replan_client.client import Client
from replan_client.epochs import Epoch, EpochProblem
from replan_client.errors import (
    AnswerError,
    ClientError,
    NoPlanError,
    NotFoundError,
    ProblemError,
    ProgramFormatError,
    ServiceFaultError,
    ServiceUnreachableError,
    UnavailableError,
)
from replan_client.program import Compute, OptimizerStep, Program
from replan_client.watching import EpochWatcher

_LOG = logging.getLogger("replan_client")
_LOOK_S = 0.5
_AGAIN_S = 0.5
PASSING_ERRORS = (ServiceUnreachableError, UnavailableError, ServiceFaultError)
"""What a service that is started anew, or busy, gets over."""
_REFUSALS = (AnswerError, ProblemError, ProgramFormatError)
_PATIENCE_S = 120.0
LASTING_PROBLEMS = ("stage_lost",)
"""Why an epoch has no plan, where no later plan brings back what is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One epoch, as one worker has to follow it.

    Parameters
    ----------
    epoch
        The epoch.
    names
        All live workers by their homes, in order.
    program
        What this worker runs; ``None`` where the epoch has no plan or this worker is down in it.
    """

    epoch: Epoch
    names: tuple[str, ...]
    program: Program | None

    @property
    def number(self) -> int:
        """Number of the epoch."""
        return self.epoch.epoch

    @property
    def lost(self) -> EpochProblem | None:
        """Why training cannot go on without a checkpoint; ``None`` where it can."""
        problem = self.epoch.problem
        return problem if problem is not None and problem.code in LASTING_PROBLEMS else None

    @property
    def stages(self) -> tuple[int, ...]:
        """Stages of this worker's position, ascending."""
        assert self.program is not None, "asked of epochs that are run"
        return tuple(sorted(i.stage for i in self.program.instructions if isinstance(i, OptimizerStep)))

    @property
    def is_loaded(self) -> bool:
        """Whether this worker computes anything."""
        assert self.program is not None, "asked of epochs that are run"
        return any(isinstance(instruction, Compute) for instruction in self.program.instructions)


class AssignmentFeed:
    """Follows a job in a thread of its own, and fetches what one worker needs of each new epoch.

    Refusals and answers that are none of RePlan's end it before the first epoch: something is set up wrongly. Only a job that is
    not there is waited for a while, since workers may be started before it is registered. Later they are got over, unless they
    last: while a service is started anew, what stands before it may answer anything, and who trains does not need it then.

    Parameters
    ----------
    client
        The service; owned by the caller.
    job_id
        The job.
    worker
        The worker by its home.
    patience_s
        Seconds that refusals may last.
    registration_s
        Seconds that the job may take to be registered.
    """

    def __init__(
        self,
        client: Client,
        job_id: str,
        worker: str,
        *,
        patience_s: float = _PATIENCE_S,
        registration_s: float = 0.0,
    ) -> None:
        self._client = client
        self._job_id = job_id
        self._worker = worker
        self._changed = threading.Condition()
        self._latest: Assignment | None = None
        self._end: ClientError | None = None
        self._is_closed = False
        self._rosters: dict[int, tuple[str, ...]] = {}
        self._patience_s = patience_s
        self._registration_s = registration_s
        self._unregistered_since_s: float | None = None
        self._refused_since_s: float | None = None
        self._past_trouble: ClientError | None = None
        self._watcher = EpochWatcher(client, job_id)
        self._thread = threading.Thread(target=self._run, name=f"assignments {worker}", daemon=True)
        self._thread.start()

    @property
    def latest(self) -> Assignment | None:
        """The newest so far; ``None`` before the first.

        Raises
        ------
        ClientError
            If the job was deleted, or the service refuses to tell of it.
        """
        with self._changed:
            if self._end is not None:
                raise self._end
            return self._latest

    def wait_newer(self, than: int, timeout_s: float) -> Assignment | None:
        """Wait for an epoch with a number above ``than``; ``None`` where none came in time. Raises as :attr:`latest` does."""
        until = time.monotonic() + timeout_s
        with self._changed:
            while self._end is None and (self._latest is None or self._latest.number <= than):
                left_s = until - time.monotonic()
                if left_s <= 0:
                    return None
                self._changed.wait(left_s)
            if self._end is not None:
                raise self._end
            return self._latest

    def close(self) -> None:
        """Stop following."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._watcher.close()
        self._thread.join(timeout=1.0)

    def _run(self) -> None:
        try:
            while not self._is_closed:
                than = 0 if self._latest is None else self._latest.number
                try:
                    epoch = self._watcher.wait_newer(than, _LOOK_S)
                except _REFUSALS as refusal:
                    self._ask_itself(refusal, than)
                else:
                    self._take(epoch)
        except ClientError as error:
            with self._changed:
                self._end = error if not self._is_closed else None
                self._changed.notify_all()

    def _take(self, epoch: Epoch | None) -> None:
        """Take what the watcher has; ``None`` for nothing new."""
        try:
            assignment = None if epoch is None else self._fetch(epoch)
        except _REFUSALS as refusal:
            self._bear(refusal)
            return
        if epoch is None or assignment is not None:
            self._refused_since_s = None
        if assignment is not None:
            with self._changed:
                self._latest = assignment
                self._changed.notify_all()

    def _ask_itself(self, trouble: ClientError, than: int) -> None:
        """See whether the service still refuses: the watcher's trouble stands until something new comes, maybe for hours."""
        if trouble is self._past_trouble:
            return
        try:
            current = self._client.current_epoch(self._job_id)
        except NotFoundError as refusal:
            if self._latest is not None:
                self._bear(refusal)
            else:
                self._await_registration(refusal)
        except PASSING_ERRORS:
            self._pause(_AGAIN_S)
        except _REFUSALS as refusal:
            self._bear(refusal)
        else:
            # Raised again and again, it would collect the places where it was.
            self._past_trouble = trouble.with_traceback(None)
            self._take(current if current is not None and current.epoch > than else None)

    def _await_registration(self, refusal: NotFoundError) -> None:
        """Go on where the job may still be registered."""
        now = time.monotonic()
        if self._unregistered_since_s is None:
            self._unregistered_since_s = now
            _LOG.warning(
                "job %s is not registered yet; it is waited for up to %g s: %s",
                self._job_id,
                self._registration_s,
                refusal,
            )
        if now - self._unregistered_since_s >= self._registration_s:
            raise NotFoundError(
                f"job {self._job_id!r} was not registered within {self._registration_s:g} s: {refusal.message}",
                hint=refusal.hint,
                code=refusal.code,
            ) from refusal
        self._pause(_AGAIN_S)

    def _bear(self, refusal: ClientError) -> None:
        """Go on in spite of a refusal, unless it is the first answer of all or lasts."""
        now = time.monotonic()
        if self._refused_since_s is None:
            self._refused_since_s = now
            _LOG.warning("job %s is not told of rightly now: %s", self._job_id, refusal)
        if self._latest is None or now - self._refused_since_s > self._patience_s:
            raise refusal
        self._pause(_AGAIN_S)

    def _pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed, seconds)

    def _fetch(self, epoch: Epoch) -> Assignment | None:
        """What belongs to an epoch; ``None`` to look again, since the service cannot tell now or the epoch is past."""
        try:
            program: Program | None = None
            if epoch.plan is not None and epoch.is_live(self._worker):
                program = self._client.program(self._job_id, epoch.epoch, self._worker).program
            return Assignment(epoch=epoch, names=self._names(epoch), program=program)
        except (NotFoundError, NoPlanError, *PASSING_ERRORS) as error:
            # Programs of an epoch that was found damaged are gone; another epoch follows.
            _LOG.warning("epoch %d of job %s cannot be fetched yet: %s", epoch.epoch, self._job_id, error)
            self._pause(_AGAIN_S)
            return None

    def _names(self, epoch: Epoch) -> tuple[str, ...]:
        """Live workers of an epoch: all of its revision, as the service lists them once, less those that are down."""
        everybody = self._rosters.get(epoch.revision)
        if everybody is None:
            listed = self._client.acknowledgements(self._job_id, epoch.epoch)
            live = [*(entry.worker for entry in listed.acknowledged), *listed.missing]
            everybody = tuple(sorted({*live, *epoch.failed_workers}, key=_place))
            self._rosters[epoch.revision] = everybody
        return tuple(name for name in everybody if epoch.is_live(name))


def _place(name: str) -> tuple[int, ...]:
    return tuple(map(int, name.split("/")))
