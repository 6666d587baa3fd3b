"""What a job's failures are where its current epoch is damaged: the newest sound epoch before it, and all reported since."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from pydantic import ValidationError

from api.jobs.choosing import why_never_migrate
from api.jobs.drafting import Base, Change
from api.jobs.forms import JobEvent
from api.jobs.loaded import JobCache, LoadedJob
from api.jobs.reports import change_of
from api.observability.telemetry import Telemetry
from api.store import EpochRecord, JobRecord, Store
from planner.errors import ReplanError
from planner.failure_state import FailureState, carry_over, to_failure_set
from planner.operation import Worker

_LOG = logging.getLogger("replan.api.jobs")


class Recovery:
    """Works out what the epoch behind a damaged one has to be for.

    Parameters
    ----------
    store
        Where epochs and reports are; owned by the caller.
    jobs
        What was read of it already.
    telemetry
        Where damage is counted.
    base_of
        Gives the base for a job of an epoch that was made for this or an earlier revision of it.
    """

    def __init__(
        self, *, store: Store, jobs: JobCache, telemetry: Telemetry, base_of: Callable[[EpochRecord, LoadedJob], Base]
    ) -> None:
        self._store = store
        self._jobs = jobs
        self._telemetry = telemetry
        self._base_of = base_of

    def work_out(self, job: JobRecord, loaded: LoadedJob) -> tuple[Base | None, Change]:
        """What the next epoch follows, and what it is for.

        The next epoch follows the newest sound one. What a worker holds is not sure where it was down since, and of nobody where
        workers may have moved since; so all these are listed among those that have to load. Loading twice does no harm.

        Parameters
        ----------
        job
            A job whose current epoch is damaged.
        loaded
            What its newest revision describes.

        Returns
        -------
        base
            The newest sound epoch, with the number of the damaged one; ``None`` where there is none.
        change
            The failures, as far as they can be known.

        Raises
        ------
        StoreError
            If the store cannot be read.
        """
        sound = self._store.newest_sound_epoch(job.job_id)
        base, change = None, Change(cause="recovered", state=FailureState())
        if sound is not None:
            base = self._base_of(sound, loaded)
            state, dropped = carry_over(loaded.job, base.state)
            change = replace(change, state=state, dropped=dropped, shards_restored=base.body.shards_restored)
        down = set() if base is None else set(base.dead)
        lost = []
        for report in self._store.reports_behind(job.job_id, 0 if sound is None else sound.epoch):
            try:
                if report.event is None:
                    raise ValueError("the report is damaged or gone")
                event = JobEvent.model_validate_json(report.event)
                change = self._after(loaded, change, event)
                down |= to_failure_set(loaded.job, change.state).dead
            except (ReplanError, ValidationError, ValueError) as error:
                lost.append(report.epoch)
                _LOG.error("the report of epoch %d of job %s cannot be used: %s", report.epoch, job.job_id, error)
        self._tell(job, sound, lost)
        is_whole = sound is not None or self._store.reaches_back(job.job_id)
        if lost or not is_whole or self._may_have_moved(job, loaded, sound):
            down |= {Worker(k, s) for k in range(loaded.job.num_pipelines) for s in range(loaded.job.num_slots)}
        if not is_whole:
            self._telemetry.degraded("report_lost")
            _LOG.critical(
                "job %s: no epoch is sound, and the first ones are deleted; report every node that is down once more",
                job.job_id,
            )
        return base if base is None else replace(base, epoch=job.current_epoch), replace(change, unsure=frozenset(down))

    def _may_have_moved(self, job: JobRecord, loaded: LoadedJob, sound: EpochRecord | None) -> bool:
        """Whether workers may have gone to other positions in an epoch behind the newest sound one."""
        first = 1 if sound is None else sound.revision
        if job.revision > first + 1 or why_never_migrate(loaded) is None:
            return True
        if job.revision == first:
            return False
        before = self._jobs.load(self._store.job_revision(job.job_id, first).document)
        return why_never_migrate(before) is None

    def _after(self, loaded: LoadedJob, before: Change, event: JobEvent) -> Change:
        dead = to_failure_set(loaded.job, before.state).dead
        after = change_of(loaded, before.state, event, dead=dead, shards_restored=before.shards_restored)
        return replace(after, cause="recovered", dropped=before.dropped)

    def _tell(self, job: JobRecord, sound: EpochRecord | None, lost: list[int]) -> None:
        self._telemetry.degraded("epoch_corrupt")
        _LOG.error(
            "epoch %s of job %s is damaged; another one follows, made from %s and what was reported since",
            job.current_epoch,
            job.job_id,
            "nothing" if sound is None else f"epoch {sound.epoch}",
        )
        if lost:
            self._telemetry.degraded("report_lost")
            _LOG.critical(
                "job %s: what was reported with the epochs %s is lost; report every node that is down once more",
                job.job_id,
                ", ".join(map(str, lost)),
            )
