"""What a job's failures are where its current epoch is damaged: the newest sound epoch before it, and all reported since."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from pydantic import ValidationError

from api.jobs.drafting import Base, Change
from api.jobs.forms import JobEvent
from api.jobs.loaded import LoadedJob
from api.jobs.reports import change_of
from api.observability.telemetry import Telemetry
from api.store import EpochRecord, JobRecord, Store
from planner.errors import ReplanError
from planner.failure_state import FailureState, carry_over, to_failure_set

_LOG = logging.getLogger("replan.api.jobs")


class Recovery:
    """Works out what the epoch behind a damaged one has to be for.

    Parameters
    ----------
    store
        Where epochs and reports are; owned by the caller.
    telemetry
        Where damage is counted.
    base_of
        Gives the base for a job of an epoch that was made for this or an earlier revision of it.
    """

    def __init__(
        self, *, store: Store, telemetry: Telemetry, base_of: Callable[[EpochRecord, LoadedJob], Base]
    ) -> None:
        self._store = store
        self._telemetry = telemetry
        self._base_of = base_of

    def work_out(self, job: JobRecord, loaded: LoadedJob) -> tuple[Base | None, Change]:
        """What the next epoch follows, and what it is for.

        Who moved where since the newest sound epoch is not known any more. So the next epoch follows that one: all that is
        to be loaded is listed from there on, and loading it twice does no harm.

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
        damaged = job.current_epoch
        sound = self._store.newest_sound_epoch(job.job_id, damaged)
        base, change = None, Change(cause="recovered", state=FailureState())
        if sound is not None:
            base = self._base_of(sound, loaded)
            state, dropped = carry_over(loaded.job, base.state)
            change = replace(change, state=state, dropped=dropped, shards_restored=base.body.shards_restored)
        lost = []
        for report in self._store.reports_behind(job.job_id, 0 if sound is None else sound.epoch):
            try:
                if report.event is None:
                    raise ValueError("the report is damaged or gone")
                event = JobEvent.model_validate_json(report.event)
                change = self._after(loaded, change, event)
            except (ReplanError, ValidationError, ValueError) as error:
                lost.append(report.epoch)
                _LOG.error("the report of epoch %d of job %s cannot be used: %s", report.epoch, job.job_id, error)
        self._tell(job, sound, lost)
        if sound is None and not self._store.reaches_back(job.job_id):
            self._telemetry.degraded("report_lost")
            _LOG.critical(
                "job %s: no epoch is sound, and the first ones are deleted; report every node that is down once more",
                job.job_id,
            )
        return base if base is None else replace(base, epoch=damaged), change

    def _after(self, loaded: LoadedJob, before: Change, event: JobEvent) -> Change:
        dead = to_failure_set(loaded.job, before.state).dead
        after = change_of(loaded, before.state, event, dead=dead, shards_restored=before.shards_restored)
        return replace(after, cause="recovered", dropped=before.dropped)

    def _tell(self, job: JobRecord, sound: EpochRecord | None, lost: list[int]) -> None:
        self._telemetry.degraded("epoch_corrupt")
        _LOG.error(
            "epoch %d of job %s is damaged; another one follows, made from %s and what was reported since",
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
