"""What can be known of epochs whose rows are damaged: the sound ones before them, and what was reported since."""

from __future__ import annotations

import json
from dataclasses import dataclass

import sqlalchemy as sa

from api.errors import CorruptStoreError
from api.store.epochs import MAX_EPOCH, EpochRecord, EpochRows
from api.store.schema import EPOCHS, EVENTS

_PAGE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedEpoch:
    """An epoch that was stored and cannot be read any more."""

    job_id: str
    epoch: int

    @property
    def body(self) -> bytes:
        """What a list or a stream shows in its place, JSON."""
        return json.dumps({"job": self.job_id, "epoch": self.epoch, "damaged": True}, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The event of a damaged epoch, JSON; ``None`` where that is damaged or gone too."""

    epoch: int
    event: bytes | None


class EpochDamageRows(EpochRows):
    """Epochs where some may be damaged."""

    def epochs_behind(self, job_id: str, n: int, limit: int = 100) -> tuple[EpochRecord | DamagedEpoch, ...]:
        """As :meth:`epochs_after`, but with a marker for each epoch that is damaged."""
        try:
            return self.epochs_after(job_id, n, limit)
        except CorruptStoreError:
            query = sa.select(EPOCHS.c.epoch).where(EPOCHS.c.job_id == job_id, EPOCHS.c.epoch > n)
            query = query.order_by(EPOCHS.c.epoch).limit(limit)
            numbers = self._read(lambda connection: connection.execute(query).scalars().all())
            # What is no number any more cannot be named.
            return tuple(self._epoch_or_marker(job_id, number) for number in numbers if isinstance(number, int))

    def newest_sound_epoch(self, job_id: str) -> EpochRecord | None:
        """Newest epoch of a job that is not damaged; ``None`` where there is none."""
        most = MAX_EPOCH
        while numbers := self._numbers_up_to(job_id, most):
            for number in numbers:
                found = self._epoch_or_marker(job_id, number)
                if isinstance(found, EpochRecord):
                    return found
            most = numbers[-1] - 1
        return None

    def reaches_back(self, job_id: str) -> bool:
        """Whether all epochs of a job are there from its registration on: old ones are deleted after a while."""
        first = sa.select(EPOCHS.c.cause).where(EPOCHS.c.job_id == job_id).order_by(EPOCHS.c.epoch).limit(1)
        return self._read(lambda connection: connection.execute(first).scalar()) == "registered"

    def reports_behind(self, job_id: str, n: int) -> tuple[Report, ...]:
        """What was reported and led to the epochs of a job behind epoch ``n``, in order.

        Epochs that no report led to are left out, as far as their damaged rows still say so.
        """
        query = (
            sa.select(EPOCHS.c.epoch, EPOCHS.c.cause, EVENTS.c.checksum)
            .outerjoin(EVENTS, (EVENTS.c.job_id == EPOCHS.c.job_id) & (EVENTS.c.epoch == EPOCHS.c.epoch))
            .where(EPOCHS.c.job_id == job_id, EPOCHS.c.epoch > n)
            .order_by(EPOCHS.c.epoch)
        )
        rows = self._read(lambda connection: connection.execute(query).all())
        return tuple(
            Report(epoch=row.epoch, event=self._event_of(job_id, row.epoch))
            for row in rows
            if row.checksum is not None or row.cause not in ("registered", "revised", "improved", "recovered")
        )

    def _numbers_up_to(self, job_id: str, most: int) -> tuple[int, ...]:
        """Some numbers of epochs up to this one, the largest first."""
        e = EPOCHS.c
        query = sa.select(e.epoch).where(e.job_id == job_id, e.epoch <= most).order_by(e.epoch.desc()).limit(_PAGE)
        return tuple(self._read(lambda connection: connection.execute(query).scalars().all()))

    def _event_of(self, job_id: str, n: int) -> bytes | None:
        try:
            found = self._read(lambda connection: self._event_at(connection, job_id, n))
        except CorruptStoreError:
            return None
        return None if found is None else found.event

    def _epoch_or_marker(self, job_id: str, n: int) -> EpochRecord | DamagedEpoch:
        try:
            return self.epoch(job_id, n)
        except CorruptStoreError:
            return DamagedEpoch(job_id=job_id, epoch=n)
