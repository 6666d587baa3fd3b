"""The tables of the store, as the newest migration leaves them; a test compares the two.

Large values stand last in their tables, since SQLite reads through all that stands before a column. Texts of any length
are never part of an index, since PostgreSQL's have a limit: a failure key is found by its hash.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

SCHEMA_VERSION = 4
"""Number of the newest migration."""

_ORIGIN = datetime(1970, 1, 1, tzinfo=UTC)


class UtcTime(sa.TypeDecorator[datetime]):
    """A point in time, stored as whole microseconds since 1970 on every database."""

    impl = sa.BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> int | None:  # noqa: ARG002
        """Microseconds of a time with a zone."""
        return None if value is None else (value - _ORIGIN) // timedelta(microseconds=1)

    def process_result_value(self, value: Any | None, dialect: sa.Dialect) -> datetime | None:  # noqa: ARG002
        """Time in UTC of stored microseconds; for what is no such number, as on a damaged disk, the earliest time there is."""
        if value is None:
            return None
        try:
            return _ORIGIN + timedelta(microseconds=value)
        except (TypeError, OverflowError):
            return datetime.min.replace(tzinfo=UTC)


JOB_ID = sa.String(200).with_variant(sa.String(200, collation="C"), "postgresql")
"""Ids of jobs are ordered by their bytes on every database, not by the rules of the server's language."""

METADATA = sa.MetaData()

SCHEMA = sa.Table("replan_schema", METADATA, sa.Column("version", sa.Integer, nullable=False))
"""What versions of RePlan before the migrations look at: they refuse a store whose number is not theirs."""

PLANS = sa.Table(
    "plans",
    METADATA,
    sa.Column("plan_id", sa.String(64), primary_key=True),
    sa.Column("content", sa.LargeBinary, nullable=False),
    sa.Column("content_sha256", sa.String(64), nullable=False),
    sa.Column("summary", sa.LargeBinary, nullable=False),
    sa.Column("summary_sha256", sa.String(64), nullable=False),
)
REQUESTS = sa.Table(
    "requests",
    METADATA,
    sa.Column("request_sha256", sa.String(64), primary_key=True),
    sa.Column("plan_id", sa.String(64), sa.ForeignKey("plans.plan_id"), nullable=False),
)
PROGRAMS = sa.Table(
    "programs",
    METADATA,
    sa.Column("plan_id", sa.String(64), sa.ForeignKey("plans.plan_id"), primary_key=True),
    sa.Column("worker", sa.String(24), primary_key=True),
    sa.Column("content", sa.LargeBinary, nullable=False),
    sa.Column("content_sha256", sa.String(64), nullable=False),
)
RANKS = sa.Table(
    "ranks",
    METADATA,
    sa.Column("plan_id", sa.String(64), sa.ForeignKey("plans.plan_id"), primary_key=True),
    sa.Column("rank", sa.String(12), primary_key=True),
    sa.Column("worker", sa.String(24), nullable=False),
    sa.Column("checksum", sa.String(64), nullable=True),
)
"""Ranks; a row without a checksum was written by a version that knew none, and is not to be trusted."""

JOBS = sa.Table(
    "jobs",
    METADATA,
    sa.Column("job_id", JOB_ID, primary_key=True),
    sa.Column("revision", sa.Integer, nullable=False),
    sa.Column("current_epoch", sa.Integer, nullable=False),
    sa.Column("last_epoch", sa.Integer, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("updated_at", UtcTime, nullable=False),
)
"""One row a job, locked by whoever appends an epoch; ``current_epoch`` is 0 until the first one."""

RETIRED_JOBS = sa.Table(
    "retired_jobs",
    METADATA,
    sa.Column("job_id", JOB_ID, primary_key=True),
    sa.Column("last_epoch", sa.Integer, nullable=False),
)
"""Where the epochs of deleted jobs ended: a job registered again under the same id counts on from there."""


def _of_job(**options: Any) -> sa.Column[str]:
    return sa.Column("job_id", JOB_ID, sa.ForeignKey("jobs.job_id", ondelete="CASCADE"), **options)


JOB_REVISIONS = sa.Table(
    "job_revisions",
    METADATA,
    _of_job(primary_key=True),
    sa.Column("revision", sa.Integer, primary_key=True),
    sa.Column("job_sha256", sa.String(64), nullable=False),
    sa.Column("tolerance", sa.Integer, nullable=False),
    sa.Column("mode", sa.String(16), nullable=True),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("checksum", sa.String(64), nullable=False),
    sa.Column("document", sa.LargeBinary, nullable=False),
)
EPOCHS = sa.Table(
    "epochs",
    METADATA,
    _of_job(primary_key=True),
    sa.Column("epoch", sa.Integer, primary_key=True),
    sa.Column("revision", sa.Integer, nullable=False),
    sa.Column("cause", sa.String(16), nullable=False),
    sa.Column("failure_key", sa.Text, nullable=True),
    sa.Column("template_sha256", sa.String(64), nullable=True, index=True),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("attempt", sa.String(32), nullable=False),
    sa.Column("checksum", sa.String(64), nullable=False),
    sa.Column("state", sa.LargeBinary, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
)
"""Epochs; ``attempt`` names the call that appended it, so that one repeated after a lost connection finds its own row."""

EVENTS = sa.Table(
    "events",
    METADATA,
    sa.Column("job_id", JOB_ID, primary_key=True),
    sa.Column("epoch", sa.Integer, primary_key=True),
    sa.Column("idempotency_key", sa.String(256), nullable=True),
    sa.Column("request_sha256", sa.String(64), nullable=True),
    sa.Column("checksum", sa.String(64), nullable=False),
    sa.Column("event", sa.LargeBinary, nullable=True),
    sa.ForeignKeyConstraint(["job_id", "epoch"], ["epochs.job_id", "epochs.epoch"], ondelete="CASCADE"),
    sa.UniqueConstraint("job_id", "idempotency_key", name="uq_events_idempotency_key"),
)
ACKNOWLEDGEMENTS = sa.Table(
    "acknowledgements",
    METADATA,
    sa.Column("job_id", JOB_ID, primary_key=True),
    sa.Column("epoch", sa.Integer, primary_key=True),
    sa.Column("worker", sa.String(24), primary_key=True),
    sa.Column("iteration", sa.BigInteger, nullable=True),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.ForeignKeyConstraint(["job_id", "epoch"], ["epochs.job_id", "epochs.epoch"], ondelete="CASCADE"),
)

TEMPLATES = sa.Table(
    "templates",
    METADATA,
    sa.Column("job_sha256", sa.String(64), primary_key=True),
    sa.Column("key_sha256", sa.String(64), primary_key=True),
    sa.Column("sha256", sa.String(64), primary_key=True),
    sa.Column("failure_key", sa.Text, nullable=False),
    sa.Column("size", sa.Integer, nullable=False),
    sa.Column("period_ns", sa.BigInteger, nullable=False),
    sa.Column("bound_ns", sa.BigInteger, nullable=False),
    sa.Column("solver", sa.String(64), nullable=False),
    sa.Column("deadline_s", sa.Float, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("checksum", sa.String(64), nullable=False),
    sa.Column("content", sa.LargeBinary, nullable=False),
)
"""Templates; one that was replaced by a better one stays for as long as an epoch names it."""

OPERATIONS = sa.Table(
    "operations",
    METADATA,
    sa.Column("operation_id", sa.String(64), primary_key=True),
    _of_job(nullable=True, index=True),
    sa.Column("job_sha256", sa.String(64), nullable=False),
    sa.Column("kind", sa.String(32), nullable=False),
    sa.Column("mode", sa.String(16), nullable=False),
    sa.Column("tolerance", sa.Integer, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("total", sa.Integer, nullable=True),
    sa.Column("done", sa.Integer, nullable=False),
    sa.Column("failed", sa.Integer, nullable=False),
    sa.Column("skipped", sa.Integer, nullable=False),
    sa.Column("cancel_requested", sa.Boolean, nullable=False),
    sa.Column("owner", sa.String(200), nullable=True),
    sa.Column("lease_until", UtcTime, nullable=True),
    sa.Column("error", sa.Text, nullable=True),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("updated_at", UtcTime, nullable=False),
    sa.Column("options", sa.LargeBinary, nullable=False),
)
API_KEYS = sa.Table(
    "api_keys",
    METADATA,
    sa.Column("key_id", sa.String(64), primary_key=True),
    sa.Column("name", sa.String(200), nullable=False),
    sa.Column("scopes", sa.String(200), nullable=False),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("revoked_at", UtcTime, nullable=True),
)
USES = sa.Table(
    "uses",
    METADATA,
    sa.Column("kind", sa.String(16), primary_key=True),
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("used_at", UtcTime, nullable=False),
)
"""When a plan ("plan", its id) or the templates of a job hash ("job") were last of use; what has no row counts as just used."""
