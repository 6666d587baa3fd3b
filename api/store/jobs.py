"""Jobs and their revisions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args

import sqlalchemy as sa

from api.errors import CorruptStoreError
from api.store.checksums import row_checksum
from api.store.engine import Database
from api.store.notices import notify
from api.store.schema import JOB_REVISIONS, JOBS, RETIRED_JOBS
from planner.errors import NotFoundError

Mode = Literal["normalized", "all"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEntry:
    """What a list of jobs shows of one.

    Parameters
    ----------
    job_id
        Id that its users chose.
    revision
        Number of its newest document, from 1.
    job_sha256
        Hash of all that a plan can depend on (:func:`planner.job_hash.job_sha256`).
    tolerance
        Failures that plans are made for beforehand, at least 0.
    mode
        Which failure keys these are; ``None`` where none are wanted.
    current_epoch
        Number of its newest epoch; 0 until the first one is appended.
    created_at, updated_at
        When it was registered, and when this revision was.
    """

    job_id: str
    revision: int
    job_sha256: str
    tolerance: int
    mode: Mode | None
    current_epoch: int
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord(JobEntry):
    """A job with its document, the job file as canonical JSON."""

    document: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedJob:
    """A job whose row cannot be read any more."""

    job_id: str


class JobRows(Database):
    """Jobs; a changed job is a new revision, and the old ones stay readable."""

    def put_job(
        self, job_id: str, document: bytes, job_sha256: str, tolerance: int, mode: Mode | None
    ) -> tuple[JobRecord, bool]:
        """Register a job, or give it a new revision.

        Returns
        -------
        tuple[JobRecord, bool]
            The job, and whether this made a new revision. The same document again makes none: tolerance and mode, which no
            epoch depends on, are those of the newest revision from then on.
        """

        def work(connection: sa.Connection) -> tuple[JobRecord, bool]:
            now = self._now(connection)
            last = connection.execute(
                sa.select(RETIRED_JOBS.c.last_epoch).where(RETIRED_JOBS.c.job_id == job_id)
            ).scalar()
            self._insert_missing(
                connection,
                JOBS,
                job_id=job_id,
                revision=0,
                current_epoch=0,
                last_epoch=last or 0,
                created_at=now,
                updated_at=now,
            )
            job = connection.execute(self._locked(sa.select(JOBS).where(JOBS.c.job_id == job_id))).one()
            known = None if job.revision == 0 else self._record(connection, job_id, None)
            is_new = known is None or (known.document, known.job_sha256) != (document, job_sha256)
            if known is not None and not is_new and (known.tolerance, known.mode) == (tolerance, mode):
                return known, False
            revision = job.revision + is_new
            values: dict[str, Any] = {
                "tolerance": tolerance,
                "mode": mode,
                "checksum": _checksum(job_id, revision, document, job_sha256, tolerance, mode),
            }
            if not is_new:
                r = JOB_REVISIONS.c
                row = JOB_REVISIONS.update().where(r.job_id == job_id, r.revision == revision)
                connection.execute(row.values(**values))
                return self._record(connection, job_id, revision), False
            values |= {"document": document, "job_sha256": job_sha256, "revision": revision, "created_at": now}
            connection.execute(JOB_REVISIONS.insert().values(job_id=job_id, **values))
            connection.execute(JOBS.update().where(JOBS.c.job_id == job_id).values(revision=revision, updated_at=now))
            return self._record(connection, job_id, revision), True

        return self._write(work)

    def job(self, job_id: str) -> JobRecord:
        """Newest revision of a job.

        Raises
        ------
        NotFoundError
            If no job has this id.
        CorruptStoreError
            If the stored document is damaged.
        """
        return self._read(lambda connection: self._record(connection, job_id, None))

    def job_revision(self, job_id: str, n: int) -> JobRecord:
        """Revision ``n`` of a job; raises as :meth:`job` does, also where there is no such revision."""
        return self._read(lambda connection: self._record(connection, job_id, n))

    def mend_job(self, job_id: str, document: bytes, job_sha256: str, *, tolerance: int, mode: Mode | None) -> bool:
        """Put the newest revision of a job right, whose row is damaged, where it is known that it held this document.

        Parameters
        ----------
        job_id, document, job_sha256
            The job, and what is to be its document with its hash.
        tolerance, mode
            What they are where the row does not tell any more.

        Returns
        -------
        bool
            ``False`` where the row held another document, or does not tell which; nothing is changed then.
        """

        def work(connection: sa.Connection) -> bool:
            r, j = JOB_REVISIONS.c, JOBS.c
            of_newest = (
                r.job_id == job_id,
                r.revision == sa.select(j.revision).where(j.job_id == job_id).scalar_subquery(),
            )
            row = connection.execute(self._locked(sa.select(JOB_REVISIONS).where(*of_newest))).one_or_none()
            if row is None:
                return False
            values: dict[str, Any] = {"tolerance": row.tolerance, "mode": row.mode}
            if _checksum(job_id, row.revision, document, job_sha256, row.tolerance, row.mode) != row.checksum:
                if (row.document, row.job_sha256) != (document, job_sha256):
                    return False
                values = {"tolerance": tolerance, "mode": mode}
            checksum = _checksum(job_id, row.revision, document, job_sha256, values["tolerance"], values["mode"])
            values |= {"document": document, "job_sha256": job_sha256, "checksum": checksum}
            connection.execute(JOB_REVISIONS.update().where(*of_newest).values(**values))
            return True

        return self._write(work)

    def list_jobs(self, after: str | None = None, limit: int = 100) -> tuple[JobEntry, ...]:
        """At most ``limit`` jobs by id, those behind ``after`` only; what :meth:`jobs_behind` marks is left out."""
        return tuple(job for job in self.jobs_behind(after, limit) if isinstance(job, JobEntry))

    def jobs_behind(self, after: str | None = None, limit: int = 100) -> tuple[JobEntry | DamagedJob, ...]:
        """At most ``limit`` jobs by id, those behind ``after`` only.

        Their documents are not read, nor are the checksums compared; what cannot be told has a marker in its place.
        """
        r = JOB_REVISIONS.c
        query = (
            sa.select(JOBS, r.job_sha256, r.tolerance, r.mode)
            .outerjoin(JOB_REVISIONS, (r.job_id == JOBS.c.job_id) & (r.revision == JOBS.c.revision))
            .order_by(JOBS.c.job_id)
            .limit(limit)
        )
        if after is not None:
            query = query.where(JOBS.c.job_id > after)
        rows = self._read(lambda connection: connection.execute(query).all())
        return tuple(_entry(row) for row in rows if isinstance(row.job_id, str))

    def current_epochs(self) -> dict[str, int]:
        """Number of the newest epoch of every job that has one; 0 where it is damaged."""
        return {job_id: newest for job_id, (_, newest) in self.epoch_ranges().items()}

    def epoch_ranges(self) -> dict[str, tuple[int, int]]:
        """Number of the first and of the newest epoch of every job that has one; 0 for a newest one that is damaged.

        Epochs before the first were those of deleted jobs with the same id.
        """
        j, r = JOBS.c, RETIRED_JOBS.c
        query = (
            sa.select(j.job_id, j.current_epoch, sa.func.coalesce(r.last_epoch, 0).label("last_retired"))
            .select_from(JOBS.outerjoin(RETIRED_JOBS, j.job_id == r.job_id))
            .where(j.current_epoch > 0)
        )
        rows = self._read(lambda connection: connection.execute(query).all())
        return {
            row.job_id: (whole(row.last_retired) + 1, whole(row.current_epoch))
            for row in rows
            if isinstance(row.job_id, str)
        }

    def delete_job(self, job_id: str) -> None:
        """Delete a job with its revisions, epochs, events, acknowledgements and operations; templates stay.

        The epochs of a job registered under the same id later go on behind the deleted ones, so that a worker that still
        waits for the old job's next epoch is not left behind.

        Raises
        ------
        NotFoundError
            If no job has this id.
        """

        def work(connection: sa.Connection) -> bool:
            last = connection.execute(
                self._locked(sa.select(JOBS.c.last_epoch).where(JOBS.c.job_id == job_id))
            ).scalar()
            if last is None:
                return False
            retired = self._insert(RETIRED_JOBS).values(job_id=job_id, last_epoch=last)
            connection.execute(retired.on_conflict_do_update(index_elements=["job_id"], set_={"last_epoch": last}))
            connection.execute(JOBS.delete().where(JOBS.c.job_id == job_id))
            notify(connection, job_id, 0)
            return True

        if not self._write(work):
            raise no_job(job_id)

    def _record(self, connection: sa.Connection, job_id: str, revision: int | None) -> JobRecord:
        r = JOB_REVISIONS.c
        number = JOBS.c.revision if revision is None else revision
        query = (
            sa.select(JOBS, JOB_REVISIONS)
            .join(JOB_REVISIONS, (r.job_id == JOBS.c.job_id) & (r.revision == number))
            .where(JOBS.c.job_id == job_id)
            .set_label_style(sa.LABEL_STYLE_TABLENAME_PLUS_COL)
        )
        row = connection.execute(query).one_or_none()
        if row is None and revision is not None:
            raise NotFoundError(f"there is no revision {revision} of a job {job_id[:80]!r}")
        if row is None and connection.execute(sa.select(JOBS.c.job_id).where(JOBS.c.job_id == job_id)).scalar() is None:
            raise no_job(job_id)
        if row is None:
            raise self._damaged_job(job_id, "the newest revision")
        expected = _checksum(
            job_id,
            row.job_revisions_revision,
            row.job_revisions_document,
            row.job_revisions_job_sha256,
            row.job_revisions_tolerance,
            row.job_revisions_mode,
        )
        if expected != row.job_revisions_checksum:
            raise self._damaged_job(job_id, f"revision {row.job_revisions_revision}")
        return JobRecord(
            job_id=job_id,
            revision=row.job_revisions_revision,
            job_sha256=row.job_revisions_job_sha256,
            document=row.job_revisions_document,
            tolerance=row.job_revisions_tolerance,
            mode=row.job_revisions_mode,
            current_epoch=whole(row.jobs_current_epoch),
            created_at=row.jobs_created_at,
            updated_at=row.job_revisions_created_at,
        )

    def _damaged_job(self, job_id: str, what: str) -> CorruptStoreError:
        return CorruptStoreError(
            f"{self.name}: {what} of job {job_id!r} does not match its checksum",
            hint="register the same document again, which mends it where it was damaged; else restore the store from a copy, or "
            "delete the job and register it again",
        )


def whole(value: Any) -> int:
    """A number of a row without a checksum; 0 for what is none any more, as on a damaged disk."""
    return value if isinstance(value, int) else 0


def _entry(row: sa.Row[Any]) -> JobEntry | DamagedJob:
    numbers = (row.revision, row.tolerance, row.current_epoch)
    is_sound = all(isinstance(number, int) for number in numbers) and isinstance(row.job_sha256, str)
    if not is_sound or row.mode not in (None, *get_args(Mode)):
        return DamagedJob(job_id=row.job_id)
    return JobEntry(
        job_id=row.job_id,
        revision=row.revision,
        job_sha256=row.job_sha256,
        tolerance=row.tolerance,
        mode=row.mode,
        current_epoch=row.current_epoch,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def no_job(job_id: str) -> NotFoundError:
    """Error of a job that is not there."""
    return NotFoundError(f"there is no job {job_id[:80]!r}", hint="register it with PUT /v1/jobs/{id}")


def _checksum(job_id: str, revision: int, document: bytes, job_sha256: str, tolerance: int, mode: str | None) -> str:
    return row_checksum("job", job_id, revision, document, job_sha256, tolerance, mode)
