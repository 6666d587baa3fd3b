"""Who has an epoch, and from which iteration on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from api.store.engine import Database
from api.store.epochs import no_epoch
from api.store.schema import ACKNOWLEDGEMENTS, EPOCHS


@dataclass(frozen=True, slots=True, kw_only=True)
class AcknowledgementRecord:
    """A worker that has an epoch, and the iteration from which it runs it."""

    worker: str
    iteration: int | None
    created_at: datetime


class AcknowledgementRows(Database):
    """Acknowledgements of epochs by workers."""

    def acknowledge(self, job_id: str, epoch: int, worker: str, iteration: int | None) -> None:
        """Store that a worker has an epoch; a later iteration of the same worker replaces the earlier one.

        Raises
        ------
        NotFoundError
            If there is no such job or epoch.
        """
        self.acknowledge_all(job_id, epoch, {worker: iteration})

    def acknowledge_all(self, job_id: str, epoch: int, iterations: Mapping[str, int | None]) -> None:
        """Store the acknowledgements of many workers in one transaction; see :meth:`acknowledge`."""

        def work(connection: sa.Connection) -> None:
            found = sa.select(EPOCHS.c.epoch).where(EPOCHS.c.job_id == job_id, EPOCHS.c.epoch == epoch)
            if connection.execute(found).scalar() is None:
                raise no_epoch(job_id, epoch)
            now = self._now(connection)
            rows = [
                {"job_id": job_id, "epoch": epoch, "worker": worker, "iteration": iteration, "created_at": now}
                for worker, iteration in sorted(iterations.items())
            ]
            insert = self._insert(ACKNOWLEDGEMENTS)
            changes = {name: insert.excluded[name] for name in ("iteration", "created_at")}
            if rows:
                connection.execute(
                    insert.on_conflict_do_update(index_elements=["job_id", "epoch", "worker"], set_=changes), rows
                )

        self._write(work)

    def acknowledgements(self, job_id: str, epoch: int) -> tuple[AcknowledgementRecord, ...]:
        """Who has acknowledged an epoch, in order of the workers' names."""
        a = ACKNOWLEDGEMENTS.c
        query = sa.select(a.worker, a.iteration, a.created_at).where(a.job_id == job_id, a.epoch == epoch)
        rows = self._read(lambda connection: connection.execute(query).all())
        records = (AcknowledgementRecord(worker=w, iteration=i, created_at=at) for w, i, at in rows)
        return tuple(sorted(records, key=lambda record: record.worker))
